// The entry points. Without MOCK_IB each of them calls what it hides and does nothing else.

#include "verbs.h"

#include <dlfcn.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

struct slot {
  void **address;
  const char *name;
};

extern const struct slot __start_slots[], __stop_slots[];

// missing stands for a function that this version of libc does not have.
static long missing(void) {
  errno = ENOSYS;
  return -1;
}

static __attribute__((noinline)) void *find_now(const struct slot *slot) {
  void *address = dlsym(RTLD_NEXT, slot->name);
  if (!address) address = (void *)missing;
  __atomic_store_n(slot->address, address, __ATOMIC_RELEASE);
  return address;
}

static inline void *find(const struct slot *slot) {
  void *address = __atomic_load_n(slot->address, __ATOMIC_ACQUIRE);
  return __builtin_expect(address != NULL, 1) ? address : find_now(slot);
}

// load looks up all functions, because signal handlers may call ours and must not call dlsym.
__attribute__((constructor)) static void load(void) {
  for (const struct slot *s = __start_slots; s < __stop_slots; s++) find(s);
}

#define EXPORT __attribute__((visibility("default")))

// INTERPOSE declares my_NAME, whose symbol is NAME, and a slot for the function that it hides.
#define INTERPOSE(result, name, parameters)          \
  EXPORT result my_##name parameters __asm__(#name); \
  static void *next_##name;                          \
  static const struct slot slot_##name __attribute__((used, section("slots"))) = {&next_##name, #name};

#define NEXT(name) ((__typeof__(&my_##name))find(&slot_##name))

// ALSO gives my_NAME one more symbol.
#define ALSO(other, name) EXPORT extern __typeof__(my_##name) also_##other __asm__(#other) __attribute__((alias(#name)));

// ---- Opening -----------------------------------------------------------------------------------------------------------
// In a staged tree a socket stands for each device, which the kernel refuses to open with ENXIO. Only then is looked whether
// the path leads to a verbs device. So other calls take no longer, and all links and relative paths are the kernel's matter.

INTERPOSE(int, openat, (int dirfd, const char *path, int flags, mode_t mode))

// name_of writes the name in /dev/infiniband of the device of the tree that a descriptor is for; false if it is for none.
static bool name_of(int fd, char name[NAME]) {
  char path[PATH_MAX], folder[PATH_MAX];
  ssize_t n = kernel_fd_path(fd, path, sizeof path);
  int above = tree_path(folder, sizeof folder, "/dev/infiniband") ? kernel_open(folder, O_PATH | O_DIRECTORY) : -1;
  if (above < 0) return false;
  ssize_t length = kernel_fd_path(above, folder, sizeof folder);  // without links
  kernel_close(above);
  if (n <= 0 || length <= 0 || n <= length + 1 || n - length - 1 >= NAME || strncmp(path, folder, (size_t)length) || path[length] != '/')
    return false;
  memcpy(name, path + length + 1, (size_t)(n - length));
  return !strchr(name, '/');
}

// number_after is the number at the end of a name; -1 if the name does not begin as it should.
static int number_after(const char *name, const char *begins) {
  size_t length = strlen(begins);
  if (strncmp(name, begins, length) || !name[length]) return -1;
  int number = 0;
  for (const char *c = name + length; *c; c++) {
    if (*c < '0' || *c > '9' || number > 9999) return -1;
    number = 10 * number + *c - '0';
  }
  return number;
}

static __attribute__((noinline)) int settle_open(int dirfd, const char *path, int flags) {
  char name[NAME];
  if (tier() != IB_FULL || !path || flags & O_PATH) return -1;
  int link = NEXT(openat)(dirfd, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW), 0);
  int number = link >= 0 && name_of(link, name) ? number_after(name, "uverbs") : -1;
  if (link >= 0) kernel_close(link);
  int fd = number < 0 ? -ENXIO : uverbs_open(number, flags);
  if (fd >= 0) return fd;
  errno = -fd;
  return -1;
}

