// libibmockumad.so makes /dev/infiniband/umadN and issmN of a staged tree work. With MOCK_IB=full an open of one connects to
// the daemon mock-ib, at MOCK_IB_ROOT/run/mock-ib.sock, and the descriptor that the program gets is that connection: poll,
// select, dup, fork and close-on-exec are the kernel's own.
//
// Each message that the daemon sends is what one read returns. What the program writes, and its ioctls, go to the daemon as
// requests, each with an eventfd that takes the result. So results cannot be mistaken for MADs or for one another, whichever
// threads and processes share the descriptor. A daemon that is dead or does not answer gives EIO.
//
// Which file an open leads to is found out after it was made: by then the other preloaded libraries have followed the path
// into the staged tree, where an ordinary file or a socket stands for each device.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "../kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// ---- The functions that ours hide ----------------------------------------------------------------------------------

struct slot {
  void **address;
  const char *name;
};

extern const struct slot __start_slots[], __stop_slots[];

static void *find(const struct slot *slot) {
  void *address = __atomic_load_n(slot->address, __ATOMIC_ACQUIRE);
  if (__builtin_expect(address != NULL, 1)) return address;
  address = dlsym(RTLD_NEXT, slot->name);
  __atomic_store_n(slot->address, address, __ATOMIC_RELEASE);
  return address;
}

// INTERPOSE declares my_NAME, whose symbol is NAME, and a slot for the function that it hides.
#define INTERPOSE(result, name, parameters)                                                  \
  __attribute__((visibility("default"))) result my_##name parameters __asm__(#name);         \
  static void *next_##name;                                                                  \
  static const struct slot slot_##name __attribute__((used, section("slots"))) = {&next_##name, #name};

#define NEXT(name) ((__typeof__(&my_##name))find(&slot_##name))

// ALSO gives my_NAME one more symbol.
#define ALSO(other, name) \
  __attribute__((visibility("default"))) extern __typeof__(my_##name) also_##other __asm__(#other) __attribute__((alias(#name)));

// ---- Settings, fixed when the library is loaded ---------------------------------------------------------------------

enum { UNKNOWN, OFF, FULL };

static _Atomic int mode;
static char root[PATH_MAX];  // absolute, without symbolic links if it exists
static size_t root_length;

static const char default_root[] = "/var/lib/nvml-mock/ib";
static const char socket_name[] = "mock-ib.sock";

// ---- Descriptors that are devices -----------------------------------------------------------------------------------

enum { MOST = 1 << 20 };  // the kernel's own limit for descriptors, as it is set by default

static _Atomic uint64_t marks[MOST / 64];

static void mark(int fd, bool on) {
  if (fd < 0 || fd >= MOST) return;
  uint64_t bit = 1ull << (fd % 64);
  if (on)
    atomic_fetch_or(&marks[fd / 64], bit);
  else if (atomic_load_explicit(&marks[fd / 64], memory_order_relaxed) & bit)
    atomic_fetch_and(&marks[fd / 64], ~bit);
}

static bool marked(int fd) {
  return fd >= 0 && fd < MOST && atomic_load_explicit(&marks[fd / 64], memory_order_relaxed) >> (fd % 64) & 1;
}

// connected asks the kernel whether a descriptor is a connection to the daemon: the number may belong to another file by now.
static bool connected(int fd) {
  struct sockaddr_un peer = {0};
  socklen_t size = sizeof peer - 1;
  if (kernel(SYS_getpeername, fd, (long)&peer, (long)&size, 0) < 0 || peer.sun_family != AF_UNIX) return false;
  size_t length = strlen(peer.sun_path), tail = sizeof socket_name - 1;
  return length > tail && peer.sun_path[length - tail - 1] == '/' && !memcmp(peer.sun_path + length - tail, socket_name, tail);
}

static bool device(int fd) {
  if (__builtin_expect(!marked(fd), 1)) return false;
  if (connected(fd)) return true;
  mark(fd, false);
  return false;
}

// ---- Talking to the daemon ------------------------------------------------------------------------------------------

enum { OPEN = 1, WRITE, REGISTER, REGISTER2, UNREGISTER, ENABLE_PKEY };
enum { UMAD, ISSM };

enum { PATIENCE = 5000, FOREVER = -1 };  // milliseconds to wait for the daemon

static int64_t milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// wait_for polls until something happens or the time is over.
static int wait_for(struct pollfd *fds, unsigned count, int64_t deadline) {
  for (;;) {
    struct timespec left, *limit = NULL;
    if (deadline != FOREVER) {
      int64_t ms = deadline - milliseconds();
      if (ms < 0) ms = 0;
      left = (struct timespec){ms / 1000, ms % 1000 * 1000000};
      limit = &left;
    }
    long n = kernel(SYS_ppoll, (long)fds, count, (long)limit, 0);
    if (n != -EINTR) return (int)n;
  }
}

// ask makes a request and waits for its result. It returns 0 or an error number. value may be NULL.
static int ask(int fd, uint32_t op, const void *data, size_t size, uint32_t *value, int patience) {
  uint32_t prefix[4] = {0x6264616d, op, (uint32_t)size, 0};
  struct iovec parts[] = {{prefix, sizeof prefix}, {(void *)data, size}};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  int result = (int)kernel(SYS_eventfd2, 0, 02000000 /* EFD_CLOEXEC */, 0, 0);
  if (result < 0) return -result;
  control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.header), &result, sizeof result);
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
  int64_t deadline = patience == FOREVER ? FOREVER : milliseconds() + patience;
  int error = 0;
  for (;;) {
    long n = kernel(SYS_sendmsg, fd, (long)&message, MSG_NOSIGNAL | MSG_DONTWAIT, 0);
    if (n >= 0) break;
    struct pollfd room = {fd, POLLOUT, 0};
    if (n == -EINTR) continue;
    if (n == -EAGAIN && wait_for(&room, 1, deadline) > 0) continue;
    error = n == -EMSGSIZE ? EINVAL : n == -EFAULT ? EFAULT : EIO;
    break;
  }
  if (!error) {
    // No event is asked for on the connection, so only its end is reported.
    struct pollfd fds[] = {{result, POLLIN, 0}, {fd, 0, 0}};
    uint64_t outcome = 0;
    int n = wait_for(fds, 2, deadline);
    if (n > 0 && !(fds[0].revents & POLLIN)) {  // the daemon may have answered before it ended
      fds[0].revents = 0;
      wait_for(fds, 1, 0);
    }
    if (n <= 0 || !(fds[0].revents & POLLIN) || kernel(SYS_read, result, (long)&outcome, sizeof outcome, 0) != sizeof outcome)
      error = EIO;
    else {
      error = (int)(uint32_t)outcome - 1;
      if (value) *value = (uint32_t)(outcome >> 32);
    }
  }
  kernel_close(result);
  return error;
}

