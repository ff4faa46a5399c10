// libibmockumad.so makes /dev/infiniband/umadN and issmN of a staged tree work. With MOCK_IB=full an open of one connects to
// the daemon mock-ib, at MOCK_IB_ROOT/run/mock-ib.sock, and the descriptor that the program gets is that connection: poll,
// select, dup, fork and close-on-exec are the kernel's own.
//
// Each message that the daemon sends is what one read returns. What the program writes, and its ioctls, go to the daemon as
// requests, each with an eventfd that takes the result. So results cannot be mistaken for MADs or for one another, whichever
// threads and processes share the descriptor.
//
// A daemon that is dead or does not answer gives EIO. Then the connection is shut, so that whoever waits for an answer wakes.
// Requests without an answer come back as timed out first, as they do from a kernel whose subnet is gone: libibnetdisc, which
// most tools use, frees memory twice if a read or a write of its own fails. A program that waits does not notice by itself that
// the daemon stands still, so poll, select, epoll and reading ask it now and then.
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
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/select.h>
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

// set is a set of descriptors.
typedef _Atomic uint64_t set[MOST / 64];

static set marks;          // devices
static set epolls;         // descriptors of epoll that wait for devices
static _Atomic bool ever;  // something was marked

static bool has(set in, int fd) {
  return fd >= 0 && fd < MOST && atomic_load_explicit(&in[fd / 64], memory_order_relaxed) >> (fd % 64) & 1;
}

static void put(set in, int fd, bool on) {
  if (fd < 0 || fd >= MOST) return;
  uint64_t bit = 1ull << (fd % 64);
  if (on) {
    atomic_fetch_or(&in[fd / 64], bit);
    atomic_store_explicit(&ever, true, memory_order_relaxed);
  } else if (has(in, fd))
    atomic_fetch_and(&in[fd / 64], ~bit);
}

static _Atomic int marked_below;  // no device has this number or a higher one

static void mark(int fd, bool on) {
  put(marks, fd, on);
  int top = atomic_load_explicit(&marked_below, memory_order_relaxed);
  while (on && fd < MOST && fd >= top && !atomic_compare_exchange_weak(&marked_below, &top, fd + 1)) {
  }
}

static bool marked(int fd) { return has(marks, fd); }

// awaited says whether a descriptor is a device, or one of epoll that waits for some.
static bool awaited(int fd) { return marked(fd) || has(epolls, fd); }

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

enum { OPEN = 1, WRITE, REGISTER, REGISTER2, UNREGISTER, ENABLE_PKEY, ALIVE };
enum { UMAD, ISSM };

enum { PATIENCE = 5000, FOREVER = -1 };  // milliseconds to wait for the daemon

static int64_t milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// A deadline for the daemon. A machine that has no time for this process has none for the daemon either, so what this process wakes
// up too late moves the deadline, up to a last one.
struct deadline {
  int64_t at, last;
};

enum { STEP = 10, MOST_PATIENCE = 60000 };  // milliseconds after which is looked how late the machine is, and in all

static struct deadline within(int64_t ms) {
  if (ms == FOREVER) return (struct deadline){FOREVER, FOREVER};
  int64_t now = milliseconds();
  return (struct deadline){now + ms, now + (ms ? MOST_PATIENCE : 0)};
}

// wait_for polls until something happens or the time is over.
static int wait_for(struct pollfd *fds, unsigned count, struct deadline *deadline) {
  for (;;) {
    struct timespec left, *limit = NULL;
    int64_t began = 0, ms = 0;
    if (deadline->at != FOREVER) {
      began = milliseconds();
      ms = deadline->at - began;
      ms = ms < 0 ? 0 : ms < STEP ? ms : STEP;
      left = (struct timespec){0, ms * 1000000};
      limit = &left;
    }
    long n = kernel(SYS_ppoll, (long)fds, count, (long)limit, 0);
    if (n && n != -EINTR) return (int)n;
    if (!limit) continue;
    int64_t now = milliseconds(), late = now - began - ms;
    if (late > 2) deadline->at += late;
    if (deadline->at > deadline->last) deadline->at = deadline->last;
    if (now >= deadline->at) return 0;
  }
}

