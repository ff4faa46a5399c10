// Functions that answer with a path, and those that change the working directory. For a file in the staged tree the answer
// is its virtual path.

#include "engine.h"
#include "kernel.h"

#include <stdlib.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

// The fortified variants end the process here if the buffer is too small.
extern void __chk_fail(void) __attribute__((noreturn));

// ---- readlink ------------------------------------------------------------------------------------------------------

// link_text reads a link below /proc whose target is a file of this process.
static ssize_t link_text(const char *path, char *buffer, size_t size) {
  BORROW(room);
  char *text = room ? room->room : NULL;
  ssize_t n = text ? kernel_readlink(path, text, PATH_MAX - 1) : -ENOMEM;
  if (n < 0) {
    errno = (int)-n;
    return -1;
  }
  text[n] = '\0';
  if (unstage(text)) n = (ssize_t)strlen(text);
  if ((size_t)n > size) n = (ssize_t)size;
  return hand(buffer, text, (size_t)n) ? n : -1;
}

INTERPOSE(ssize_t, readlinkat, (int dirfd, const char *path, char *buffer, size_t size))

static NOINLINE ssize_t near_readlinkat(int dirfd, const char *path, char *buffer, size_t size) {
  BORROW(place);
  const char *real = redirect(place, dirfd, path, NOFOLLOW);
  if (!real) return -1;
  if (real == path && *path && size && !strncmp(virtual_path(place), "/proc/", 6))
    return link_text(virtual_path(place), buffer, size);
  return NEXT(readlinkat)(dirfd, real, buffer, size);
}

// The link is read first, and the path looked at afterwards, for the reason given at TRY.
ssize_t my_readlinkat(int dirfd, const char *path, char *buffer, size_t size) {
  if (!active() || !path) return NEXT(readlinkat)(dirfd, path, buffer, size);
  int kept = errno;
  ssize_t n = NEXT(readlinkat)(dirfd, path, buffer, size);
  bool no_link = n == -1 && errno == EINVAL && size;  // size 0 is EINVAL too, before the path is read
  if (n == -1 && !no_link && !was_read(errno) && faults(path)) return n;
  if (far(dirfd, path) && (n != -1 || errno != ENOENT)) return n;
  errno = kept;
  return near_readlinkat(dirfd, path, buffer, size);
}

INTERPOSE(ssize_t, readlink, (const char *path, char *buffer, size_t size))
ssize_t my_readlink(const char *path, char *buffer, size_t size) {
  if (!active()) return NEXT(readlink)(path, buffer, size);
  return my_readlinkat(AT_FDCWD, path, buffer, size);
}

INTERPOSE(ssize_t, __readlink_chk, (const char *path, char *buffer, size_t size, size_t room))
ssize_t my___readlink_chk(const char *path, char *buffer, size_t size, size_t room) {
  if (size > room) __chk_fail();
  return my_readlink(path, buffer, size);
}

INTERPOSE(ssize_t, __readlinkat_chk, (int dirfd, const char *path, char *buffer, size_t size, size_t room))
ssize_t my___readlinkat_chk(int dirfd, const char *path, char *buffer, size_t size, size_t room) {
  if (size > room) __chk_fail();
  return my_readlinkat(dirfd, path, buffer, size);
}

// ---- realpath ------------------------------------------------------------------------------------------------------

INTERPOSE(char *, realpath, (const char *path, char *resolved))

static NOINLINE char *near_realpath(const char *path, char *resolved) {
  BORROW(place);
  int error = !place ? ENOMEM : *path ? walk(place, AT_FDCWD, path, FOLLOW, 0) : ENOENT;
  char *virtual = place ? virtual_path(place) : NULL;
  if (!error && !place->moved && !place->staged) return NEXT(realpath)(path, resolved);
  if (!error && !place->exists) error = ENOENT;
  struct stat st;
  if (!error && place->slash && kernel_stat(AT_FDCWD, place->staged ? place->room : virtual, &st, 0) == 0 &&
      !S_ISDIR(st.st_mode))
    error = ENOTDIR;
  if (error) {
    errno = error;
    return NULL;
  }
  return resolved ? strcpy(resolved, virtual) : strdup(virtual);
}