// reach connects to the daemon. It returns a descriptor or a negative error number.
static int reach(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  static const char run[] = "/run";
  int folder = -1;
  if (root_length + sizeof run + sizeof socket_name <= sizeof address.sun_path) {
    memcpy(address.sun_path, root, root_length);
    memcpy(address.sun_path + root_length, run, sizeof run - 1);
    address.sun_path[root_length + sizeof run - 1] = '/';
    memcpy(address.sun_path + root_length + sizeof run, socket_name, sizeof socket_name);
  } else {
    // The path is too long for an address, so it begins at an open directory.
    char path[PATH_MAX + sizeof run];
    memcpy(path, root, root_length);
    memcpy(path + root_length, run, sizeof run);
    folder = kernel_open(path, O_PATH | O_DIRECTORY);
    if (folder < 0) return -ENXIO;
    char *p = stpcpy(address.sun_path, "/proc/self/fd/");
    for (int power = 1000000000; power; power /= 10)
      if (folder >= power || power == 1) *p++ = (char)('0' + folder / power % 10);
    *p++ = '/';
    memcpy(p, socket_name, sizeof socket_name);
  }
  int fd = (int)kernel(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
  long result = fd;
  int64_t deadline = milliseconds() + PATIENCE;
  while (fd >= 0 && (result = kernel(SYS_connect, fd, (long)&address, sizeof address, 0)) < 0) {
    if (result == -EAGAIN && milliseconds() < deadline) {  // more connect than the daemon has accepted yet
      struct timespec pause = {0, 1000000};
      kernel(SYS_nanosleep, (long)&pause, 0, 0, 0);
    } else if (result != -EINTR) {
      break;
    }
  }
  if (folder >= 0) kernel_close(folder);
  if (result >= 0) return fd;
  if (fd >= 0) kernel_close(fd);
  return result == -EMFILE || result == -ENFILE ? (int)result : result == -EAGAIN ? -EIO : -ENXIO;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

// number_after reads the device's number, of one to three digits, at the end of a name.
static int number_after(const char *name) {
  int n = 0, digits = 0;
  for (; *name >= '0' && *name <= '9' && digits < 4; name++, digits++) n = n * 10 + *name - '0';
  return *name || !digits || digits > 3 ? -1 : n;
}

// which says what device a file of the staged tree stands for. It returns the number, or -1.
static int which(int fd, int *kind) {
  static const char folder[] = "/dev/infiniband/";
  char path[PATH_MAX];
  if (kernel_fd_path(fd, path, sizeof path) < 0) return -1;
  char *name = path;
  bool staged = root_length && !strncmp(path, root, root_length) && path[root_length] == '/';
  if (staged) name += root_length;
  if (strncmp(name, folder, sizeof folder - 1)) return -1;
  name += sizeof folder - 1;
  if (!strncmp(name, "umad", 4))
    *kind = UMAD;
  else if (!strncmp(name, "issm", 4))
    *kind = ISSM;
  else
    return -1;
  struct stat st;
  enum { INFINIBAND_MAD = 231 };  // the major number of the kernel's own devices
  if (!staged && (kernel_stat(fd, "", &st, AT_EMPTY_PATH) < 0 || (S_ISCHR(st.st_mode) && major(st.st_rdev) == INFINIBAND_MAD)))
    return -1;
  return number_after(name + 4);
}

// settle_open puts a connection in the place of a descriptor, if that is for a device. It returns the descriptor or -1.
static __attribute__((noinline)) int settle_open(int fd, int flags) {
  int kind, number = which(fd, &kind), kept = errno;
  if (number < 0) return fd;
  bool waits = !(flags & O_NONBLOCK);
  uint32_t request[] = {(uint32_t)kind, (uint32_t)number, waits ? 0 : 1};
  int link = reach(), error = link < 0 ? -link : fd >= MOST ? EMFILE : 0;
  if (!error) error = ask(link, OPEN, request, sizeof request, NULL, kind == ISSM && waits ? FOREVER : PATIENCE);
  if (!error && waits) error = (int)-kernel(SYS_fcntl, link, F_SETFL, O_RDWR, 0);
  if (!error) {
    long moved;
    do moved = kernel(SYS_dup3, link, fd, flags & O_CLOEXEC, 0);
    while (moved == -EBUSY || moved == -EINTR);
    if (moved < 0) error = (int)-moved;
  }
  if (link >= 0) kernel_close(link);
  if (error) {
    kernel_close(fd);
    errno = error;
    return -1;
  }
  mark(fd, true);
  errno = kept;
  return fd;
}

static __attribute__((noinline)) void start(void);

static inline bool full(void) {
  int m = atomic_load_explicit(&mode, memory_order_acquire);
  if (__builtin_expect(m == UNKNOWN, 0)) {
    start();
    m = atomic_load_explicit(&mode, memory_order_acquire);
  }
  return m == FULL;
}

// may_be says whether an open can have led to a device: its path has such a name in it, as links to devices have too.
static inline bool may_be(int fd, const char *path) {
  return fd >= 0 && full() && (strstr(path, "umad") || strstr(path, "issm"));
}

INTERPOSE(int, openat, (int dirfd, const char *path, int flags, mode_t permissions))

// open_socket opens a device for which a socket stands in the tree. The kernel refuses to open a socket by ENXIO, but opens it
// by O_PATH, which is enough to tell what it is.
static __attribute__((noinline)) int open_socket(int dirfd, const char *path, int flags) {
  int fd = NEXT(openat)(dirfd, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW), 0), kind;
  if (fd >= 0 && which(fd, &kind) >= 0) return settle_open(fd, flags);
  if (fd >= 0) kernel_close(fd);
  errno = ENXIO;
  return -1;
}

#define OPENS(name, parameters, arguments, dirfd)                                                       \
  int my_##name parameters {                                                                            \
    int fd = NEXT(name) arguments;                                                                      \
    if (__builtin_expect(fd < 0 && errno == ENXIO, 0) && full()) return open_socket(dirfd, path, flags); \
    return may_be(fd, path) && !(flags & O_PATH) ? settle_open(fd, flags) : fd;                         \
  }

