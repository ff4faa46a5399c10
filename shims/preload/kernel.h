// System calls without libc. They do not change errno, take no lock, and are not seen by any preloaded library. They return
// a result or a negative error number.

#pragma once

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#ifndef __GLIBC__  // musl before 1.2.5 leaves struct statx to the kernel's headers
#include <linux/stat.h>
#endif

static inline long kernel(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#else
#error "amd64 and arm64 only"
#endif
}

static inline ssize_t kernel_readlink(const char *path, char *buffer, size_t size) {
  return kernel(SYS_readlinkat, AT_FDCWD, (long)path, (long)buffer, (long)size);
}

static inline int kernel_stat(int dirfd, const char *path, struct stat *st, int flags) {
  return (int)kernel(SYS_newfstatat, dirfd, (long)path, (long)st, flags);
}

static inline int kernel_open(const char *path, int flags) {
  return (int)kernel(SYS_openat, AT_FDCWD, (long)path, flags | O_CLOEXEC, 0);
}

static inline void kernel_close(int fd) { kernel(SYS_close, fd, 0, 0, 0); }

// kernel_fd_path writes what an open file is called to buffer and returns the length.
static inline ssize_t kernel_fd_path(int fd, char *buffer, size_t size) {
  char link[32] = "/proc/self/fd/", *digit = link + sizeof "/proc/self/fd/" - 1;
  for (int power = 1000000000; power; power /= 10)
    if (fd >= power || power == 1) *digit++ = (char)('0' + fd / power % 10);
  ssize_t n = kernel_readlink(link, buffer, size);
  if (n < 0 || (size_t)n == size) return -1;
  buffer[n] = '\0';
  return n;
}
