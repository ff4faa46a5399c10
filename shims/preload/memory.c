// Memory: rooms for paths outside the stack, and access to the program's memory by addresses that may be wrong.

#include "engine.h"
#include "kernel.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

// ---- Rooms ---------------------------------------------------------------------------------------------------------
// There are 32 rooms; a set bit in claimed says that a room is in use. A room is never given back if its thread is cancelled,
// jumps out of the call, or does not exist in a forked child. When none is free, each call maps a room of its own.

enum { ROOMS = 32 };

static struct place rooms[ROOMS];
static _Atomic uint32_t claimed;

struct place *borrow(void) {
  uint32_t seen = atomic_load_explicit(&claimed, memory_order_relaxed);
  while (~seen) {
    int i = __builtin_ctz(~seen);
    if (atomic_compare_exchange_weak_explicit(&claimed, &seen, seen | 1u << i, memory_order_acquire, memory_order_relaxed))
      return &rooms[i];
  }
  int kept = errno;
  void *room = mmap(NULL, sizeof *rooms, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = kept;
  return room == MAP_FAILED ? NULL : room;
}

void give_back(struct place *place) {
  if (place >= rooms && place < rooms + ROOMS)
    atomic_fetch_and_explicit(&claimed, ~(1u << (place - rooms)), memory_order_release);
  else
    kernel(SYS_munmap, (long)place, sizeof *place, 0, 0);
}

// ---- The program's memory ------------------------------------------------------------------------------------------

// The kernel reads the eight bytes of a signal set, and answers EFAULT if it cannot, before it looks at how to change the
// mask. -1 is no such way, so the mask stays as it is.
bool readable(const void *address) {
  if ((uintptr_t)address < 8) return false;  // for the kernel NULL means that there is no set
  return kernel(SYS_rt_sigprocmask, -1, (long)((uintptr_t)address & ~(uintptr_t)7), 0, 8) != -EFAULT;
}

ssize_t length_of(const char *path) {
  for (size_t length = 0;;) {
    if (!readable(path + length)) return -1;
    size_t rest = 4096 - ((uintptr_t)(path + length) & 4095);
    const char *end = memchr(path + length, '\0', rest);
    if (end) return end - path;
    length += rest;
  }
}

bool hand(void *buffer, const void *data, size_t size) {
  struct iovec from = {(void *)data, size}, to = {buffer, size};
  int kept = errno;
  ssize_t n = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
  bool forbidden = n < 0 && errno != EFAULT;  // a filter of system calls refused it
  errno = kept;
  if (forbidden) memcpy(buffer, data, size);
  if (forbidden || n == (ssize_t)size) return true;
  errno = EFAULT;
  return false;
}