OPENS(openat, (int dirfd, const char *path, int flags, mode_t permissions), (dirfd, path, flags, permissions), dirfd)
ALSO(openat64, openat)
INTERPOSE(int, open, (const char *path, int flags, mode_t permissions))
OPENS(open, (const char *path, int flags, mode_t permissions), (path, flags, permissions), AT_FDCWD)
ALSO(open64, open)
ALSO(__open, open)
ALSO(__open64, open)
INTERPOSE(int, __open_2, (const char *path, int flags))
OPENS(__open_2, (const char *path, int flags), (path, flags), AT_FDCWD)
ALSO(__open64_2, __open_2)
INTERPOSE(int, __openat_2, (int dirfd, const char *path, int flags))
OPENS(__openat_2, (int dirfd, const char *path, int flags), (dirfd, path, flags), dirfd)
ALSO(__openat64_2, __openat_2)

// ---- Reading --------------------------------------------------------------------------------------------------------

enum { HEADER = 64, SEGMENT = 256 };

// receive is recvmsg, and tells of a file that came with the message. It returns the message's length, which may be more
// than there was room for, or a negative error number.
static long receive(int fd, void *buffer, size_t size, int flags, int *file) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec part = {buffer, size};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  long n = kernel(SYS_recvmsg, fd, (long)&message, flags | MSG_TRUNC | MSG_CMSG_CLOEXEC, 0);
  *file = -1;
  if (n >= 0 && message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.header.cmsg_type == SCM_RIGHTS)
    memcpy(file, CMSG_DATA(&control.header), sizeof *file);
  return n;
}