// in_table says that a GID table, in a folder that is the beginning of a path, has an entry with a number.
static __attribute__((noinline)) bool in_table(int dirfd, const char *path, size_t folder, const char *number) {
  static const char table[] = "/gids/";
  char entry[PATH_MAX];
  size_t digits = strlen(number);
  if (folder + sizeof table + digits > sizeof entry) return false;
  memcpy(entry, path, folder);
  memcpy(entry + folder, table, sizeof table - 1);
  memcpy(entry + folder + sizeof table - 1, number, digits + 1);
  int fd = NEXT(openat)(dirfd, entry, O_PATH | O_CLOEXEC, 0);
  if (fd >= 0) kernel_close(fd);
  return fd >= 0;
}

// empty_entry says that a path is that of the type or the network interface of an entry in a port's GID table that is empty. The
// tree has no file for it; the kernel has one that cannot be read, which it tells by EINVAL.
static __attribute__((noinline)) bool empty_entry(int dirfd, const char *path) {
  static const char *const folders[] = {"/gid_attrs/types/", "/gid_attrs/ndevs/"};
  for (size_t i = 0; tier() != IB_OFF && i < sizeof folders / sizeof *folders; i++) {
    const char *at = strstr(path, folders[i]);
    const char *number = at ? at + strlen(folders[i]) : "";
    if (*number && !number[strspn(number, "0123456789")]) return in_table(dirfd, path, (size_t)(at - path), number);
  }
  return false;
}

#define OPEN(name, parameters, arguments, dirfd)                                  \
  int my_##name parameters {                                                      \
    int kept = errno, fd = NEXT(name) arguments;                                  \
    if (__builtin_expect(fd < 0 && errno == ENOENT, 0)) {                         \
      errno = empty_entry(dirfd, path) ? EINVAL : ENOENT;                         \
      return fd;                                                                  \
    }                                                                             \
    if (__builtin_expect(fd >= 0 || errno != ENXIO, 1)) return fd;                \
    fd = settle_open(dirfd, path, flags);                                         \
    if (fd >= 0) errno = kept;                                                    \
    return fd;                                                                    \
  }

OPEN(openat, (int dirfd, const char *path, int flags, mode_t mode), (dirfd, path, flags, mode), dirfd)
ALSO(openat64, openat)
INTERPOSE(int, open, (const char *path, int flags, mode_t mode))
OPEN(open, (const char *path, int flags, mode_t mode), (path, flags, mode), AT_FDCWD)
ALSO(open64, open)
INTERPOSE(int, __open_2, (const char *path, int flags))
OPEN(__open_2, (const char *path, int flags), (path, flags), AT_FDCWD)
ALSO(__open64_2, __open_2)
INTERPOSE(int, __openat_2, (int dirfd, const char *path, int flags))
OPEN(__openat_2, (int dirfd, const char *path, int flags), (dirfd, path, flags), dirfd)
ALSO(__openat64_2, __openat_2)

// ---- Asking about a file -------------------------------------------------------------------------------------------------

// device_of says of which device a file is that a call told of; false if of none.
static __attribute__((noinline)) bool device_of(int dirfd, const char *path, int flags, bool is_socket, dev_t *device) {
  char name[NAME];
  unsigned major, minor;
  int kept = errno, number = -1;
  bool found = false;
  if (!is_socket) {
    number = *path ? -1 : uverbs_number(dirfd);
    if (number >= 0) {
      static const char begins[] = "uverbs";
      memcpy(name, begins, sizeof begins);
      char *digit = name + sizeof begins - 1;
      for (int power = 1000; power; power /= 10)
        if (number >= power || power == 1) *digit++ = (char)('0' + number / power % 10);
      *digit = '\0';
      found = numbers_of(name, &major, &minor);
    }
  } else {
    int fd = *path ? NEXT(openat)(dirfd, path, O_PATH | O_CLOEXEC | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0), 0) : dirfd;
    found = fd >= 0 && name_of(fd, name) && numbers_of(name, &major, &minor);
    if (*path && fd >= 0) kernel_close(fd);
  }
  errno = kept;
  if (found) *device = makedev(major, minor);
  return found;
}

static inline bool strange(mode_t mode, nlink_t links, off_t size) {
  return S_ISSOCK(mode) || (S_ISREG(mode) && !links && uverbs_size(size));
}

