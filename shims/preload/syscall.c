// syscall(2) by number. hwloc, programs in Rust and others call it where older libcs have no function.

#include "engine.h"
#include "kernel.h"

#include <linux/openat2.h>
#include <sys/inotify.h>

enum { INDEX_a, INDEX_b, INDEX_c };

INTERPOSE(long, syscall, (long number, long a, long b, long c, long d, long e, long f))

// redirected makes the call with the redirected path, or fails in its place.
static NOINLINE long redirected(long number, long *arguments, int dirfd, long *path, enum how how) {
  BORROW(place);
  if (*path && !(*path = (long)redirect(place, dirfd, (const char *)*path, how))) return -1;
  long *a = arguments;
  return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// opened is openat2. For a path that leads through the tree, the virtual path is checked against the RESOLVE_ flags. Every
// other path is left to the kernel with its flags.
static NOINLINE long opened(int dirfd, const char *path, const void *arguments, size_t size) {
  struct open_how how;
  if (!path || size < sizeof how || !readable(arguments) || !readable((const char *)arguments + sizeof how - 1))
    return NEXT(syscall)(SYS_openat2, dirfd, (long)path, (long)arguments, (long)size, 0, 0);
  memcpy(&how, arguments, sizeof how);
  BORROW(place);
  const char *real = redirect_within(place, dirfd, path, OPENS(how.flags), how.resolve);
  if (!real) return -1;
  if (real == path) return NEXT(syscall)(SYS_openat2, dirfd, (long)path, (long)arguments, (long)size, 0, 0);
  how.resolve &= RESOLVE_CACHED;
  return NEXT(syscall)(SYS_openat2, AT_FDCWD, (long)real, (long)&how, sizeof how, 0, 0);
}

#ifdef SYS_getdents
// old_getdents gives the entries of getdents64 the older layout, in which the type comes last.
static NOINLINE long old_getdents(int fd, char *buffer, size_t size) {
  struct old {
    unsigned long inode, offset;
    unsigned short length;
    char name[];
  };
  BORROW(room);
  if (!room) {
    errno = ENOMEM;
    return -1;
  }
  // An old entry is never longer than a new one: 18 bytes, the name, its end and the type, against 19, the name and its end.
  char *new = room->room;
  ssize_t n = my_getdents64(fd, new, size < sizeof room->room ? size : sizeof room->room);
  long used = 0;
  for (ssize_t at = 0; at < n;) {
    struct dirent *entry = (struct dirent *)(new + at);
    at += entry->d_reclen;
    struct old *old = (struct old *)room->todo;
    size_t name = strlen(entry->d_name);
    memset(old, 0, sizeof *old + NAME_MAX + 16);
    old->inode = entry->d_ino;
    old->offset = (unsigned long)entry->d_off;
    old->length = (unsigned short)((offsetof(struct old, name) + name + 2 + 7) & ~(size_t)7);
    memcpy(old->name, entry->d_name, name);
    ((char *)old)[old->length - 1] = (char)entry->d_type;
    if (!hand(buffer + used, old, old->length)) return -1;
    used += old->length;
  }
  return n < 0 ? -1 : used;
}
#endif

long my_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (!active()) return NEXT(syscall)(number, a, b, c, d, e, f);
  long arguments[] = {a, b, c, d, e, f};
  switch (number) {
#define CALL(...)
#define ASK(...)
#define OPEN(...)
#define CALL2(...)
#define OTHER(...)
#define SYSCALL(number_, directory, path, how) \
  case number_:                                \
    return redirected(number, arguments, (int)(directory), arguments + INDEX_##path, how);
#include "calls.def"
    case SYS_openat2:
      return opened((int)a, (const char *)b, (const void *)c, (size_t)d);
    case SYS_truncate:
      return my_truncate((const char *)a, (off_t)b);
    case SYS_chdir:
      return my_chdir((const char *)a);
    case SYS_fchdir:
      return my_fchdir((int)a);
    case SYS_getdents64:
      return my_getdents64((int)a, (void *)b, (size_t)c);
#ifdef SYS_getdents
    case SYS_getdents:
      return old_getdents((int)a, (char *)b, (size_t)c);
#endif
    case SYS_readlinkat:
      return my_readlinkat((int)a, (const char *)b, (char *)c, (size_t)d);
#ifdef SYS_readlink
    case SYS_readlink:
      return my_readlink((const char *)a, (char *)b, (size_t)c);
#endif
    case SYS_getcwd: {
      if (!a) break;
      char *path = my_getcwd((char *)a, (size_t)b);
      return path ? (long)strlen(path) + 1 : -1;
    }
  }
  return NEXT(syscall)(number, a, b, c, d, e, f);
}
