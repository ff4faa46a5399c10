// Sends requests to the SA that no tool sends. The arguments are the number of a umad device and the LID of the SA. Each line of the
// input is a method, an attribute, a modifier, a component mask, an SM_Key and the record, all in hex. For each a line is printed
// with the method, the status and the data of the answer.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CHECK(x)                                                            \
  do {                                                                      \
    if (!(x)) {                                                             \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, strerror(errno));  \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

enum { HEADER = 56, MAD = 256, DATA = 56, MOST = 1 << 16 };

struct registration {
  uint32_t id, methods[4];
  uint8_t qpn, class, version, oui[3], rmpp;
};

static void put(unsigned char *at, int bytes, uint64_t value) {
  for (int i = bytes - 1; i >= 0; i--, value >>= 8) at[i] = (unsigned char)value;
}

static unsigned char b[HEADER + MOST];
static char line[2 * MOST];

int main(int argc, char **argv) {
  CHECK(argc == 3);
  char path[64];
  snprintf(path, sizeof path, "/dev/infiniband/umad%s", argv[1]);
  int fd = open(path, O_RDWR | O_NONBLOCK);
  CHECK(fd >= 0);
  struct registration r = {.qpn = 1, .class = 3, .version = 2, .oui = {0, 0x14, 5}, .rmpp = 1};
  CHECK(!ioctl(fd, 0xc01c1b01, &r));  // without P_Keys the header has 56 bytes
  for (uint32_t tid = 1; fgets(line, sizeof line, stdin); tid++) {
    unsigned method, attribute, modifier;
    unsigned long long mask, key;
    int used = 0;
    CHECK(sscanf(line, "%x %x %x %llx %llx %n", &method, &attribute, &modifier, &mask, &key, &used) >= 5);
    memset(b, 0, sizeof b);
    uint32_t timeout = 5000, qp = 1;
    memcpy(b, &r.id, 4);
    memcpy(b + 8, &timeout, 4);
    put(b + 20, 4, qp);
    put(b + 24, 4, 0x80010000);
    put(b + 28, 2, (uint64_t)atoi(argv[2]));
    unsigned char *mad = b + HEADER;
    mad[0] = 1, mad[1] = 3, mad[2] = 2, mad[3] = (unsigned char)method;
    put(mad + 12, 4, tid);
    put(mad + 16, 2, attribute);
    put(mad + 20, 4, modifier);
    put(mad + 36, 8, key);
    put(mad + 48, 8, mask);
    size_t size = DATA;
    for (char *p = line + used; p[0] > ' ' && p[1] > ' ' && size < MOST; p += 2) {
      unsigned byte;
      CHECK(sscanf(p, "%2x", &byte) == 1);
      mad[size++] = (unsigned char)byte;
    }
    if (size > MAD)
      mad[24] = 1, mad[25] = 1, mad[26] = 1;  // RMPP: data, active
    else
      size = MAD;
    ssize_t n = write(fd, b, HEADER + size);
    if (n < 0) {
      printf("write: %s\n", strerror(errno));
      continue;
    }
    CHECK(n == (ssize_t)(HEADER + size));
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 60000) == 1);
    n = read(fd, b, sizeof b);
    CHECK(n >= HEADER);
    uint32_t status;
    memcpy(&status, b + 4, 4);
    if (status) {
      printf("error %u\n", status);
      continue;
    }
    printf("%02x %02x%02x ", mad[3], mad[4], mad[5]);
    for (ssize_t i = DATA; i < n - HEADER; i++) printf("%02x", mad[i]);
    puts("");
    fflush(stdout);
  }
}
