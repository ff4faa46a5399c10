// off makes each kind of call that the InfiniBand libraries look at, between two writes of a line, so that a trace of the system
// calls in between can be compared.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static void calls(void) {
  static const char *const paths[] = {"/etc/passwd", "/dev/null", "/dev/infiniband/uverbs0", "/dev/infiniband/umad0", "/sys/class/infiniband",
                                      "/sys/class/infiniband/mlx5_0/node_guid", "/sys/class/net", "/nonexistent", "."};
  struct stat st;
  struct statx stx;
  char text[256], real[4096];
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    (void)!stat(paths[i], &st);
    (void)!lstat(paths[i], &st);
    (void)!fstatat(AT_FDCWD, paths[i], &st, 0);
    (void)!statx(AT_FDCWD, paths[i], 0, STATX_BASIC_STATS, &stx);
    (void)!access(paths[i], R_OK);
    (void)!readlink(paths[i], text, sizeof text);
    (void)!realpath(paths[i], real);
    int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      (void)!fstat(fd, &st);
      (void)!read(fd, text, sizeof text);
      (void)!ioctl(fd, 0xc0181b01u, text);
      (void)!ioctl(fd, 0x1b03, text);
      struct pollfd waits = {fd, POLLIN, 0};
      (void)!poll(&waits, 1, 0);
      int copy = dup(fd);
      close(copy);
      close(fd);
    }
    fd = openat(AT_FDCWD, paths[i], O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    DIR *dir = opendir(paths[i]);
    if (dir) {
      while (readdir(dir)) {
      }
      closedir(dir);
    }
    FILE *f = fopen(paths[i], "re");
    if (f) fclose(f);
  }
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 20);
  if (fd >= 0) close(fd);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0) {
    struct iovec part = {text, 10};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    (void)!send(pair[0], text, 10, 0);
    (void)!sendto(pair[0], text, 10, 0, NULL, 0);
    (void)!sendmsg(pair[0], &message, 0);
    (void)!write(pair[0], text, 10);
    for (int i = 0; i < 4; i++) (void)!recv(pair[1], text, sizeof text, 0);
    close(pair[0]);
    close(pair[1]);
  }
}

int main(void) {
  calls();  // what libc does the first time is not of interest
  (void)!write(1, "begin\n", 6);
  calls();
  (void)!write(1, "end\n", 4);
  return 0;
}
