// verbs DEVICES THREADS ROUNDS hammers the verbs devices and NETLINK_RDMA: each thread opens adapters, asks them by ioctls that
// are right, short, oversized or nonsense, forks, passes descriptors on, and checks that every answer is of the adapter that it
// asked. It prints how many right answers there were, and what was wrong. Each process ends by a signal if it hangs.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

struct attribute {
  uint16_t id, length, flags, reserved;
  uint64_t data;
};

struct request {
  uint16_t length, object, method, count;
  uint64_t reserved1;
  uint32_t driver, reserved2;
  struct attribute attributes[8];
};

enum { VERBS = 0xc0181b01u & 0xffffffffu, MOST = 64, PATIENCE = 600 };

static struct known {
  unsigned major, minor, lid;
  uint64_t guid;
  char name[32];
} known[MOST];

static int devices, rounds;
static atomic_long right, wrong;

static void complain(const char *what, long a, long b) {
  if (atomic_fetch_add(&wrong, 1) < 20) fprintf(stderr, "%s: %ld, want %ld\n", what, a, b);
}

static void expect(const char *what, long have, long want) {
  if (have != want)
    complain(what, have, want);
  else
    atomic_fetch_add(&right, 1);
}

static bool slurp(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool slurp(char *text, size_t size, const char *format, ...) {
  char path[256];
  va_list list;
  va_start(list, format);
  vsnprintf(path, sizeof path, format, list);
  va_end(list);
  FILE *f = fopen(path, "re");
  if (!f) return false;
  size_t n = fread(text, 1, size - 1, f);
  fclose(f);
  text[n] = '\0';
  text[strcspn(text, "\n")] = '\0';
  return true;
}

// call makes an ioctl of a number of attributes and returns 0 or the error.
static int call(int fd, struct request *r, int count) {
  r->count = (uint16_t)count;
  r->length = (uint16_t)(24 + 16 * count);
  r->driver = 1;
  return ioctl(fd, VERBS, r) < 0 ? errno : 0;
}

static int get_context(int fd) {
  uint32_t vectors = 0;
  uint64_t support = 0;
  uint8_t in[32] = {0}, out[72];
  struct request r = {.object = 0, .method = 3, .attributes = {{0, 4, 0, 0, (uintptr_t)&vectors}, {1, 8, 0, 0, (uintptr_t)&support},
                      {0x1000, sizeof in, 0, 0, (uintptr_t)in}, {0x1001, sizeof out, 0, 0, (uintptr_t)out}}};
  int error = call(fd, &r, 4);
  if (!error) expect("completion vectors", vectors, 63);
  return error;
}

static void query(int fd, const struct known *k) {
  uint8_t port[48];
  struct request r = {.object = 0, .method = 2, .attributes = {{0, 1, 0, 0, 1}, {1, sizeof port, 0, 0, (uintptr_t)port}}};
  expect("query port", call(fd, &r, 2), 0);
  expect("output flag", r.attributes[1].flags & 2, 2);
  uint16_t lid;
  memcpy(&lid, port + 22, sizeof lid);
  expect("LID", lid, (long)k->lid);

  uint8_t device[304];
  r = (struct request){.object = 0, .method = 0, .attributes = {{1, sizeof device, 0, 0, (uintptr_t)device}, {2, 8, 0, 0, 0x80000001}}};
  expect("query device", call(fd, &r, 2), 0);
  uint64_t guid;
  memcpy(&guid, device + 8, sizeof guid);
  expect("GUID", (long)__builtin_bswap64(guid), (long)k->guid);
}

// nonsense sends what no kernel would take.
static void nonsense(int fd, unsigned *seed) {
  static const uint16_t lengths[] = {0, 1, 23, 24, 40, 4096, 65535};
  struct request r;
  for (unsigned char *b = (unsigned char *)&r; b < (unsigned char *)(&r + 1); b++) *b = (unsigned char)rand_r(seed);
  r.object &= 0x1f;
  r.method &= 0xf;
  switch (rand_r(seed) % 5) {
    case 0:
      r.length = lengths[(unsigned)rand_r(seed) % (sizeof lengths / sizeof *lengths)];
      break;
    case 1:  // addresses that are not there
      r.reserved1 = r.reserved2 = 0;
      r.count = 4;
      r.length = 24 + 4 * 16;
      static const uint16_t objects[] = {0, 0, 1, 3, 5};
      r.object = objects[(unsigned)rand_r(seed) % (sizeof objects / sizeof *objects)];
      r.method = (uint16_t)(rand_r(seed) % 8);
      for (int i = 0; i < 4; i++) r.attributes[i] = (struct attribute){(uint16_t)i, 4000, 0, 0, 0x1000};
      break;
    case 2:  // more room than an answer takes, and less
      r.reserved1 = r.reserved2 = 0;
      r.count = 2;
      r.length = 24 + 2 * 16;
      r.object = 0;
      r.method = 2;
      static uint8_t room[70000];
      r.attributes[0] = (struct attribute){0, 1, 0, 0, 1};
      r.attributes[1] = (struct attribute){1, (uint16_t)(rand_r(seed) % 2 ? 65535 : 3), 0, 0, (uintptr_t)room};
      break;
    case 3:
      if (ioctl(fd, VERBS, NULL) == 0 || errno != EFAULT) complain("ioctl of NULL", errno, EFAULT);
      break;
  }
  (void)!ioctl(fd, VERBS, &r);
  (void)!ioctl(fd, (unsigned long)rand_r(seed), NULL);
  char byte = 0;
  if (write(fd, &r, sizeof r) > 0) complain("write", 1, 0);
  if (read(fd, &byte, 0) < 0 && errno != EINVAL) complain("read", errno, EINVAL);
}

// data_path calls answer EOPNOTSUPP.
static void data_path(int fd) {
  for (uint16_t object = 1; object < 0x10; object++) {
    struct request r = {.object = object, .method = 1};
    expect("data path", call(fd, &r, 0), EOPNOTSUPP);
  }
}

static int open_device(int number) {
  char path[64];
  snprintf(path, sizeof path, "/dev/infiniband/uverbs%d", number);
  return open(path, O_RDWR | O_CLOEXEC);
}

static void check_device(int fd, const struct known *k) {
  struct stat st;
  expect("fstat", fstat(fd, &st), 0);
  expect("type", S_ISCHR(st.st_mode), 1);
  expect("number", (long)st.st_rdev, (long)makedev(k->major, k->minor));
}

static void verbs(unsigned *seed) {
  int number = (int)((unsigned)rand_r(seed) % (unsigned)devices);
  const struct known *k = &known[number];
  int fd = open_device(number);
  if (fd < 0) {
    complain("open", errno, 0);
    return;
  }
  check_device(fd, k);
  uint8_t port[48];
  struct request r = {.object = 0, .method = 2, .attributes = {{0, 1, 0, 0, 1}, {1, sizeof port, 0, 0, (uintptr_t)port}}};
  expect("query without a context", call(fd, &r, 2), EINVAL);
  expect("context", get_context(fd), 0);
  expect("second context", get_context(fd), EINVAL);
  int copy = dup(fd);
  close(fd);
  int other = open("/dev/null", O_RDWR | O_CLOEXEC);  // it may get the number that was given back
  query(copy, k);
  r = (struct request){.object = 0, .method = 3};
  expect("a device that is none", call(other, &r, 0), ENOTTY);
  volatile uint8_t *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, copy, 0);
  if (page != MAP_FAILED) {
    (void)page[0];
    munmap((void *)page, 4096);
  }
  nonsense(copy, seed);
  data_path(copy);
  query(copy, k);
  r = (struct request){.object = 0x10, .method = 0, .attributes = {{0, 0, 0, 0, 0}}};
  expect("events", call(copy, &r, 1), 0);
  struct pollfd waits = {(int)r.attributes[0].data, POLLIN, 0};
  expect("no event", poll(&waits, 1, 0), 0);
  close((int)r.attributes[0].data);
  close(other);
  close(copy);
}

