// discovery finds adapters as NCCL does: by libibverbs, loaded by name and version, and by the paths of their PCI devices.
// It prints a line for each adapter. gpus is a list of GPUs' bus ids; of each adapter the nearest GPU's path is told by how many
// folders both have in common.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct port_attr {
  int state, max_mtu, active_mtu, gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags;
  uint16_t port_cap_flags2;
  char room[64];
};

struct device_attr {
  char fw_ver[64];
  uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  char room[256];
};

static void *symbol(void *library, const char *name) {
  void *address = dlvsym(library, name, "IBVERBS_1.1");
  if (!address) address = dlvsym(library, name, "IBVERBS_1.0");
  if (!address) {
    fprintf(stderr, "no %s\n", name);
    exit(2);
  }
  return address;
}

static char *slurp(const char *dir, const char *name) {
  static char text[8][256];
  static int next;
  char *to = text[next++ % 8], path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "re");
  if (!f || !fgets(to, sizeof text[0], f)) strcpy(to, "missing");
  if (f) fclose(f);
  to[strcspn(to, "\n")] = '\0';
  return to;
}

// common counts the folders that two paths share.
static int common(const char *a, const char *b) {
  int count = 0;
  for (; *a && *a == *b; a++, b++) count += *a == '/';
  return count;
}

int main(int argc, char **argv) {
  void *library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  void **(*get_device_list)(int *) = symbol(library, "ibv_get_device_list");
  const char *(*get_device_name)(void *) = symbol(library, "ibv_get_device_name");
  void *(*open_device)(void *) = symbol(library, "ibv_open_device");
  int (*close_device)(void *) = symbol(library, "ibv_close_device");
  int (*query_device)(void *, struct device_attr *) = symbol(library, "ibv_query_device");
  int (*query_port)(void *, uint8_t, struct port_attr *) = symbol(library, "ibv_query_port");
  int (*query_gid)(void *, uint8_t, int, uint8_t *) = symbol(library, "ibv_query_gid");
  void *(*alloc_pd)(void *) = symbol(library, "ibv_alloc_pd");
  int (*dealloc_pd)(void *) = symbol(library, "ibv_dealloc_pd");
  int count = 0;
  void **list = get_device_list(&count);
  for (int i = 0; i < count; i++) {
    const char *name = get_device_name(list[i]);
    void *context = open_device(list[i]);
    struct device_attr device = {0};
    struct port_attr port = {0};
    uint8_t gid[16] = {0};
    if (!context || query_device(context, &device) || query_port(context, 1, &port) || query_gid(context, 1, 0, gid)) {
      fprintf(stderr, "%s cannot be asked\n", name);
      return 1;
    }
    void *pd = alloc_pd(context);
    if (pd) dealloc_pd(pd);
    char class[PATH_MAX], pci[PATH_MAX], bus[PATH_MAX], again[PATH_MAX];
    snprintf(class, sizeof class, "/sys/class/infiniband/%s/device", name);
    if (!realpath(class, pci)) return 1;
    const char *bdf = strrchr(pci, '/') + 1;
    snprintf(bus, sizeof bus, "/sys/class/pci_bus/%.7s/../../%s", bdf, bdf);
    const char *same = realpath(bus, again) && !strcmp(again, pci) ? "same" : "another";
    int best = -1, near = 0;
    for (int g = 1; g < argc; g++) {
      char gpu[PATH_MAX], path[PATH_MAX];
      snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", argv[g]);
      if (realpath(path, gpu) && common(gpu, pci) > best) {
        best = common(gpu, pci);
        near = g;
      }
    }
    printf("%s state=%d lid=%d layer=%d speed=%d width=%d part=%u guid=%016llx gid=%02x%02x pd=%d pci=%s %s vendor=%s speed=%s width=%s numa=%s near=%s\n",
           name, port.state, port.lid, port.link_layer, port.active_speed, port.active_width, device.vendor_part_id,
           (unsigned long long)__builtin_bswap64(device.sys_image_guid), gid[0], gid[1], pd != NULL, bdf, same, slurp(pci, "vendor"),
           slurp(pci, "max_link_speed"), slurp(pci, "max_link_width"), slurp(pci, "numa_node"), best > 4 ? argv[near] : "none");
    close_device(context);
  }
  printf("peer memory: %s\n", access("/sys/module/nvidia_peermem/version", F_OK) ? "no" : "yes");
  return 0;
}
