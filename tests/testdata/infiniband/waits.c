// Waits for a device in the way that the first argument names, with the time limit of the second in milliseconds, again and again,
// until it learns that the daemon no longer answers. It prints what it learnt. A request is under way meanwhile.
//
// With the word "many", as many devices as the second argument says are waited for by epoll without limit; with "brief" they are
// waited for a short time again and again.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x)                                                           \
  do {                                                                     \
    if (!(x)) {                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno)); \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

enum { HEADER = 64, MAD = 256 };

static int device(int port) {
  char path[64];
  snprintf(path, sizeof path, "/dev/infiniband/umad%d", port);
  int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  CHECK(fd >= 0);
  return fd;
}

// ask sends a request to a LID that nobody has, so that only the daemon can say that it timed out, after a day.
static void ask(int fd) {
  struct {
    uint32_t id, methods[4];
    uint8_t qpn, class, version, oui[3], rmpp;
  } agent = {.class = 1, .version = 1};
  CHECK(!ioctl(fd, 0x1b03) && !ioctl(fd, 0xc01c1b01, &agent));
  unsigned char b[HEADER + MAD] = {0};
  uint32_t timeout = 86400000;
  memcpy(b, &agent.id, 4);
  memcpy(b + 8, &timeout, 4);
  b[28] = 0x70;
  b[HEADER] = b[HEADER + 1] = b[HEADER + 2] = b[HEADER + 3] = 1;
  b[HEADER + 17] = 0x11;
  CHECK(write(fd, b, sizeof b) == sizeof b);
}

// wait_once returns what the call did, and sets ready to whether it says that the device can be read.
static int wait_once(const char *how, int fd, int epoll, int ms, int *ready) {
  struct timespec limit = {ms / 1000, ms % 1000 * 1000000};
  struct timeval time = {ms / 1000, ms % 1000 * 1000};
  struct pollfd one = {fd, POLLIN, 0}, outer = {epoll, POLLIN, 0};
  struct epoll_event event = {0};
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  int n = -1;
  if (!strcmp(how, "poll")) n = poll(&one, 1, ms);
  if (!strcmp(how, "ppoll")) n = ppoll(&one, 1, ms < 0 ? NULL : &limit, NULL);
  if (!strcmp(how, "select")) n = select(fd + 1, &set, NULL, NULL, ms < 0 ? NULL : &time);
  if (!strcmp(how, "pselect")) n = pselect(fd + 1, &set, NULL, NULL, ms < 0 ? NULL : &limit, NULL);
  if (!strcmp(how, "epoll_wait") || !strcmp(how, "nested")) n = epoll_wait(epoll, &event, 1, ms);
  if (!strcmp(how, "epoll_pwait")) n = epoll_pwait(epoll, &event, 1, ms, NULL);
  if (!strcmp(how, "epoll_pwait2")) n = epoll_pwait2(epoll, &event, 1, ms < 0 ? NULL : &limit, NULL);
  if (!strcmp(how, "poll_epoll")) n = poll(&outer, 1, ms);
  if (!strcmp(how, "read")) {
    usleep(20000);
    n = 1;
  }
  CHECK(n >= 0);
  *ready = n > 0;
  return n;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const char *how = argv[1];
  int ms = atoi(argv[2]), epoll = epoll_create1(EPOLL_CLOEXEC);
  CHECK(epoll >= 0);
  if (!strcmp(how, "many") || !strcmp(how, "brief")) {
    int count = ms, lost = 0;
    for (int i = 0; i < count; i++) {
      struct epoll_event event = {.events = EPOLLIN, .data.fd = device(i)};
      CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event));
    }
    puts("waits");
    fflush(stdout);
    while (lost < count) {
      struct epoll_event event;
      int n = epoll_wait(epoll, &event, 1, !strcmp(how, "many") ? -1 : 50);
      if (!n && !strcmp(how, "brief")) continue;
      CHECK(n == 1 && event.events & EPOLLHUP);
      CHECK(!epoll_ctl(epoll, EPOLL_CTL_DEL, event.data.fd, NULL));
      lost++;
    }
    printf("%d lost\n", lost);
    return 0;
  }
  int fd = device(0);
  ask(fd);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
  if (!strcmp(how, "nested")) {
    int outer = epoll_create1(EPOLL_CLOEXEC);
    CHECK(outer >= 0 && !epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &event));
    epoll = outer;
  }
  puts("waits");
  fflush(stdout);
  for (;;) {
    int ready;
    unsigned char b[HEADER + MAD];
    wait_once(how, fd, epoll, ms, &ready);
    if (!ready) continue;
    ssize_t n = read(fd, b, sizeof b);
    if (n < 0 && errno == EAGAIN) continue;
    uint32_t status = 0;
    CHECK(n == HEADER + 24);
    memcpy(&status, b + 4, 4);
    CHECK(status == ETIMEDOUT);
    CHECK(read(fd, b, sizeof b) == -1 && errno == EIO);
    puts("timed out, then lost");
    return 0;
  }
}