static inline int settle_stat(int result, struct stat *st, int dirfd, const char *path, int flags) {
  dev_t device;
  if (result || !strange(st->st_mode, st->st_nlink, st->st_size) || tier() == IB_OFF || !path ||
      !device_of(dirfd, path, flags, S_ISSOCK(st->st_mode), &device))
    return result;
  st->st_mode = S_IFCHR | (S_ISSOCK(st->st_mode) ? st->st_mode & 07777 : 0666);
  st->st_rdev = device;
  st->st_size = st->st_blocks = 0;
  st->st_nlink = 1;
  return 0;
}

INTERPOSE(int, stat, (const char *path, struct stat *st))
int my_stat(const char *path, struct stat *st) { return settle_stat(NEXT(stat)(path, st), st, AT_FDCWD, path, 0); }
ALSO(stat64, stat)
INTERPOSE(int, lstat, (const char *path, struct stat *st))
int my_lstat(const char *path, struct stat *st) { return settle_stat(NEXT(lstat)(path, st), st, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW); }
ALSO(lstat64, lstat)
INTERPOSE(int, fstat, (int fd, struct stat *st))
int my_fstat(int fd, struct stat *st) { return settle_stat(NEXT(fstat)(fd, st), st, fd, "", 0); }
ALSO(fstat64, fstat)
INTERPOSE(int, fstatat, (int dirfd, const char *path, struct stat *st, int flags))
int my_fstatat(int dirfd, const char *path, struct stat *st, int flags) {
  return settle_stat(NEXT(fstatat)(dirfd, path, st, flags), st, dirfd, path, flags);
}
ALSO(fstatat64, fstatat)

INTERPOSE(int, statx, (int dirfd, const char *path, int flags, unsigned mask, struct statx *stx))
int my_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx) {
  int result = NEXT(statx)(dirfd, path, flags, mask, stx);
  dev_t device;
  if (result || !strange(stx->stx_mode, stx->stx_nlink, (off_t)stx->stx_size) || tier() == IB_OFF || !path ||
      !device_of(dirfd, path, flags, S_ISSOCK(stx->stx_mode), &device))
    return result;
  stx->stx_mode = (uint16_t)(S_IFCHR | (S_ISSOCK(stx->stx_mode) ? stx->stx_mode & 07777 : 0666));
  stx->stx_rdev_major = major(device);
  stx->stx_rdev_minor = minor(device);
  stx->stx_size = stx->stx_blocks = 0;
  stx->stx_nlink = 1;
  return 0;
}

// Programs linked before glibc 2.33 call these; 0 and 1 are the version numbers of 64-bit machines.
#define OLD(name, parameters, call)               \
  EXPORT int my_##name parameters __asm__(#name); \
  int my_##name parameters {                      \
    if (version == 0 || version == 1) return call; \
    errno = EINVAL;                               \
    return -1;                                    \
  }

OLD(__xstat, (int version, const char *path, struct stat *st), my_stat(path, st))
OLD(__lxstat, (int version, const char *path, struct stat *st), my_lstat(path, st))
OLD(__fxstat, (int version, int fd, struct stat *st), my_fstat(fd, st))
OLD(__fxstatat, (int version, int dirfd, const char *path, struct stat *st, int flags), my_fstatat(dirfd, path, st, flags))
ALSO(__xstat64, __xstat)
ALSO(__lxstat64, __lxstat)
ALSO(__fxstat64, __fxstat)
ALSO(__fxstatat64, __fxstatat)

// ---- ioctl ---------------------------------------------------------------------------------------------------------------

static const uint32_t verbs_ioctl = 0xc0181b01;  // RDMA_VERBS_IOCTL

INTERPOSE(int, ioctl, (int fd, unsigned long request, void *argument))
int my_ioctl(int fd, unsigned long request, void *argument) {
  if (__builtin_expect((uint32_t)request != verbs_ioctl, 1) || tier() != IB_FULL) return NEXT(ioctl)(fd, request, argument);
  int number = uverbs_number(fd);
  if (number < 0) return NEXT(ioctl)(fd, request, argument);
  int error = uverbs_ioctl(fd, number, argument);
  if (!error) return 0;
  errno = -error;
  return -1;
}

// ---- NETLINK_RDMA ----------------------------------------------------------------------------------------------------------
// The program gets a socket of NETLINK_USERSOCK, by which programs send one another messages. What it sends to the kernel is
// answered at once: the answers are sent by its own socket to that socket itself. So bind, poll, dup, fork and reading are the
// kernel's own.

