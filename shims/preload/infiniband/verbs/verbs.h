// libibmockverbs.so lets programs open the verbs devices of a staged tree and ask the kernel's RDMA core about them, by
// /dev/infiniband/uverbsN and by NETLINK_RDMA. All answers come from the tree.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "kernel.h"
#include "tier.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// ---- The tree (tree.c) -----------------------------------------------------------------------------------------------

enum { NAME = 32, TEXT = 512 };

enum ib_tier tier(void);

// tree_path writes the path of a file of the tree; false if there is no room.
bool tree_path(char *path, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

// tree_read reads the file of the tree at a path into a text, without the newline at its end. It returns false if it cannot.
bool tree_read(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

// device is an adapter, by the number of its verbs device.
struct device {
  int number;
  char name[NAME];
  char firmware[NAME];
  uint64_t node_guid, system_guid;
  uint32_t part, hw_rev;
  int ports;
};

// device_find reads what the tree has of an adapter; false if there is none of that number.
bool device_find(struct device *device, int number);

struct port {
  unsigned state, phys, width, speed, lid, sm_lid, lmc, sm_sl, cap_mask, cap_mask2, max_mtu, mtu, gids, pkeys;
  bool ethernet;
  uint64_t prefix;
  char net[NAME];
  unsigned net_index;
};

bool port_find(struct port *port, const struct device *device, unsigned number);

// counter_find reads what a port's hardware has counted; false if it has no counter of that name.
bool counter_find(uint64_t *count, const struct device *device, unsigned port, const char *name);

// gid_find reads an entry of a port's table of GIDs: sixteen bytes as they are sent, and the type. It returns an error number:
// ENODATA for an entry that is empty, EINVAL for one beyond the table.
int gid_find(uint8_t gid[16], uint32_t *type, const struct device *device, unsigned port, unsigned index);

// numbers_of is the device number of a device in /dev/infiniband; false if the tree has none of that name.
bool numbers_of(const char *name, unsigned *major, unsigned *minor);

// ---- The program's memory (tree.c) -----------------------------------------------------------------------------------

// take and hand copy from and to an address of the program's, which may be wrong: then they return false.
bool take(void *to, const void *from, size_t size);
bool hand(void *to, const void *from, size_t size);

// ---- Answers ---------------------------------------------------------------------------------------------------------

// uverbs_open opens a verbs device. It returns a descriptor, or a negative error number.
int uverbs_open(int number, int flags);

// uverbs_number is the number of the verbs device that a descriptor is; -1 if it is none.
int uverbs_number(int fd);

// uverbs_size says whether a file of that size may be a verbs device.
bool uverbs_size(off_t size);

// uverbs_ioctl answers an ioctl of a verbs device. It returns 0 or a negative error number.
int uverbs_ioctl(int fd, int number, void *argument);

// netlink_answer answers what a program sent to the kernel by a socket of NETLINK_RDMA. send hands over one datagram to the
// program and returns 0 or a negative error number.
int netlink_answer(const void *request, size_t size, uint32_t port, int (*send)(int fd, const void *data, size_t size), int fd);