static bool keep(int fd, const char *text, size_t size);

// post sends a request, and sets result to an eventfd that takes what comes of it. It returns 0 or an error number; then there is
// no eventfd.
static int post(int fd, uint32_t op, const void *data, size_t size, struct deadline *deadline, int *result) {
  uint32_t prefix[4] = {0x6264616d, op, (uint32_t)size, 0};
  struct iovec parts[] = {{prefix, sizeof prefix}, {(void *)data, size}};
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {0};
  *result = (int)kernel(SYS_eventfd2, 0, 02000000 /* EFD_CLOEXEC */, 0, 0);
  if (*result < 0) return -*result;
  control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.header), result, sizeof *result);
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
  for (;;) {
    long n = kernel(SYS_sendmsg, fd, (long)&message, MSG_NOSIGNAL | MSG_DONTWAIT, 0);
    if (n >= 0) return 0;
    struct pollfd room = {fd, POLLOUT, 0};
    if (n == -EINTR) continue;
    if (n == -EAGAIN && wait_for(&room, 1, deadline) > 0) continue;
    kernel_close(*result);
    return n == -EMSGSIZE ? EINVAL : n == -EFAULT ? EFAULT : EIO;
  }
}

// outcome waits for the result of a request that was posted. It returns 0 or an error number. value may be NULL.
static int outcome(int fd, int result, struct deadline *deadline, uint32_t *value) {
  // No event is asked for on the connection, so only its end is reported.
  struct pollfd fds[] = {{result, POLLIN, 0}, {fd, 0, 0}};
  uint64_t number = 0;
  int n = wait_for(fds, 2, deadline), error = EIO;
  if (n > 0 && !(fds[0].revents & POLLIN)) {  // the daemon may have answered before it ended
    struct deadline now = within(0);
    fds[0].revents = 0;
    wait_for(fds, 1, &now);
  }
  if (n > 0 && fds[0].revents & POLLIN && kernel(SYS_read, result, (long)&number, sizeof number, 0) == sizeof number) {
    error = (int)(uint32_t)number - 1;
    if (value) *value = (uint32_t)(number >> 32);
  }
  kernel_close(result);
  return error;
}

// ask makes a request and waits for its result. It returns 0 or an error number. value may be NULL. So may kept, which is told
// whether the data is a datagram that awaits an answer.
static int ask_keeping(int fd, uint32_t op, const void *data, size_t size, uint32_t *value, int patience, bool *kept) {
  struct deadline deadline = within(patience);
  int result, error = post(fd, op, data, size, &deadline, &result);
  if (kept && (!error || error == EIO)) *kept = keep(fd, data, size);
  return error ? error : outcome(fd, result, &deadline, value);
}

static int ask(int fd, uint32_t op, const void *data, size_t size, uint32_t *value, int patience) {
  return ask_keeping(fd, op, data, size, value, patience, NULL);
}

// lost shuts the connection to a daemon that is dead or stands still. What has arrived can still be read.
static void lost(int fd) { kernel(SYS_shutdown, fd, SHUT_RDWR, 0, 0); }

enum { NUMBERED = 1 << 16 };

// checks has, for each descriptor below NUMBERED, when the daemon has last answered on it, in milliseconds plus one.
static _Atomic uint32_t checks[NUMBERED];

static void checked(int fd) {
  if (fd >= 0 && fd < NUMBERED) atomic_store_explicit(&checks[fd], (uint32_t)milliseconds() + 1, memory_order_relaxed);
}

enum { TOGETHER = 64 };

// check shuts the connections on which the daemon does not answer. All are asked before any answer is awaited, so that many take no
// longer than one. There are no more than TOGETHER.
static void check(const int *fds, int count) {
  int results[TOGETHER];
  struct deadline deadline = within(PATIENCE);
  for (int i = 0; i < count; i++) {
    int error = post(fds[i], ALIVE, NULL, 0, &deadline, &results[i]);
    if (error) results[i] = -1;
    if (error == EIO) lost(fds[i]);
  }
  for (int i = 0; i < count; i++) {
    if (results[i] >= 0 && outcome(fds[i], results[i], &deadline, NULL) == EIO) lost(fds[i]);
    checked(fds[i]);
  }
}