// read_file copies a long message, which came as a file.
static long read_file(int file, char *buffer, size_t size) {
  size_t done = 0;
  while (done < size) {
    long n = kernel(SYS_pread64, file, (long)(buffer + done), (long)(size - done), (long)done);
    if (n == -EINTR) continue;
    if (n <= 0) return n ? n : -EIO;
    done += (size_t)n;
  }
  return (long)size;
}

static __attribute__((noinline)) ssize_t read_device(int fd, void *buffer, size_t size) {
  // The message is looked at first: if there is no room for it, it stays.
  int file;
  long n = receive(fd, buffer, size, MSG_PEEK, &file);
  uint32_t length = 0;
  if (n >= HEADER && size >= HEADER) memcpy(&length, (char *)buffer + 16, sizeof length);
  size_t total = file >= 0 ? length : n > 0 ? (size_t)n : 0;
  if (file >= 0) kernel_close(file);
  if (n == 0) n = -EIO;  // the daemon has gone; it sends no empty messages
  if (n > 0 && size < total) {
    n = total > HEADER + SEGMENT && size >= HEADER + SEGMENT ? -ENOSPC : -EINVAL;
  } else if (n > 0) {
    n = receive(fd, buffer, size, 0, &file);
    if (n == 0 || n > (long)size) n = -EIO;  // another thread took the message that was looked at
    if (n > 0 && file >= 0) {
      memcpy(&length, (char *)buffer + 16, sizeof length);
      n = length <= size ? read_file(file, buffer, length) : -EIO;
    }
    if (file >= 0) kernel_close(file);
  }
  if (n >= 0) return n;
  errno = n == -ECONNRESET || n == -ENOTCONN || n == -EPIPE ? EIO : (int)-n;
  return -1;
}

INTERPOSE(ssize_t, read, (int fd, void *buffer, size_t size))
ssize_t my_read(int fd, void *buffer, size_t size) {
  return device(fd) ? read_device(fd, buffer, size) : NEXT(read)(fd, buffer, size);
}
ALSO(__read, read)

void __chk_fail(void) __attribute__((noreturn));

INTERPOSE(ssize_t, __read_chk, (int fd, void *buffer, size_t size, size_t room))
ssize_t my___read_chk(int fd, void *buffer, size_t size, size_t room) {
  if (size > room) __chk_fail();
  return my_read(fd, buffer, size);
}

// ---- Writing and ioctls ----------------------------------------------------------------------------------------------

static __attribute__((noinline)) ssize_t write_device(int fd, const void *buffer, size_t size) {
  enum { LARGEST = 1 << 16 };
  int error = size > LARGEST ? EINVAL : ask(fd, WRITE, buffer, size, NULL, PATIENCE);
  if (!error) return (ssize_t)size;
  errno = error;
  return -1;
}

INTERPOSE(ssize_t, write, (int fd, const void *buffer, size_t size))
ssize_t my_write(int fd, const void *buffer, size_t size) {
  return device(fd) ? write_device(fd, buffer, size) : NEXT(write)(fd, buffer, size);
}
ALSO(__write, write)