// netlink asks for all adapters and checks the names and GUIDs.
static void netlink(unsigned *seed) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 20);
  if (fd < 0) {
    complain("socket", errno, 0);
    return;
  }
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  uint8_t buffer[16384] __attribute__((aligned(8)));
  int small = (int)((unsigned)rand_r(seed) % 20);
  (void)!sendto(fd, buffer, (size_t)small, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof kernel);
  while (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
  }
  struct nlmsghdr request = {sizeof request, 0x1401, NLM_F_REQUEST | NLM_F_DUMP, 77, 0};
  expect("request", sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel), sizeof request);
  int seen = 0;
  bool done = false;
  while (!done) {
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) {
      complain("answer", errno, 0);
      break;
    }
    int left = (int)n;
    for (struct nlmsghdr *m = (struct nlmsghdr *)buffer; NLMSG_OK(m, (unsigned)left); m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_type == NLMSG_DONE) {
        done = true;
        break;
      }
      uint32_t index = UINT32_MAX;
      const char *name = "";
      for (uint8_t *a = (uint8_t *)NLMSG_DATA(m), *end = (uint8_t *)m + m->nlmsg_len; a < end;) {
        struct nlattr *attribute = (struct nlattr *)a;
        if (attribute->nla_type == 1) memcpy(&index, a + 4, 4);
        if (attribute->nla_type == 2) name = (char *)a + 4;
        a += NLA_ALIGN(attribute->nla_len);
      }
      if (index >= (uint32_t)devices || strcmp(name, known[index].name)) complain("name", index, seen);
      seen++;
    }
  }
  expect("adapters", seen, devices);
  static uint8_t large[100000];
  if (sendto(fd, large, sizeof large, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof kernel) > 0) complain("an oversized request", 1, 0);
  close(fd);
}

