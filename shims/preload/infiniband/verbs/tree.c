// What the staged tree says of adapters and ports.

#include "verbs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { UNKNOWN = -1 };

static _Atomic int settled = UNKNOWN;
static char root[PATH_MAX];  // without a slash at its end, so "" if the tree is the machine itself

static __attribute__((noinline)) enum ib_tier settle(void) {
  int value = (int)ib_tier();
  const char *at = ib_root();
  if (value != IB_OFF) {
    char absolute[PATH_MAX] = "";
    size_t used = 0;
    if (*at != '/') {
      long n = kernel(SYS_getcwd, (long)absolute, sizeof absolute, 0, 0);
      if (n <= 0 || absolute[0] != '/') return IB_OFF;
      used = strlen(absolute);
      absolute[used++] = '/';
    }
    if (used + strlen(at) >= sizeof absolute - 256) return IB_OFF;
    strcpy(absolute + used, at);
    for (used = strlen(absolute); used && absolute[used - 1] == '/'; used--) absolute[used - 1] = '\0';
    memcpy(root, absolute, used + 1);
  }
  atomic_store(&settled, value);
  return (enum ib_tier)value;
}

enum ib_tier tier(void) {
  int value = atomic_load_explicit(&settled, memory_order_acquire);
  return __builtin_expect(value == UNKNOWN, 0) ? settle() : (enum ib_tier)value;
}

__attribute__((constructor)) static void load(void) { tier(); }

static bool path_of(char *path, size_t size, const char *format, va_list arguments) {
  size_t used = strlen(root);
  if (used >= size) return false;
  memcpy(path, root, used);
  int n = vsnprintf(path + used, size - used, format, arguments);
  return n >= 0 && (size_t)n < size - used;
}

bool tree_path(char *path, size_t size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  bool fits = path_of(path, size, format, arguments);
  va_end(arguments);
  return fits;
}

