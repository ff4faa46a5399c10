// NETLINK_RDMA: what the kernel's RDMA core answers about adapters. Numbers are those of the kernel's rdma/rdma_netlink.h.

#include "verbs.h"

#include <linux/netlink.h>
#include <stdio.h>

enum {
  NLDEV = 5,  // the client, in the upper bits of a type

  GET = 1,
  PORT_GET = 5,
  SYS_GET = 6,
  GET_CHARDEV = 15,

  DEV_INDEX = 1,
  DEV_NAME = 2,
  PORT_INDEX = 3,
  CAP_FLAGS = 4,
  FW_VERSION = 5,
  NODE_GUID = 6,
  SYS_IMAGE_GUID = 7,
  SUBNET_PREFIX = 8,
  LID = 9,
  SM_LID = 10,
  LMC = 11,
  PORT_STATE = 12,
  PORT_PHYS_STATE = 13,
  NODE_TYPE = 14,
  NDEV_INDEX = 50,
  NDEV_NAME = 51,
  NETNS_MODE = 66,
  PROTOCOL = 67,
  CHARDEV_TYPE = 69,
  CHARDEV_NAME = 70,
  CHARDEV_ABI = 71,
  CHARDEV = 72,
  DRIVER_ID = 73,
  DEV_DIM = 84,
  COPY_ON_FORK = 93,

  MLX5 = 1,
  CA = 1,
};

// ---- Messages --------------------------------------------------------------------------------------------------------