static void *work(void *argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  for (int i = 0; i < rounds; i++) {
    verbs(&seed);
    netlink(&seed);
    if (i % 16 == 0) {
      pid_t child = fork();
      if (child == 0) {
        alarm(PATIENCE);
        atomic_store(&wrong, 0);
        verbs(&seed);
        netlink(&seed);
        _exit(atomic_load(&wrong) ? 1 : 0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) < 0)
        complain("fork", errno, 0);
      else
        expect("child", status, 0);
    }
  }
  return NULL;
}

static int descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 4096; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  devices = atoi(argv[1]);
  rounds = atoi(argv[3]);
  int threads = atoi(argv[2]);
  alarm(PATIENCE);
  for (int i = 0; i < devices && i < MOST; i++) {
    char text[128];
    if (!slurp(known[i].name, sizeof known[i].name, "/sys/class/infiniband_verbs/uverbs%d/ibdev", i)) return 3;
    if (!slurp(text, sizeof text, "/sys/class/infiniband_verbs/uverbs%d/dev", i) || sscanf(text, "%u:%u", &known[i].major, &known[i].minor) != 2) return 3;
    if (!slurp(text, sizeof text, "/sys/class/infiniband/%s/ports/1/lid", known[i].name)) return 3;
    known[i].lid = (unsigned)strtoul(text, NULL, 0);
    if (!slurp(text, sizeof text, "/sys/class/infiniband/%s/node_guid", known[i].name)) return 3;
    for (char *c = text; *c; c++)
      if (*c != ':') known[i].guid = known[i].guid << 4 | (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
  }
  int before = descriptors();
  pthread_t list[256];
  for (int i = 0; i < threads; i++)
    if (pthread_create(&list[i], NULL, work, (void *)(uintptr_t)(i + 1))) return 4;
  for (int i = 0; i < threads; i++) pthread_join(list[i], NULL);
  expect("descriptors", descriptors(), before);
  printf("%ld right, %ld wrong\n", atomic_load(&right), atomic_load(&wrong));
  return atomic_load(&wrong) ? 1 : 0;
}