enum { RDMA = 20 };

static _Atomic bool sockets;  // this process, or one that it is forked from, has made such a socket

INTERPOSE(int, socket, (int domain, int type, int protocol))
int my_socket(int domain, int type, int protocol) {
  if (__builtin_expect(domain != AF_NETLINK || protocol != RDMA, 1) || tier() == IB_OFF) return NEXT(socket)(domain, type, protocol);
  atomic_store(&sockets, true);
  return NEXT(socket)(domain, type, NETLINK_USERSOCK);
}

INTERPOSE(ssize_t, sendto, (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length))
INTERPOSE(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags))
INTERPOSE(ssize_t, send, (int fd, const void *data, size_t size, int flags))

// to_kernel says whether a socket is ours, and what is sent to an address goes to the kernel.
static bool to_kernel(int fd, const struct sockaddr *to, socklen_t length) {
  if (!atomic_load_explicit(&sockets, memory_order_relaxed) || tier() == IB_OFF) return false;
  struct sockaddr_nl address = {0};
  if (to) {
    if (length < sizeof address || !take(&address, to, sizeof address) || address.nl_family != AF_NETLINK || address.nl_pid || address.nl_groups)
      return false;
  }
  int kept = errno, domain = 0, protocol = 0;
  socklen_t size = sizeof domain;
  bool ours = !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) && domain == AF_NETLINK &&
              !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) && protocol == NETLINK_USERSOCK;
  errno = kept;
  return ours;
}

static int send_self(int fd, const void *data, size_t size) {
  struct sockaddr_nl self = {0};
  socklen_t length = sizeof self;
  int kept = errno, error = 0;
  if (getsockname(fd, (struct sockaddr *)&self, &length) < 0) error = errno;
  self.nl_groups = 0;
  if (!error && NEXT(sendto)(fd, data, size, MSG_DONTWAIT, (struct sockaddr *)&self, sizeof self) < 0) error = errno == EAGAIN ? ENOBUFS : errno;
  errno = kept;
  return error;
}

static ssize_t answer(int fd, const void *request, size_t size) {
  struct sockaddr_nl self = {0};
  socklen_t length = sizeof self;
  int kept = errno;
  if (!getsockname(fd, (struct sockaddr *)&self, &length) && !self.nl_pid) {
    struct sockaddr_nl any = {.nl_family = AF_NETLINK};
    bind(fd, (struct sockaddr *)&any, sizeof any);
    length = sizeof self;
    getsockname(fd, (struct sockaddr *)&self, &length);
  }
  errno = kept;
  int error = netlink_answer(request, size, self.nl_pid, send_self, fd);
  if (!error) return (ssize_t)size;
  errno = error;
  return -1;
}

enum { LARGEST_REQUEST = 8192 };

ssize_t my_sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
  uint8_t room[LARGEST_REQUEST] __attribute__((aligned(8)));
  if (!to_kernel(fd, to, length)) return NEXT(sendto)(fd, data, size, flags, to, length);
  if (size > sizeof room || !take(room, data, size)) {
    errno = size > sizeof room ? EMSGSIZE : EFAULT;
    return -1;
  }
  return answer(fd, room, size);
}

ssize_t my_send(int fd, const void *data, size_t size, int flags) { return my_sendto(fd, data, size, flags, NULL, 0); }

ssize_t my_sendmsg(int fd, const struct msghdr *message, int flags) {
  uint8_t room[LARGEST_REQUEST] __attribute__((aligned(8)));
  struct msghdr m;
  if (!atomic_load_explicit(&sockets, memory_order_relaxed) || !take(&m, message, sizeof m) || !to_kernel(fd, m.msg_name, m.msg_namelen))
    return NEXT(sendmsg)(fd, message, flags);
  size_t used = 0;
  for (size_t i = 0; i < (size_t)m.msg_iovlen; i++) {
    struct iovec part;
    if (!take(&part, m.msg_iov + i, sizeof part) || (part.iov_len <= sizeof room - used && !take(room + used, part.iov_base, part.iov_len))) {
      errno = EFAULT;
      return -1;
    }
    if (part.iov_len > sizeof room - used) {
      errno = EMSGSIZE;
      return -1;
    }
    used += part.iov_len;
  }
  return answer(fd, room, used);
}