// answer gathers messages for one program into datagrams.
struct answer {
  int fd;
  int (*send)(int fd, const void *data, size_t size);
  uint32_t sequence, port;
  uint16_t type;
  size_t used, start;  // start: of the message that is being written
  int error;
  uint8_t room[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
};

enum { LARGEST = 1024 };  // more than any message takes

static void flush(struct answer *a) {
  if (a->used && !a->error) a->error = a->send(a->fd, a->room, a->used);
  a->used = 0;
}

static void begin(struct answer *a, uint16_t type, uint16_t flags) {
  if (a->used + LARGEST > sizeof a->room) flush(a);
  a->start = a->used;
  struct nlmsghdr head = {.nlmsg_type = type, .nlmsg_flags = flags, .nlmsg_seq = a->sequence, .nlmsg_pid = a->port};
  memcpy(a->room + a->used, &head, sizeof head);
  a->used += sizeof head;
}

static void end(struct answer *a) {
  uint32_t length = (uint32_t)(a->used - a->start);
  memcpy(a->room + a->start, &length, sizeof length);
}

static void put(struct answer *a, uint16_t type, const void *data, size_t size) {
  struct nlattr head = {.nla_len = (uint16_t)(NLA_HDRLEN + size), .nla_type = type};
  memset(a->room + a->used, 0, NLA_HDRLEN + NLA_ALIGN(size));
  memcpy(a->room + a->used, &head, sizeof head);
  memcpy(a->room + a->used + NLA_HDRLEN, data, size);
  a->used += NLA_HDRLEN + NLA_ALIGN(size);
}

static void put8(struct answer *a, uint16_t type, uint8_t value) { put(a, type, &value, sizeof value); }
static void put32(struct answer *a, uint16_t type, uint32_t value) { put(a, type, &value, sizeof value); }
static void put64(struct answer *a, uint16_t type, uint64_t value) { put(a, type, &value, sizeof value); }
static void put_text(struct answer *a, uint16_t type, const char *text) { put(a, type, text, strlen(text) + 1); }

// ---- What is asked ---------------------------------------------------------------------------------------------------

struct query {
  bool has_device, has_port, has_type;
  uint32_t device, port;
  char type[NAME];
};

// parse reads the attributes of a request; false if they run over its end.
static bool parse(struct query *q, const uint8_t *data, size_t size) {
  memset(q, 0, sizeof *q);
  while (size >= NLA_HDRLEN) {
    struct nlattr head;
    memcpy(&head, data, sizeof head);
    if (head.nla_len < NLA_HDRLEN || head.nla_len > size) return false;
    const uint8_t *value = data + NLA_HDRLEN;
    size_t length = head.nla_len - NLA_HDRLEN;
    switch (head.nla_type & NLA_TYPE_MASK) {
      case DEV_INDEX:
        if (length < 4) return false;
        memcpy(&q->device, value, 4);
        q->has_device = true;
        break;
      case PORT_INDEX:
        if (length < 4) return false;
        memcpy(&q->port, value, 4);
        q->has_port = true;
        break;
      case CHARDEV_TYPE:
        length = strnlen((const char *)value, length);
        if (length >= sizeof q->type) return false;
        memcpy(q->type, value, length);
        q->has_type = true;
        break;
    }
    size_t step = NLA_ALIGN(head.nla_len);
    if (step > size) break;
    data += step;
    size -= step;
  }
  return true;
}

static void write_device(struct answer *a, const struct device *d, uint16_t flags) {
  struct port p;
  bool ethernet = port_find(&p, d, 1) && p.ethernet;
  begin(a, a->type, flags);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  put32(a, PORT_INDEX, (uint32_t)d->ports);
  put64(a, CAP_FLAGS, 0x21361c36);
  put_text(a, FW_VERSION, d->firmware);
  put64(a, NODE_GUID, d->node_guid);
  put64(a, SYS_IMAGE_GUID, d->system_guid);
  put8(a, NODE_TYPE, CA);
  put_text(a, PROTOCOL, ethernet ? "roce" : "ib");
  put8(a, DEV_DIM, 0);
  end(a);
}

static void write_port(struct answer *a, const struct device *d, unsigned number, uint16_t flags) {
  struct port p;
  if (!port_find(&p, d, number)) return;
  begin(a, a->type, flags);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  put32(a, PORT_INDEX, number);
  put64(a, CAP_FLAGS, (uint64_t)p.cap_mask2 << 32 | p.cap_mask);
  if (!p.ethernet) {
    put64(a, SUBNET_PREFIX, p.prefix);
    put32(a, LID, p.lid);
    put32(a, SM_LID, p.sm_lid);
    put8(a, LMC, (uint8_t)p.lmc);
  }
  put8(a, PORT_STATE, (uint8_t)p.state);
  put8(a, PORT_PHYS_STATE, (uint8_t)p.phys);
  if (p.ethernet && p.net[0]) {
    put32(a, NDEV_INDEX, p.net_index);
    put_text(a, NDEV_NAME, p.net);
  }
  end(a);
}

// write_chardev says which device node of a kind an adapter's port has. It returns an error number.
static int write_chardev(struct answer *a, const struct query *q) {
  struct device d;
  char name[2 * NAME];
  unsigned major, minor, abi = 1;
  if (!strcmp(q->type, "rdma_cm")) {
    snprintf(name, sizeof name, "rdma_cm");
    abi = 4;
  } else {
    if (!q->has_device || !device_find(&d, (int)q->device)) return ENODEV;
    unsigned before = 0, port = q->has_port ? q->port : 1;
    for (int i = 0; i < d.number; i++) {
      struct device other;
      if (device_find(&other, i)) before += (unsigned)other.ports;
    }
    if (!strcmp(q->type, "uverbs")) {
      snprintf(name, sizeof name, "uverbs%d", d.number);
    } else if (!strcmp(q->type, "umad") || !strcmp(q->type, "issm")) {
      if (port < 1 || port > (unsigned)d.ports) return EINVAL;
      snprintf(name, sizeof name, "%s%u", q->type, before + port - 1);
      abi = 5;
    } else {
      return EOPNOTSUPP;
    }
  }
  if (!numbers_of(name, &major, &minor)) return ENODEV;
  begin(a, a->type, 0);
  put_text(a, CHARDEV_NAME, name);
  put64(a, CHARDEV_ABI, abi);
  put64(a, CHARDEV, major << 8 | minor);
  if (!strcmp(q->type, "uverbs")) put32(a, DRIVER_ID, MLX5);
  end(a);
  return 0;
}

// write_all answers a request for all of something.
static int write_all(struct answer *a, uint16_t command, const struct query *q) {
  struct device d;
  if (command != GET && command != PORT_GET) return EOPNOTSUPP;
  if (command == PORT_GET && (!q->has_device || !device_find(&d, (int)q->device))) return EINVAL;
  if (command == PORT_GET)
    for (int port = 1; port <= d.ports; port++) write_port(a, &d, (unsigned)port, NLM_F_MULTI);
  else
    for (int i = 0; device_find(&d, i); i++) write_device(a, &d, NLM_F_MULTI);
  uint32_t result = 0;
  begin(a, NLMSG_DONE, NLM_F_MULTI);
  memcpy(a->room + a->used, &result, sizeof result);
  a->used += sizeof result;
  end(a);
  return 0;
}

static int write_one(struct answer *a, uint16_t command, const struct query *q) {
  struct device d;
  switch (command) {
    case GET:
      if (!q->has_device || !device_find(&d, (int)q->device)) return q->has_device ? ENODEV : EINVAL;
      write_device(a, &d, 0);
      return 0;
    case PORT_GET:
      if (!q->has_device || !q->has_port) return EINVAL;
      if (!device_find(&d, (int)q->device)) return ENODEV;
      if (q->port < 1 || q->port > (unsigned)d.ports) return EINVAL;
      write_port(a, &d, q->port, 0);
      return 0;
    case SYS_GET:
      begin(a, a->type, 0);
      put8(a, NETNS_MODE, 1);
      put8(a, COPY_ON_FORK, 1);
      end(a);
      return 0;
    case GET_CHARDEV:
      return q->has_type ? write_chardev(a, q) : EINVAL;
  }
  return EOPNOTSUPP;
}

static void acknowledge(struct answer *a, const struct nlmsghdr *request, int error) {
  begin(a, NLMSG_ERROR, 0);
  int32_t result = -error;
  memcpy(a->room + a->used, &result, sizeof result);
  memcpy(a->room + a->used + sizeof result, request, sizeof *request);
  a->used += sizeof result + sizeof *request;
  end(a);
}

int netlink_answer(const void *data, size_t size, uint32_t port, int (*send)(int, const void *, size_t), int fd) {
  struct answer a = {.fd = fd, .send = send, .port = port};
  while (size >= sizeof(struct nlmsghdr)) {
    struct nlmsghdr head;
    struct query q;
    memcpy(&head, data, sizeof head);
    if (head.nlmsg_len < sizeof head || head.nlmsg_len > size) break;
    uint16_t command = head.nlmsg_type & 0x3ff;
    a.sequence = head.nlmsg_seq;
    a.type = head.nlmsg_type;
    if (head.nlmsg_flags & NLM_F_REQUEST && head.nlmsg_type >= NLMSG_MIN_TYPE) {
      bool all = (head.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
      int error = EINVAL;
      if (head.nlmsg_type >> 10 == NLDEV && parse(&q, (const uint8_t *)data + sizeof head, head.nlmsg_len - sizeof head))
        error = all ? write_all(&a, command, &q) : write_one(&a, command, &q);
      if (error || (!all && head.nlmsg_flags & NLM_F_ACK)) acknowledge(&a, &head, error);
      flush(&a);
    }
    size_t step = NLMSG_ALIGN(head.nlmsg_len);
    if (step >= size) break;
    data = (const uint8_t *)data + step;
    size -= step;
  }
  return a.error;
}
