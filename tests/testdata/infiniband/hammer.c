// Uses every umad port from 32 threads at a time, forks meanwhile, sends what is too short or too long, and then kills the daemon
// whose process id is the second argument: every call must come back. The first argument is the number of ports, and the third,
// which can be left out, how often each thread asks.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x)                                                                     \
  do {                                                                               \
    if (!(x)) {                                                                      \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno));           \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

enum { HEADER = 64, MAD = 256, THREADS = 32 };

static int ports;
static uint64_t rounds = 200;
static _Atomic int dead, answers;

struct registration {
  uint32_t id, methods[4];
  uint8_t qpn, class, version, oui[3], rmpp;
};

static int device(int port) {
  char path[64];
  snprintf(path, sizeof path, "/dev/infiniband/umad%d", port);
  return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

// request asks the port itself for its NodeInfo.
static void request(unsigned char *b, uint32_t id, uint64_t tid) {
  memset(b, 0, HEADER + MAD);
  memcpy(b, &id, 4);
  uint32_t timeout = 60000;  // longer than a busy machine takes
  memcpy(b + 8, &timeout, 4);
  b[28] = b[29] = 0xff;  // the permissive LID
  unsigned char *mad = b + HEADER;
  mad[0] = 1, mad[1] = 0x81, mad[2] = 1, mad[3] = 1;
  memcpy(mad + 8, &tid, 8);
  mad[17] = 0x11;
  memset(mad + 32, 0xff, 4);
}

// once opens a port, asks and waits. After the daemon has died it may fail at any step, but it must come back.
static void once(int port, uint64_t tid) {
  int fd = device(port);
  if (fd < 0) {
    CHECK(dead);
    return;
  }
  struct registration r = {.class = 0x81, .version = 1};
  unsigned char b[HEADER + MAD + 64];
  if (ioctl(fd, 0x1b03) || ioctl(fd, 0xc01c1b01, &r)) {
    CHECK(dead);
    close(fd);
    return;
  }
  request(b, r.id, tid);
  CHECK(write(fd, b, 10) == -1);
  CHECK(write(fd, b, HEADER + MAD + 64) == -1);
  CHECK(read(fd, b + 0, 0) == -1);
  request(b, r.id, tid);
  if (write(fd, b, HEADER + MAD) != HEADER + MAD) {
    CHECK(dead);
    close(fd);
    return;
  }
  struct pollfd p = {fd, POLLIN, 0};
  CHECK(poll(&p, 1, 60000) == 1);
  int copy = dup(fd);
  CHECK(copy >= 0);
  ssize_t n = read(copy, b, sizeof b);
  if (n == HEADER + MAD) {
    uint64_t got;
    memcpy(&got, b + HEADER + 8, 8);
    CHECK(got >> 32 == tid >> 32);  // the lower half in the order of the wire
    CHECK(b[HEADER + 3] == 0x81);
    atomic_fetch_add(&answers, 1);
  } else {
    CHECK(dead && (n == -1 || n == HEADER + 24));
  }
  close(copy);
  close(fd);
}

static void *hammer(void *number) {
  uint64_t thread = (uintptr_t)number;
  for (uint64_t i = 0; i < rounds; i++) {
    once((int)((thread + i) % (uint64_t)ports), (thread * rounds + i + 1) << 32);
    if (i == rounds / 2 && thread % 8 == 0) {
      pid_t child = fork();
      CHECK(child >= 0);
      if (!child) {
        once((int)(thread % (uint64_t)ports), (thread + 7) << 40);
        _exit(0);
      }
      int status;
      CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) return 2;
  if (argc == 4) rounds = (uint64_t)atoi(argv[3]);
  ports = atoi(argv[1]);
  pid_t daemon = (pid_t)atoi(argv[2]);
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, hammer, (void *)i));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK((uint64_t)answers >= THREADS * rounds);

  int fd = device(0);
  CHECK(fd >= 0);
  dead = 1;
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, hammer, (void *)i));
  CHECK(!kill(daemon, SIGKILL));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  char b[HEADER + MAD] = {0};
  CHECK(read(fd, b, sizeof b) == -1 && errno == EIO);
  CHECK(write(fd, b, sizeof b) == -1 && errno == EIO);
  CHECK(ioctl(fd, 0x1b03) == -1 && errno == EIO);
  CHECK(device(0) == -1);
  puts("ok");
}