enum { OFTEN = 1000, SILENCE = 3000 };  // milliseconds after which a program that waits, or looks again and again, has the daemon checked

// overdue says whether the daemon is to be checked on a device on which nothing has arrived. A program may look again and again
// without ever waiting for long, and it would not notice that the daemon stands still.
static bool overdue(int fd) {
  if (fd < 0 || fd >= NUMBERED) return false;
  uint32_t last = atomic_load_explicit(&checks[fd], memory_order_relaxed);
  if (last && (uint32_t)milliseconds() + 1 - last < SILENCE) return false;
  if (!last) checked(fd);
  return last;
}

// slice is how long to wait until the next check: the rest of the time, or less.
static int slice(int64_t deadline) {
  if (deadline == FOREVER) return OFTEN;
  int64_t left = deadline - milliseconds();
  return left < 0 ? 0 : left < OFTEN ? (int)left : OFTEN;
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
  int naps = 0;  // of a millisecond
  while (fd >= 0 && (result = kernel(SYS_connect, fd, (long)&address, sizeof address, 0)) < 0) {
    if (result == -EAGAIN && naps++ < PATIENCE) {  // more connect than the daemon has accepted yet
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

// ---- Requests without an answer -----------------------------------------------------------------------------------------

enum { HEADER = 64, HEADER_SMALL = 56, MAD_HEADER = 24, SEGMENT = 256 };
enum { KEPT = 1024 };

// connections has, for each descriptor below NUMBERED, the number of its connection, times two, plus one after ENABLE_PKEY.
// Copies of a descriptor have the same number.
static _Atomic uint32_t connections[NUMBERED];

static uint32_t connection_of(int fd) { return fd >= 0 && fd < NUMBERED ? atomic_load_explicit(&connections[fd], memory_order_relaxed) : 0; }

static void number_connection(int fd) {
  static _Atomic uint32_t last;
  if (fd >= 0 && fd < NUMBERED) atomic_store_explicit(&connections[fd], (atomic_fetch_add(&last, 1) + 1) * 2, memory_order_relaxed);
}

// kept are requests without an answer yet. If there are too many, the oldest make room.
static struct kept {
  uint32_t connection;  // without the last bit; 0: not in use
  uint32_t size;
  char text[HEADER + MAD_HEADER];
} kept[KEPT];
static unsigned kept_next, kept_top;  // the place to look for room at, and one more than the highest that was ever used
static _Atomic bool kept_busy;

// hold locks kept. It gives up if a thread held it when the process forked; then requests are not kept.
static bool hold(void) {
  for (int i = 0; i < 10000; i++) {
    if (!atomic_exchange_explicit(&kept_busy, true, memory_order_acquire)) return true;
    kernel(SYS_sched_yield, 0, 0, 0, 0);
  }
  return false;
}

static void release(void) { atomic_store_explicit(&kept_busy, false, memory_order_release); }

static size_t header_size(uint32_t connection) { return connection & 1 ? HEADER : HEADER_SMALL; }

// keep keeps a request that the program writes, if it awaits an answer: it says how long. It returns whether it does.
static bool keep(int fd, const char *text, size_t size) {
  uint32_t connection = connection_of(fd), timeout;
  size_t header = header_size(connection);
  if (!connection || size < header + MAD_HEADER || size > header + SEGMENT) return false;
  memcpy(&timeout, text + 8, sizeof timeout);
  if (!timeout || text[header + 3] & 0x80 || !hold()) return false;
  unsigned place = 0;
  while (place < kept_top && kept[place].connection) place++;
  if (place == KEPT) place = kept_next++ % KEPT;
  if (place >= kept_top) kept_top = place + 1;
  kept[place] = (struct kept){connection & ~1u, (uint32_t)(header + MAD_HEADER), {0}};
  memcpy(kept[place].text, text, header + MAD_HEADER);
  release();
  return true;
}

// drop forgets the request that a message answers: the one of the same agent, class and lower half of the transaction id.
static void drop(int fd, const char *text, size_t size) {
  uint32_t connection = connection_of(fd);
  size_t header = header_size(connection);
  if (!connection || size < header + MAD_HEADER || !hold()) return;
  for (unsigned i = 0; i < kept_top; i++) {
    const struct kept *k = &kept[i];
    if (k->connection == (connection & ~1u) && !memcmp(k->text, text, 4) && k->text[header + 1] == text[header + 1] &&
        !memcmp(k->text + header + 12, text + header + 12, 4)) {
      kept[i].connection = 0;
      break;
    }
  }
  release();
}

// drop_agent forgets the requests of an agent.
static void drop_agent(int fd, const uint32_t *agent) {
  uint32_t connection = connection_of(fd);
  if (!connection || !hold()) return;
  for (unsigned i = 0; i < kept_top; i++)
    if (kept[i].connection == (connection & ~1u) && !memcmp(kept[i].text, agent, 4)) kept[i].connection = 0;
  release();
}

// timed_out hands back a request that nobody will answer. It returns the length, or a negative error number: -EIO if there is
// none.
static long timed_out(int fd, char *buffer, size_t size) {
  uint32_t connection = connection_of(fd), status = ETIMEDOUT;
  long n = -EIO;
  if (!connection || !hold()) return n;
  for (unsigned i = 0; i < kept_top && n == -EIO; i++) {
    struct kept *k = &kept[i];
    if (k->connection != (connection & ~1u)) continue;
    if (size < k->size) {
      n = -EINVAL;
      break;
    }
    memcpy(buffer, k->text, k->size);
    memcpy(buffer + 4, &status, sizeof status);
    memcpy(buffer + 16, &k->size, sizeof k->size);
    n = k->size;
    k->connection = 0;
  }
  release();
  return n;
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
  int kind, number = which(fd, &kind), before = errno;
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
  put(epolls, fd, false);
  number_connection(fd);
  checked(fd);
  errno = before;
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

// wait_readable waits for a message or the daemon's end, as a read of a descriptor without O_NONBLOCK does. It returns 0, or a
// negative error number.
static long wait_readable(int fd) {
  long flags = kernel(SYS_fcntl, fd, F_GETFL, 0, 0);
  if (flags < 0) return flags;
  if (flags & O_NONBLOCK) {
    if (overdue(fd)) check(&fd, 1);
    return -EAGAIN;
  }
  for (;;) {
    struct pollfd readable = {fd, POLLIN, 0};
    struct timespec limit = {OFTEN / 1000, OFTEN % 1000 * 1000000};
    long n = kernel(SYS_ppoll, (long)&readable, 1, (long)&limit, 0);
    if (n) return n < 0 ? n : 0;
    check(&fd, 1);
  }
}

// gone says whether the connection has ended.
static bool gone(int fd) {
  struct pollfd end = {fd, 0, 0};
  struct timespec now = {0, 0};
  return kernel(SYS_ppoll, (long)&end, 1, (long)&now, 0) == 1;
}

static __attribute__((noinline)) ssize_t read_device(int fd, void *buffer, size_t size) {
  // The message is looked at first: if there is no room for it, it stays.
  int file;
  long n;
  // A daemon that ends without having read all that was written gives ECONNRESET, once and before the messages that it has sent.
  while ((n = receive(fd, buffer, size, MSG_PEEK | MSG_DONTWAIT, &file)) == -EAGAIN || n == -ECONNRESET)
    if (n == -EAGAIN && (n = wait_readable(fd)) < 0) break;
  uint32_t length = 0;
  if (n >= HEADER && size >= HEADER) memcpy(&length, (char *)buffer + 16, sizeof length);
  size_t total = file >= 0 ? length : n > 0 ? (size_t)n : 0;
  if (file >= 0) kernel_close(file);
  if (n == 0) n = -EIO;  // the daemon has gone; it sends no empty messages
  if (n > 0 && size < total) {
    n = total > HEADER + SEGMENT && size >= HEADER + SEGMENT ? -ENOSPC : -EINVAL;
  } else if (n > 0) {
    n = receive(fd, buffer, size, MSG_DONTWAIT, &file);
    if (n == 0 || n > (long)size) n = -EIO;  // another thread took the message that was looked at
    if (n > 0 && file >= 0) {
      memcpy(&length, (char *)buffer + 16, sizeof length);
      n = length <= size ? read_file(file, buffer, length) : -EIO;
    }
    if (file >= 0) kernel_close(file);
  }
  if (n >= 0) {
    drop(fd, buffer, (size_t)n);
    return n;
  }
  if (n == -ECONNRESET || n == -ENOTCONN || n == -EPIPE) n = -EIO;
  if (n == -EIO && gone(fd)) n = timed_out(fd, buffer, size);
  if (n >= 0) return n;
  errno = (int)-n;
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
  bool awaits = false;
  int error = size > LARGEST ? EINVAL : ask_keeping(fd, WRITE, buffer, size, NULL, PATIENCE, &awaits);
  if (error == EIO) lost(fd);
  if (!error || (error == EIO && awaits)) return (ssize_t)size;
  if (awaits) drop(fd, buffer, size);
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
      if (!error) drop_agent(fd, argument);
      break;
    case REQUEST_ENABLE_PKEY:
      error = ask(fd, ENABLE_PKEY, NULL, 0, NULL, PATIENCE);
      if (!error && connection_of(fd)) atomic_fetch_or(&connections[fd], 1);
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

// ---- Waiting ---------------------------------------------------------------------------------------------------------

// group gathers devices, to check them together.
struct group {
  int fds[TOGETHER], count;
  bool due;  // the daemon is to be checked
};

static void check_group(struct group *g) {
  int count = 0;
  for (int i = 0; g->due && i < g->count; i++)
    if (device(g->fds[i])) g->fds[count++] = g->fds[i];
  check(g->fds, count);
  g->count = 0;
}

// gather adds a descriptor if it is a device. One of epoll stands for all devices of the process.
static void gather(struct group *g, int fd) {
  if (marked(fd)) {
    g->due |= overdue(fd);
    g->fds[g->count++] = fd;
    if (g->count == TOGETHER) check_group(g);
  } else if (has(epolls, fd)) {
    int words = (atomic_load_explicit(&marked_below, memory_order_relaxed) + 63) / 64;
    for (int word = 0; word < words; word++)
      for (uint64_t bits = atomic_load_explicit(&marks[word], memory_order_relaxed); bits; bits &= bits - 1)
        gather(g, 64 * word + __builtin_ctzll(bits));
  }
}

// check_all checks the daemon on all devices among descriptors: now, or only if it has been silent for long on one of them.
static void check_all(const struct pollfd *fds, nfds_t count, bool now) {
  struct group g = {.count = 0, .due = now};
  for (nfds_t i = 0; i < count; i++) gather(&g, fds[i].fd);
  check_group(&g);
}

// long_wait says whether a wait is cut into slices, to check the daemon in between.
static bool long_wait(int64_t ms) { return ms > OFTEN; }

// valid says whether the kernel takes a time limit. Waits with others are left to it.
static bool valid(const struct timespec *limit) {
  return !limit || (limit->tv_sec >= 0 && limit->tv_nsec >= 0 && limit->tv_nsec < 1000000000);
}

// length says how long a time limit is, in milliseconds. FOREVER is for no limit, and for some centuries.
static int64_t length(const struct timespec *limit) {
  return !limit || limit->tv_sec >= 1ll << 34 ? FOREVER : limit->tv_sec * 1000 + (limit->tv_nsec + 999999) / 1000000;
}

static int64_t deadline_after(int64_t ms) { return ms == FOREVER ? FOREVER : milliseconds() + ms; }

static bool any_awaited(const struct pollfd *fds, nfds_t count) {
  if (__builtin_expect(!atomic_load_explicit(&ever, memory_order_relaxed), 1)) return false;
  for (nfds_t i = 0; i < count; i++)
    if (__builtin_expect(awaited(fds[i].fd), 0)) return true;
  return false;
}

INTERPOSE(int, ppoll, (struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask))

// patient_poll is ppoll for devices. A long wait is cut into slices, after each of which the daemon is
// checked.
static __attribute__((noinline)) int patient_poll(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask) {
  int64_t ms = length(limit), deadline = deadline_after(ms);
  if (!valid(limit) || (ms != FOREVER && !long_wait(ms))) {
    int n = NEXT(ppoll)(fds, count, limit, mask);
    if (!n) check_all(fds, count, false);
    return n;
  }
  for (;;) {
    ms = slice(deadline);
    struct timespec part = {ms / 1000, ms % 1000 * 1000000};
    int n = NEXT(ppoll)(fds, count, &part, mask);
    if (n || (deadline != FOREVER && milliseconds() >= deadline)) return n;
    check_all(fds, count, true);
  }
}

int my_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask) {
  if (__builtin_expect(any_awaited(fds, count), 0)) return patient_poll(fds, count, limit, mask);
  return NEXT(ppoll)(fds, count, limit, mask);
}

INTERPOSE(int, __ppoll_chk, (struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask, size_t room))
int my___ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *limit, const sigset_t *mask, size_t room) {
  if (room / sizeof *fds < count) __chk_fail();
  return my_ppoll(fds, count, limit, mask);
}

INTERPOSE(int, poll, (struct pollfd *fds, nfds_t count, int timeout))
int my_poll(struct pollfd *fds, nfds_t count, int timeout) {
  if (__builtin_expect(!any_awaited(fds, count), 1)) return NEXT(poll)(fds, count, timeout);
  struct timespec limit = {timeout / 1000, timeout % 1000 * 1000000};
  return patient_poll(fds, count, timeout < 0 ? NULL : &limit, NULL);
}
ALSO(__poll, poll)

INTERPOSE(int, __poll_chk, (struct pollfd *fds, nfds_t count, int timeout, size_t room))
int my___poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof *fds < count) __chk_fail();
  return my_poll(fds, count, timeout);
}

static bool any_selected(int count, const fd_set *reads) {
  if (__builtin_expect(!atomic_load_explicit(&ever, memory_order_relaxed), 1) || !reads || count > FD_SETSIZE) return false;
  for (int fd = 0; fd < count; fd++)
    if (FD_ISSET(fd, reads) && awaited(fd)) return true;
  return false;
}

INTERPOSE(int, pselect, (int count, fd_set *reads, fd_set *writes, fd_set *others, const struct timespec *limit, const sigset_t *mask))

// patient_select is pselect for devices, as patient_poll is ppoll. It sets left to the rest of the time.
static __attribute__((noinline)) int patient_select(int count, fd_set *reads, fd_set *writes, fd_set *others, const struct timespec *limit,
                                                    const sigset_t *mask, struct timespec *left) {
  int64_t ms = length(limit), deadline = deadline_after(ms);
  bool short_wait = !valid(limit) || (ms != FOREVER && !long_wait(ms));
  fd_set *sets[] = {reads, writes, others}, wanted[3];
  for (int i = 0; i < 3; i++)
    if (sets[i]) wanted[i] = *sets[i];
  for (;;) {
    ms = slice(deadline);
    struct timespec part = {ms / 1000, ms % 1000 * 1000000};
    int n = NEXT(pselect)(count, reads, writes, others, short_wait ? limit : &part, mask);
    int64_t rest = deadline == FOREVER ? 0 : deadline - milliseconds();
    bool over = n || short_wait || (deadline != FOREVER && rest <= 0);
    if (!n && (short_wait || !over)) {
      struct group g = {.count = 0, .due = !short_wait};
      for (int fd = 0; fd < count; fd++)
        if (FD_ISSET(fd, &wanted[0])) gather(&g, fd);
      check_group(&g);
    }
    if (over) {
      *left = rest > 0 ? (struct timespec){rest / 1000, rest % 1000 * 1000000} : (struct timespec){0, 0};
      return n;
    }
    for (int i = 0; i < 3; i++)
      if (sets[i]) *sets[i] = wanted[i];
  }
}

int my_pselect(int count, fd_set *reads, fd_set *writes, fd_set *others, const struct timespec *limit, const sigset_t *mask) {
  struct timespec left;
  if (__builtin_expect(any_selected(count, reads), 0)) return patient_select(count, reads, writes, others, limit, mask, &left);
  return NEXT(pselect)(count, reads, writes, others, limit, mask);
}

INTERPOSE(int, select, (int count, fd_set *reads, fd_set *writes, fd_set *others, struct timeval *limit))
int my_select(int count, fd_set *reads, fd_set *writes, fd_set *others, struct timeval *limit) {
  if (__builtin_expect(!any_selected(count, reads), 1) || (limit && (limit->tv_sec < 0 || limit->tv_usec < 0)))
    return NEXT(select)(count, reads, writes, others, limit);
  struct timespec time, left;
  if (limit) time = (struct timespec){limit->tv_sec + limit->tv_usec / 1000000, limit->tv_usec % 1000000 * 1000};
  int n = patient_select(count, reads, writes, others, limit ? &time : NULL, NULL, &left);
  if (limit) *limit = (struct timeval){left.tv_sec, left.tv_nsec / 1000};  // Linux leaves the rest of the time there, after an error too
  return n;
}
ALSO(__select, select)

// What waits by epoll for a device is remembered, and so is what waits for that.
INTERPOSE(int, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event))
int my_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
  int result = NEXT(epoll_ctl)(epoll, operation, fd, event);
  if (!result && operation == EPOLL_CTL_ADD && __builtin_expect(awaited(fd), 0)) put(epolls, epoll, true);
  return result;
}