// Requests of <rdma/ib_user_mad.h>, and the sizes and places in what they point to.
#define REQUEST_REGISTER 0xc01c1b01ul
#define REQUEST_UNREGISTER 0x40041b02ul
#define REQUEST_ENABLE_PKEY 0x1b03ul
#define REQUEST_REGISTER2 0xc0281b04ul

static __attribute__((noinline)) int ioctl_device(int fd, unsigned long request, void *argument) {
  uint32_t value = 0;
  int error;
  switch (request) {
    case REQUEST_REGISTER:
    case REQUEST_REGISTER2: {
      bool second = request == REQUEST_REGISTER2;
      size_t size = second ? 40 : 28, flags = 12;  // of the whole, and where the flags are
      error = argument ? ask(fd, second ? REGISTER2 : REGISTER, argument, size, &value, PATIENCE) : EFAULT;
      if (!error) memcpy(argument, &value, sizeof value);  // the agent's id comes first
      if (error == EINVAL && second && value) memcpy((char *)argument + flags, &value, sizeof value);
      break;
    }
    case REQUEST_UNREGISTER:
      error = argument ? ask(fd, UNREGISTER, argument, sizeof(uint32_t), NULL, PATIENCE) : EFAULT;
      break;
    case REQUEST_ENABLE_PKEY:
      error = ask(fd, ENABLE_PKEY, NULL, 0, NULL, PATIENCE);
      break;
    default:
      error = ENOTTY;
  }
  if (!error) return 0;
  errno = error;
  return -1;
}

INTERPOSE(int, ioctl, (int fd, unsigned long request, void *argument))
int my_ioctl(int fd, unsigned long request, void *argument) {
  return device(fd) ? ioctl_device(fd, (uint32_t)request, argument) : NEXT(ioctl)(fd, request, argument);
}

// ---- Copies of descriptors -------------------------------------------------------------------------------------------

INTERPOSE(int, close, (int fd))
int my_close(int fd) {
  mark(fd, false);
  return NEXT(close)(fd);
}
ALSO(__close, close)

// copied passes a mark on to a copy.
static int copied(int from, int to) {
  if (to >= 0 && from != to) mark(to, marked(from));
  return to;
}

INTERPOSE(int, dup, (int fd))
int my_dup(int fd) { return copied(fd, NEXT(dup)(fd)); }

INTERPOSE(int, dup2, (int from, int to))
int my_dup2(int from, int to) { return copied(from, NEXT(dup2)(from, to)); }
ALSO(__dup2, dup2)

INTERPOSE(int, dup3, (int from, int to, int flags))
int my_dup3(int from, int to, int flags) { return copied(from, NEXT(dup3)(from, to, flags)); }

INTERPOSE(int, fcntl, (int fd, int command, void *argument))
int my_fcntl(int fd, int command, void *argument) {
  int result = NEXT(fcntl)(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, result) : result;
}
ALSO(fcntl64, fcntl)
ALSO(__fcntl, fcntl)

// ---- Starting ---------------------------------------------------------------------------------------------------------

// adopt marks the devices that the program that ran before an exec has left open.
static void adopt(void) {
  enum { FEW = 64 };  // descriptors that are looked at; an exec seldom leaves more
  for (int fd = 3; fd < FEW; fd++)
    if (connected(fd)) mark(fd, true);
}

static bool set_root(const char *value) {
  int fd = kernel_open(value, O_PATH | O_DIRECTORY);
  if (fd < 0) return false;
  ssize_t n = kernel_fd_path(fd, root, sizeof root - 64);
  kernel_close(fd);
  for (; n > 0 && root[n - 1] == '/'; n--) root[n - 1] = '\0';
  root_length = n > 0 ? (size_t)n : 0;
  return n > 0;
}

static void start(void) {
  static _Atomic bool once;
  if (atomic_exchange(&once, true)) return;
  const char *wanted = secure_getenv("MOCK_IB"), *where = secure_getenv("MOCK_IB_ROOT");
  bool on = wanted && !strcasecmp(wanted, "full") && set_root(where && *where ? where : default_root);
  for (const struct slot *s = __start_slots; s < __stop_slots; s++) find(s);
  if (on) adopt();
  atomic_store(&mode, on ? FULL : OFF);
}

__attribute__((constructor)) static void load(void) { start(); }
