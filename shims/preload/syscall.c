// syscall(2) by number: hwloc, Rust programs and others go this way for calls that libc had no function for.

#include "engine.h"
#include "kernel.h"

#include <linux/openat2.h>
#include <sys/inotify.h>

enum { INDEX_a, INDEX_b, INDEX_c };

INTERPOSE(long, syscall, (long number, long a, long b, long c, long d, long e, long f))

// redirected puts another path into the arguments, or answers for the call.
static NOINLINE long redirected(long number, long *arguments, int dirfd, long *path, enum how how) {
  struct place place;
  if (*path && !(*path = (long)redirect(&place, dirfd, (const char *)*path, how))) return -1;
  long *a = arguments;
  return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

long my_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (!active()) return NEXT(syscall)(number, a, b, c, d, e, f);
  long arguments[] = {a, b, c, d, e, f};
  switch (number) {
#define CALL(...)
#define CALL2(...)
#define OTHER(...)
#define SYSCALL(number_, directory, path, how) \
  case number_:                                \
    return redirected(number, arguments, (int)(directory), arguments + INDEX_##path, how);
#include "calls.def"
    case SYS_openat2: {
      const struct open_how *open = (const void *)c;
      if (!open || open->resolve) break;  // what resolve forbids is told from the real path
      return redirected(number, arguments, (int)a, arguments + 1, OPENS(open->flags));
    }
    case SYS_chdir:
      return my_chdir((const char *)a);
    case SYS_fchdir:
      return my_fchdir((int)a);
    case SYS_getdents64:
      return my_getdents64((int)a, (void *)b, (size_t)c);
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