INTERPOSE(int, epoll_pwait, (int epoll, struct epoll_event *events, int count, int timeout, const sigset_t *mask))

// patient_epoll is epoll_pwait for devices, as patient_poll is ppoll.
static __attribute__((noinline)) int patient_epoll(int epoll, struct epoll_event *events, int count, int64_t ms, const sigset_t *mask) {
  int64_t deadline = deadline_after(ms);
  bool short_wait = ms != FOREVER && !long_wait(ms);
  struct pollfd one = {epoll, POLLIN, 0};
  for (;;) {
    int n = NEXT(epoll_pwait)(epoll, events, count, short_wait ? (int)ms : slice(deadline), mask);
    if (!n && short_wait) check_all(&one, 1, false);
    if (n || short_wait || (deadline != FOREVER && milliseconds() >= deadline)) return n;
    check_all(&one, 1, true);
  }
}

int my_epoll_pwait(int epoll, struct epoll_event *events, int count, int timeout, const sigset_t *mask) {
  if (__builtin_expect(has(epolls, epoll), 0)) return patient_epoll(epoll, events, count, timeout < 0 ? FOREVER : timeout, mask);
  return NEXT(epoll_pwait)(epoll, events, count, timeout, mask);
}

INTERPOSE(int, epoll_wait, (int epoll, struct epoll_event *events, int count, int timeout))
int my_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
  if (__builtin_expect(has(epolls, epoll), 0)) return patient_epoll(epoll, events, count, timeout < 0 ? FOREVER : timeout, NULL);
  return NEXT(epoll_wait)(epoll, events, count, timeout);
}