bool tree_read(char *text, size_t size, const char *format, ...) {
  char path[PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  bool fits = path_of(path, sizeof path, format, arguments);
  va_end(arguments);
  int fd = fits ? kernel_open(path, O_RDONLY) : -1;
  if (fd < 0) return false;
  long n = kernel(SYS_read, fd, (long)text, (long)size - 1, 0);
  kernel_close(fd);
  if (n < 0) return false;
  while (n && text[n - 1] == '\n') n--;
  text[n] = '\0';
  return true;
}

// guid_of reads a GUID as sysfs has it.
static uint64_t guid_of(const char *text) {
  uint64_t guid = 0;
  for (; *text; text++)
    if (*text != ':') guid = guid << 4 | (uint64_t)(*text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10);
  return guid;
}

static bool exists(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool exists(const char *format, ...) {
  char path[PATH_MAX];
  struct stat st;
  va_list arguments;
  va_start(arguments, format);
  bool fits = path_of(path, sizeof path, format, arguments);
  va_end(arguments);
  return fits && kernel_stat(AT_FDCWD, path, &st, 0) == 0;
}

#define CLASS "/sys/class/infiniband"

bool device_find(struct device *d, int number) {
  char text[TEXT];
  memset(d, 0, sizeof *d);
  d->number = number;
  if (!tree_read(text, sizeof text, CLASS "_verbs/uverbs%d/ibdev", number) || strlen(text) >= sizeof d->name) return false;
  strcpy(d->name, text);
  if (!tree_read(text, sizeof text, CLASS "/%s/fw_ver", d->name)) return false;
  snprintf(d->firmware, sizeof d->firmware, "%.31s", text);
  if (tree_read(text, sizeof text, CLASS "/%s/node_guid", d->name)) d->node_guid = guid_of(text);
  if (tree_read(text, sizeof text, CLASS "/%s/sys_image_guid", d->name)) d->system_guid = guid_of(text);
  if (tree_read(text, sizeof text, CLASS "/%s/device/device", d->name)) d->part = (uint32_t)strtoul(text, NULL, 16);
  if (tree_read(text, sizeof text, CLASS "/%s/hw_rev", d->name)) d->hw_rev = (uint32_t)strtoul(text, NULL, 16);
  while (exists(CLASS "/%s/ports/%d", d->name, d->ports + 1)) d->ports++;
  return d->ports > 0;
}

bool port_find(struct port *p, const struct device *d, unsigned number) {
  char text[TEXT];
  memset(p, 0, sizeof *p);
  if (!tree_read(text, sizeof text, CLASS "/%s/ports/%u/.port", d->name, number)) return false;
  struct {
    const char *name;
    unsigned *value;
  } fields[] = {
      {"state", &p->state},         {"phys_state", &p->phys}, {"width", &p->width},       {"speed", &p->speed},
      {"lid", &p->lid},             {"sm_lid", &p->sm_lid},   {"lmc", &p->lmc},           {"sm_sl", &p->sm_sl},
      {"cap_mask", &p->cap_mask},   {"cap_mask2", &p->cap_mask2}, {"max_mtu", &p->max_mtu}, {"mtu", &p->mtu},
      {"gids", &p->gids},           {"pkeys", &p->pkeys},     {"net_index", &p->net_index},
  };
  char *rest = text;
  for (char *word; (word = strsep(&rest, " "));) {
    char *value = strchr(word, '=');
    if (!value) continue;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
      if (!strcmp(word, fields[i].name)) *fields[i].value = (unsigned)strtoul(value, NULL, 0);
    if (!strcmp(word, "link_layer")) p->ethernet = !strcmp(value, "Ethernet");
    if (!strcmp(word, "prefix")) p->prefix = strtoull(value, NULL, 0);
    if (!strcmp(word, "net")) snprintf(p->net, sizeof p->net, "%.31s", value);
  }
  return true;
}

bool counter_find(uint64_t *count, const struct device *d, unsigned port, const char *name) {
  char text[TEXT];
  if (!tree_read(text, sizeof text, CLASS "/%s/ports/%u/hw_counters/%s", d->name, port, name)) return false;
  *count = strtoull(text, NULL, 10);
  return true;
}

int gid_find(uint8_t gid[16], uint32_t *type, const struct device *d, unsigned port, unsigned index) {
  char text[TEXT];
  if (!tree_read(text, sizeof text, CLASS "/%s/ports/%u/gids/%u", d->name, port, index)) return EINVAL;
  uint64_t halves[2] = {0, 0};
  int digits = 0;
  for (const char *c = text; *c && digits < 32; c++) {
    if (*c == ':') continue;
    halves[digits / 16] = halves[digits / 16] << 4 | (uint64_t)(*c <= '9' ? *c - '0' : (*c | 0x20) - 'a' + 10);
    digits++;
  }
  if (!halves[0] && !halves[1]) return ENODATA;
  for (int i = 0; i < 16; i++) gid[i] = (uint8_t)(halves[i / 8] >> (56 - 8 * (i % 8)));
  *type = 0;
  char layer[TEXT];
  bool ethernet = tree_read(layer, sizeof layer, CLASS "/%s/ports/%u/link_layer", d->name, port) && !strcmp(layer, "Ethernet");
  if (ethernet && tree_read(text, sizeof text, CLASS "/%s/ports/%u/gid_attrs/types/%u", d->name, port, index))
    *type = strcmp(text, "RoCE v2") ? 1 : 2;
  return 0;
}

bool numbers_of(const char *name, unsigned *major, unsigned *minor) {
  static const struct {
    const char *begins, *class;
  } classes[] = {{"uverbs", "infiniband_verbs"}, {"umad", "infiniband_mad"}, {"issm", "infiniband_mad"}, {"rdma_cm", "misc"}};
  char text[TEXT];
  if (strchr(name, '/')) return false;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (!strncmp(name, classes[i].begins, strlen(classes[i].begins)))
      return tree_read(text, sizeof text, "/sys/class/%s/%s/dev", classes[i].class, name) && sscanf(text, "%u:%u", major, minor) == 2;
  return false;
}

// ---- Memory ----------------------------------------------------------------------------------------------------------

// copy copies within this process by a system call, which fails where the memory is not there. If a filter of system calls
// forbids it, the memory is trusted.
static bool copy(bool in, void *mine, void *other, size_t size) {
  struct iovec local = {mine, size}, remote = {other, size};
  int kept = errno;
  pid_t self = (pid_t)kernel(SYS_getpid, 0, 0, 0, 0);
  ssize_t n = (in ? process_vm_readv : process_vm_writev)(self, &local, 1, &remote, 1, 0);
  bool forbidden = n < 0 && errno != EFAULT;
  errno = kept;
  if (forbidden) memcpy(in ? mine : other, in ? other : mine, size);
  return forbidden || n == (ssize_t)size;
}

bool take(void *to, const void *from, size_t size) { return copy(true, to, (void *)(uintptr_t)from, size); }
bool hand(void *to, const void *from, size_t size) { return copy(false, (void *)(uintptr_t)from, to, size); }
