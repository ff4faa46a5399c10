// The functions of calls.def.

#include "engine.h"
#include "kernel.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

struct statfs;
struct statvfs;

// near_miss: what becomes of a far path that leads into a part of the tree that the host does not have. Sysfs says EPERM
// where a name would be made.
static inline bool near_miss(int error) { return error == ENOENT || error == EPERM; }

// Three ways, each its own function, so that the short ones save no registers: nothing to do, the kernel first, and the
// long way. early_NAME serves calls before the library is set up, and while it is.
#define CALL(result_t, failure, name, parameters, arguments, directory, how, landed)                    \
  INTERPOSE(result_t, name, parameters)                                                                 \
  static NOINLINE result_t near_##name parameters {                                                     \
    BORROW(place);                                                                                      \
    path = redirect(place, directory, path, how);                                                       \
    return path ? READY(name) arguments : (failure);                                                    \
  }                                                                                                     \
  static NOINLINE result_t far_##name parameters {                                                      \
    result_t result = READY(name) arguments;                                                            \
    if (__builtin_expect(!(result == -1 ? near_miss(errno) : (landed)), 1)) return result;              \
    return near_##name arguments;                                                                       \
  }                                                                                                     \
  static NOINLINE result_t screen_##name parameters {                                                   \
    return far(directory, path) ? far_##name arguments : near_##name arguments;                         \
  }                                                                                                     \
  static NOINLINE result_t early_##name parameters {                                                    \
    return active() && path && !faults(path) ? screen_##name arguments : NEXT(name) arguments;          \
  }                                                                                                     \
  result_t my_##name parameters {                                                                       \
    int phase = atomic_load_explicit(&state.phase, memory_order_acquire);                               \
    if (__builtin_expect(phase < INERT, 0)) return early_##name arguments;                              \
    if (phase == INERT || !path || faults(path)) return READY(name) arguments;                          \
    return plainly_far(path) ? far_##name arguments : screen_##name arguments;                          \
  }

#define CALL2(name, parameters, arguments, directory1, path1, how1, directory2, path2, how2) \
  INTERPOSE(int, name, parameters)                                                           \
  static NOINLINE int near_##name parameters {                                               \
    BORROW(place1);                                                                          \
    BORROW(place2);                                                                          \
    path1 = redirect(place1, directory1, path1, how1);                                       \
    path2 = path1 ? redirect(place2, directory2, path2, how2) : NULL;                        \
    return path2 ? NEXT(name) arguments : -1;                                                \
  }                                                                                          \
  int my_##name parameters {                                                                 \
    if (!active() || !path1 || !path2 || faults(path1) || faults(path2)) return NEXT(name) arguments; \
    if (far(directory1, path1) && far(directory2, path2)) {                                  \
      int result = NEXT(name) arguments;                                                     \
      if (result != -1 || !near_miss(errno)) return result;                                  \
    }                                                                                        \
    return near_##name arguments;                                                            \
  }

#define OTHER(other, name) ALSO(other, name)
#define SYSCALL(number, directory, path, how)

#include "calls.def"
