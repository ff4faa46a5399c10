// The functions of calls.def.

#include "engine.h"
#include "kernel.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

struct statfs;
struct statvfs;

// near_miss says whether a call may have failed because the host lacks this part of the tree. Sysfs answers EPERM where a
// name would be made.
static inline bool near_miss(int error) { return error == ENOENT || error == EPERM; }

// Each entry point is cut into several functions, so that the common case saves no registers for the rare ones.

// EARLY defines early_NAME, for calls that come before the library is set up or while it is being set up.
#define EARLY(result_t, name, parameters, arguments)              \
  static NOINLINE result_t early_##name parameters {              \
    return active() ? my_##name arguments : NEXT(name) arguments; \
  }

// The calls below take these arguments besides: landed says whether a call that succeeded on a path that seemed far ended
// on a file system that has parts of the tree. undo drops what a call gave before it is made again, on another path.

// CHANGE defines change_NAME, for calls that must not reach the host if the path leads into the tree. The path is looked at
// before the call; a system call tells whether it can be read.
#define CHANGE(result_t, name, parameters, arguments, directory, how, landed, undo) \
  static NOINLINE result_t change_##name parameters {                               \
    if (faults(path)) return READY(name) arguments;                                 \
    if (far(directory, path)) {                                                     \
      result_t result = READY(name) arguments;                                      \
      if (!(result == -1 ? near_miss(errno) : (landed))) return result;             \
      if (result != -1) undo;                                                       \
    }                                                                               \
    BORROW(place);                                                                  \
    path = redirect(place, directory, path, how);                                   \
    return path ? READY(name) arguments : -1;                                       \
  }

// TRY defines try_NAME, for calls that do no harm on the host. The call is made first and the path looked at afterwards: by
// then the kernel has read it, so no system call is needed to tell whether it can be read. If the path leads into the tree,
// the call is made again. It goes on in settle_NAME, which gets the first answer and the errno from before it.
#define BEFORE(...) (long first, int kept, __VA_ARGS__)
#define AND(...) (first, kept, __VA_ARGS__)
#define TRY(result_t, name, parameters, arguments, directory, how, landed, undo)              \
  static NOINLINE result_t settle_##name BEFORE parameters {                                  \
    result_t result = (result_t)first;                                                        \
    if (result == -1 && !was_read(errno) && faults(path)) return -1;                          \
    if (far(directory, path) && !(result == -1 ? near_miss(errno) : (landed))) return result; \
    BORROW(place);                                                                            \
    const char *real = redirect(place, directory, path, how);                                 \
    if (real == path) return result;                                                          \
    if (result != -1) undo;                                                                   \
    if (!real) return -1;                                                                     \
    path = real;                                                                              \
    errno = kept;                                                                             \
    return READY(name) arguments;                                                             \
  }                                                                                           \
  static NOINLINE result_t try_##name parameters {                                              \
    int kept = errno_now();                                                                   \
    result_t result = READY(name) arguments;                                                  \
    if (__builtin_expect(result != -1 && plainly_far(path) && !(landed), 1)) return result;   \
    long first = result;                                                                      \
    return settle_##name AND arguments;                                                       \
  }

#define ENTRY(result_t, name, parameters, arguments, action)               \
  EARLY(result_t, name, parameters, arguments)                             \
  result_t my_##name parameters {                                          \
    int phase = atomic_load_explicit(&state.phase, memory_order_acquire);  \
    if (__builtin_expect(phase < INERT, 0)) return early_##name arguments; \
    if (phase == INERT || !path) return READY(name) arguments;             \
    return action;                                                         \
  }

#define CALL(result_t, name, parameters, arguments, directory, how) \
  INTERPOSE(result_t, name, parameters)                                              \
  CHANGE(result_t, name, parameters, arguments, directory, how, false, (void)result) \
  ENTRY(result_t, name, parameters, arguments, change_##name arguments)

#define ASK(result_t, name, parameters, arguments, directory, how, landed)         \
  INTERPOSE(result_t, name, parameters)                                            \
  TRY(result_t, name, parameters, arguments, directory, how, landed, (void)result) \
  ENTRY(result_t, name, parameters, arguments, try_##name arguments)

#define OPEN(name, parameters, arguments, directory)                                                            \
  INTERPOSE(int, name, parameters)                                                                              \
  CHANGE(int, name, parameters, arguments, directory, OPENS(flags), lies_in_tree(result), kernel_close(result)) \
  TRY(int, name, parameters, arguments, directory, OPENS(flags), lies_in_tree(result), kernel_close(result))    \
  ENTRY(int, name, parameters, arguments, flags & (O_CREAT | O_TRUNC) ? change_##name arguments : try_##name arguments)

#define CALL2(name, parameters, arguments, directory1, path1, how1, directory2, path2, how2)          \
  INTERPOSE(int, name, parameters)                                                                    \
  static NOINLINE int near_##name parameters {                                                        \
    BORROW(place1);                                                                                   \
    BORROW(place2);                                                                                   \
    path1 = redirect(place1, directory1, path1, how1);                                                \
    path2 = path1 ? redirect(place2, directory2, path2, how2) : NULL;                                 \
    return path2 ? NEXT(name) arguments : -1;                                                         \
  }                                                                                                   \
  int my_##name parameters {                                                                          \
    if (!active() || !path1 || !path2 || faults(path1) || faults(path2)) return NEXT(name) arguments; \
    if (far(directory1, path1) && far(directory2, path2)) {                                           \
      int result = NEXT(name) arguments;                                                              \
      if (result != -1 || !near_miss(errno)) return result;                                           \
    }                                                                                                 \
    return near_##name arguments;                                                                     \
  }

// musl's headers define some of these names as macros, which must not be replaced.
#define OTHER(other, name) \
  EXPORT extern __typeof__(my_##name) also_##other __asm__(#other) __attribute__((alias(#name)));
#define SYSCALL(number, directory, path, how)

#include "calls.def"