INTERPOSE(int, epoll_pwait2, (int epoll, struct epoll_event *events, int count, const struct timespec *limit, const sigset_t *mask))
int my_epoll_pwait2(int epoll, struct epoll_event *events, int count, const struct timespec *limit, const sigset_t *mask) {
  if (__builtin_expect(!NEXT(epoll_pwait2), 0)) {  // glibc has it since 2.35
    errno = ENOSYS;
    return -1;
  }
  if (__builtin_expect(!has(epolls, epoll), 1) || !valid(limit)) return NEXT(epoll_pwait2)(epoll, events, count, limit, mask);
  return patient_epoll(epoll, events, count, length(limit), mask);
}

// ---- Copies of descriptors -------------------------------------------------------------------------------------------

INTERPOSE(int, close, (int fd))
int my_close(int fd) {
  mark(fd, false);
  put(epolls, fd, false);
  return NEXT(close)(fd);
}
ALSO(__close, close)

// copied passes a mark on to a copy.
static int copied(int from, int to) {
  if (to >= 0 && from != to) {
    mark(to, marked(from));
    put(epolls, to, has(epolls, from));
    if ((unsigned)to < NUMBERED) atomic_store_explicit(&connections[to], marked(from) ? connection_of(from) : 0, memory_order_relaxed);
  }
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
    if (connected(fd)) {
      mark(fd, true);
      number_connection(fd);
      atomic_fetch_or(&connections[fd], 1);  // as libibumad leaves it
    }
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
