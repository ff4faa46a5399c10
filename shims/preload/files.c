// Streams, children's files, and the stat functions of programs linked before glibc 2.33.

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

FILE *my_fopen(const char *path, const char *mode) {
  if (!active() || !path || faults(path)) return NEXT(fopen)(path, mode);
  if (far(AT_FDCWD, path)) {
    FILE *file = NEXT(fopen)(path, mode);
    struct stat st;
    if (file ? fstat(fileno(file), &st) != 0 || !watched(st.st_dev) : errno != ENOENT) return file;
    if (file) fclose(file);
  }
  return near_fopen(path, mode);
}
ALSO(fopen64, fopen)
ALSO(_IO_fopen, fopen)

INTERPOSE(FILE *, freopen, (const char *path, const char *mode, FILE *file))
FILE *my_freopen(const char *path, const char *mode, FILE *file) {
  if (!active() || !path || faults(path)) return NEXT(freopen)(path, mode, file);
  BORROW(place);
  path = redirect(place, AT_FDCWD, path, stream_how(mode));
  if (path) return NEXT(freopen)(path, mode, file);
  int kept = errno;
  fclose(file);
  errno = kept;
  return NULL;
}
ALSO(freopen64, freopen)

// ---- truncate: what can be written has no size in sysfs, so nothing happens ------------------------------------------

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

// ---- A child's actions: the path is settled when it is added -------------------------------------------------------

// settled leaves a relative path that does not exist as it is: an action before it may have changed the directory.
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

// Version numbers that these machines have known, where the layout is today's.
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
