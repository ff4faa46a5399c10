// Streams, the file actions of posix_spawn, truncate, and the stat functions of programs linked before glibc 2.33.

#include "engine.h"
#include "kernel.h"

#include <spawn.h>
#include <stdio.h>

static enum how stream_how(const char *mode) {
  if (!mode) return FOLLOW;
  return (strpbrk(mode, "wa") ? CREATE : FOLLOW) | (strpbrk(mode, "wa+") ? WRITE : FOLLOW);
}

INTERPOSE(FILE *, fopen, (const char *path, const char *mode))

static NOINLINE FILE *near_fopen(const char *path, const char *mode) {
  BORROW(place);
  path = redirect(place, AT_FDCWD, path, stream_how(mode));
  return path ? NEXT(fopen)(path, mode) : NULL;
}

// settle_fopen decides about a stream that was opened, or not, by the path as it is.
static NOINLINE FILE *settle_fopen(FILE *file, int kept, const char *path, const char *mode) {
  bool missing = !file && errno == ENOENT;
  if (far(AT_FDCWD, path) && !missing && (!file || !lies_in_tree(fileno(file)))) return file;
  BORROW(place);
  const char *real = redirect(place, AT_FDCWD, path, stream_how(mode));
  if (real == path) return file;
  int error = errno;
  if (file) fclose(file);
  errno = real ? kept : error;
  return real ? NEXT(fopen)(real, mode) : NULL;
}

// A mode that neither makes nor empties a file is tried first, for the reason given at TRY.
FILE *my_fopen(const char *path, const char *mode) {
  if (!active() || !path || !mode) return NEXT(fopen)(path, mode);
  bool changes = stream_how(mode) & CREATE;
  if (changes && faults(path)) return NEXT(fopen)(path, mode);
  if (changes && !far(AT_FDCWD, path)) return near_fopen(path, mode);
  int kept = errno;
  FILE *file = NEXT(fopen)(path, mode);
  if (!changes && !file && !was_read(errno) && faults(path)) return NULL;
  return settle_fopen(file, kept, path, mode);
}
ALSO(fopen64, fopen)
ALSO(_IO_fopen, fopen)

INTERPOSE(FILE *, freopen, (const char *path, const char *mode, FILE *file))
FILE *my_freopen(const char *path, const char *mode, FILE *file) {
  if (!active() || !path) return NEXT(freopen)(path, mode, file);
  BORROW(place);
  path = redirect(place, AT_FDCWD, path, stream_how(mode));
  if (path) return NEXT(freopen)(path, mode, file);
  int kept = errno;
  fclose(file);
  errno = kept;
  return NULL;
}
ALSO(freopen64, freopen)

// ---- truncate: an attribute in sysfs has no size to change, so nothing happens if it can be written ------------------

INTERPOSE(int, truncate, (const char *path, off_t length))

static NOINLINE int near_truncate(const char *path, off_t length) {
  BORROW(place);
  path = redirect(place, AT_FDCWD, path, WRITE);
  if (!path) return -1;
  if (place->region != INSIDE || !place->staged) return NEXT(truncate)(path, length);
  long error = kernel(SYS_faccessat, AT_FDCWD, (long)path, 2 /* W_OK */, 0);
  if (!error) return 0;
  errno = (int)-error;
  return -1;
}

int my_truncate(const char *path, off_t length) {
  if (!active() || !path || faults(path)) return NEXT(truncate)(path, length);
  if (far(AT_FDCWD, path)) {
    int result = NEXT(truncate)(path, length);
    if (result != -1 || errno != ENOENT) return result;
  }
  return near_truncate(path, length);
}
ALSO(truncate64, truncate)

// ---- posix_spawn: the path is redirected when the action is added ----------------------------------------------------

// settled redirects a path. A relative path that does not exist stays as it is: an action before this one may change the
// child's working directory.
static const char *settled(struct place *place, const char *path, enum how how) {
  const char *real = redirect(place, AT_FDCWD, path, how);
  return *path != '/' && (!real || !place->exists) ? path : real;
}

#define ACTION(name, parameters, arguments, how)         \
  INTERPOSE(int, name, parameters)                       \
  int my_##name parameters {                             \
    if (!active() || !path) return NEXT(name) arguments; \
    BORROW(place);                                       \
    int kept = errno;                                    \
    path = settled(place, path, how);                    \
    int result = path ? NEXT(name) arguments : errno;    \
    errno = kept;                                        \
    return result;                                       \
  }

ACTION(posix_spawn_file_actions_addopen,
       (posix_spawn_file_actions_t *actions, int fd, const char *path, int flags, mode_t mode),
       (actions, fd, path, flags, mode), (flags & O_CREAT ? CREATE : FOLLOW) | (flags & (O_ACCMODE | O_TRUNC) ? WRITE : FOLLOW))
ACTION(posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t *actions, const char *path), (actions, path), FOLLOW)

// ---- Before glibc 2.33 stat was an inline function around these ----------------------------------------------------

int my_fstatat(int dirfd, const char *path, struct stat *st, int flags) __asm__("fstatat");
int my_mknodat(int dirfd, const char *path, mode_t mode, dev_t device) __asm__("mknodat");

// known says whether a caller's struct stat has today's layout. 0 and 1 are the version numbers of 64-bit machines.
static bool known(int version) {
  if (version == 0 || version == 1) return true;
  errno = EINVAL;
  return false;
}

#define OLD(name, parameters, call)           \
  EXPORT int my_##name parameters __asm__(#name); \
  int my_##name parameters { return known(version) ? call : -1; }

OLD(__xstat, (int version, const char *path, struct stat *st), my_stat(path, st))
OLD(__lxstat, (int version, const char *path, struct stat *st), my_lstat(path, st))
OLD(__fxstatat, (int version, int dirfd, const char *path, struct stat *st, int flags), my_fstatat(dirfd, path, st, flags))
ALSO(__xstat64, __xstat)
ALSO(__lxstat64, __lxstat)
ALSO(__fxstatat64, __fxstatat)
OLD(__xmknod, (int version, const char *path, mode_t mode, dev_t *device), my_mknodat(AT_FDCWD, path, mode, *device))
OLD(__xmknodat, (int version, int dirfd, const char *path, mode_t mode, dev_t *device), my_mknodat(dirfd, path, mode, *device))