char *my_realpath(const char *path, char *resolved) {
  if (!active() || !path) return NEXT(realpath)(path, resolved);
  if (far(AT_FDCWD, path)) {
    char *result = NEXT(realpath)(path, resolved);
    if (result || errno != ENOENT) return result;
  }
  return near_realpath(path, resolved);
}

INTERPOSE(char *, __realpath_chk, (const char *path, char *resolved, size_t room))
char *my___realpath_chk(const char *path, char *resolved, size_t room) {
  if (room < PATH_MAX) __chk_fail();
  return my_realpath(path, resolved);
}

INTERPOSE(char *, canonicalize_file_name, (const char *path))
char *my_canonicalize_file_name(const char *path) { return my_realpath(path, NULL); }

// ---- The working directory -----------------------------------------------------------------------------------------

// left notes that the working directory may have changed: from now on it is looked up for each relative path. It is not
// remembered, because a child of vfork shares this memory with its parent but has a working directory of its own.
static void left(void) { atomic_store(&state.cwd_far, false); }

INTERPOSE(int, chdir, (const char *path))
int my_chdir(const char *path) {
  if (!active() || !path) return NEXT(chdir)(path);
  BORROW(place);
  const char *real = redirect(place, AT_FDCWD, path, FOLLOW);
  left();
  return real ? NEXT(chdir)(real) : -1;
}

INTERPOSE(int, fchdir, (int fd))
int my_fchdir(int fd) {
  left();
  return NEXT(fchdir)(fd);
}

INTERPOSE(int, chroot, (const char *path))
int my_chroot(const char *path) {
  left();
  return NEXT(chroot)(path);
}

INTERPOSE(char *, getcwd, (char *buffer, size_t size))
char *my_getcwd(char *buffer, size_t size) {
  BORROW(room);
  char *path = room ? room->room : NULL;
  bool staged;
  if (!active() || !path || !virtual_of(AT_FDCWD, path, PATH_MAX, &staged) || !staged || (buffer && !size))
    return NEXT(getcwd)(buffer, size);
  size_t length = strlen(path) + 1;
  if (size && size < length) {
    errno = ERANGE;
    return NULL;
  }
  if (!buffer) buffer = malloc(size ? size : length);
  return buffer && hand(buffer, path, length) ? buffer : NULL;
}

INTERPOSE(char *, __getcwd_chk, (char *buffer, size_t size, size_t room))
char *my___getcwd_chk(char *buffer, size_t size, size_t room) {
  if (size > room) __chk_fail();
  return my_getcwd(buffer, size);
}

INTERPOSE(char *, getwd, (char *buffer))
char *my_getwd(char *buffer) { return my_getcwd(buffer, PATH_MAX); }

INTERPOSE(char *, __getwd_chk, (char *buffer, size_t room))
char *my___getwd_chk(char *buffer, size_t room) { return my_getcwd(buffer, room < PATH_MAX ? room : PATH_MAX); }

INTERPOSE(char *, get_current_dir_name, (void))
char *my_get_current_dir_name(void) {
  BORROW(room);
  char *path = room ? room->room : NULL;
  bool staged;
  if (!active() || !path || !virtual_of(AT_FDCWD, path, PATH_MAX, &staged) || !staged) return NEXT(get_current_dir_name)();
  return strdup(path);
}

// ---- The file system of an open file. For a file in the staged tree it is that of its top, such as /sys ---------------

// top_of returns the top under which an open file of the staged tree is seen, or NULL.
static const char *top_of(int fd, char *buffer) {
  bool staged;
  if (!active() || !buffer || !virtual_of(fd, buffer, PATH_MAX, &staged) || !staged) return NULL;
  buffer[1 + strcspn(buffer + 1, "/")] = '\0';
  return buffer;
}

INTERPOSE(int, fstatfs, (int fd, struct statfs *st))
int my_fstatfs(int fd, struct statfs *st) {
  BORROW(room);
  const char *top = top_of(fd, room ? room->room : NULL);
  return top ? statfs(top, st) : NEXT(fstatfs)(fd, st);
}
ALSO(fstatfs64, fstatfs)

INTERPOSE(int, fstatvfs, (int fd, struct statvfs *st))
int my_fstatvfs(int fd, struct statvfs *st) {
  BORROW(room);
  const char *top = top_of(fd, room ? room->room : NULL);
  return top ? statvfs(top, st) : NEXT(fstatvfs)(fd, st);
}
ALSO(fstatvfs64, fstatvfs)
