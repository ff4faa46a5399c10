// NETLINK_RDMA: what the kernel's RDMA core answers about adapters. Numbers are those of the kernel's rdma/rdma_netlink.h.

#include "verbs.h"

#include <linux/netlink.h>
#include <stdio.h>

enum {
  NLDEV = 5,  // the client, in the upper bits of a type

  GET = 1,
  PORT_GET = 5,
  SYS_GET = 6,
  RES_GET = 9,
  RES_QP_GET = 10,
  RES_CM_ID_GET = 11,
  RES_MR_GET = 13,
  GET_CHARDEV = 15,
  STAT_GET = 17,
  RES_CTX_GET = 22,

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
  RES_SUMMARY = 15,
  RES_SUMMARY_ENTRY = 16,
  RES_SUMMARY_NAME = 17,
  RES_SUMMARY_COUNT = 18,
  RES_QP = 19,
  RES_QP_ENTRY = 20,
  RES_LQPN = 21,
  RES_SQ_PSN = 24,
  RES_TYPE = 26,
  RES_STATE = 27,
  RES_KERN_NAME = 29,
  RES_MR = 40,
  NDEV_INDEX = 50,
  NDEV_NAME = 51,
  NETNS_MODE = 66,
  PROTOCOL = 67,
  CHARDEV_TYPE = 69,
  CHARDEV_NAME = 70,
  CHARDEV_ABI = 71,
  CHARDEV = 72,
  DRIVER_ID = 73,
  STAT_MODE = 74,
  STAT_RES = 75,
  STAT_HWCOUNTERS = 80,
  STAT_HWCOUNTER_ENTRY = 81,
  STAT_HWCOUNTER_NAME = 82,
  STAT_HWCOUNTER_VALUE = 83,
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

enum { LARGEST = 4096 };  // more than any message takes

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

// nest begins an attribute that consists of others, and returns where it is; unnest ends it.
static size_t nest(struct answer *a, uint16_t type) {
  size_t at = a->used;
  put(a, type, "", 0);
  return at;
}

static void unnest(struct answer *a, size_t at) {
  uint16_t length = (uint16_t)(a->used - at);
  memcpy(a->room + at, &length, sizeof length);
}

// ---- What is asked ---------------------------------------------------------------------------------------------------

struct query {
  bool has_device, has_port, has_type, has_resource, has_mode;
  uint32_t device, port, resource;
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
      case STAT_RES:
        if (length < 4) return false;
        memcpy(&q->resource, value, 4);
        q->has_resource = true;
        break;
      case STAT_MODE:
        q->has_mode = true;
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

// write_resources counts what the kernel itself has made on an adapter, as NVIDIA's public outputs of rdma show it for one that no
// program uses: for the management datagrams of its port, and for the driver.
static void write_resources(struct answer *a, const struct device *d) {
  struct port p;
  bool ethernet = port_find(&p, d, 1) && p.ethernet;
  const struct {
    const char *name;
    uint64_t count;
  } list[] = {{"pd", ethernet ? 2 : 3}, {"cq", ethernet ? 3 : 4}, {"qp", ethernet ? 1 : 3}, {"cm_id", 0}, {"mr", 0}, {"ctx", 0}, {"srq", 2}};
  begin(a, a->type, 0);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  size_t all = nest(a, RES_SUMMARY);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    size_t entry = nest(a, RES_SUMMARY_ENTRY);
    put_text(a, RES_SUMMARY_NAME, list[i].name);
    put64(a, RES_SUMMARY_COUNT, list[i].count);
    unnest(a, entry);
  }
  unnest(a, all);
  end(a);
}

// write_queue_pairs lists the queue pairs that write_resources counts.
static void write_queue_pairs(struct answer *a, const struct device *d) {
  enum { SMI, GSI, UD = 4, READY_TO_SEND = 3, FIRST_FREE = 360 };
  struct port p;
  bool ethernet = port_find(&p, d, 1) && p.ethernet;
  const struct {
    uint32_t number;
    uint8_t type;
    const char *owner;
    bool there;
  } list[] = {{FIRST_FREE, UD, "mlx5_ib", !ethernet}, {0, SMI, "ib_core", !ethernet}, {1, GSI, "ib_core", true}};
  begin(a, a->type, NLM_F_MULTI);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  size_t all = nest(a, RES_QP);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i].there) continue;
    size_t entry = nest(a, RES_QP_ENTRY);
    put32(a, PORT_INDEX, 1);
    put32(a, RES_LQPN, list[i].number);
    put32(a, RES_SQ_PSN, 0);
    put8(a, RES_TYPE, list[i].type);
    put8(a, RES_STATE, READY_TO_SEND);
    put_text(a, RES_KERN_NAME, list[i].owner);
    unnest(a, entry);
  }
  unnest(a, all);
  end(a);
}

// write_counters has what a port's hardware has counted: the files of hw_counters in sysfs, in the order of mlx5's driver. The
// driver tells how old these may be by one more file there, lifespan.
static void write_counters(struct answer *a, const struct device *d, unsigned port) {
  static const char *const names[] = {
      "rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rx_dct_connect", "out_of_buffer", "out_of_sequence",
      "duplicate_request", "rnr_nak_retry_err", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err",
      "resp_local_length_error", "resp_cqe_error", "req_cqe_error", "req_remote_invalid_request", "req_remote_access_errors",
      "resp_remote_access_errors", "resp_cqe_flush_error", "req_cqe_flush_error", "req_transport_retries_exceeded",
      "req_rnr_retries_exceeded", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps",
      "roce_slow_restart_trans", "rp_cnp_ignored", "rp_cnp_handled", "np_ecn_marked_roce_packets", "np_cnp_sent",
      "rx_icrc_encapsulated"};
  begin(a, a->type, 0);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  put32(a, PORT_INDEX, port);
  size_t all = nest(a, STAT_HWCOUNTERS);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    uint64_t count;
    if (!counter_find(&count, d, port, names[i])) continue;
    size_t entry = nest(a, STAT_HWCOUNTER_ENTRY);
    put_text(a, STAT_HWCOUNTER_NAME, names[i]);
    put64(a, STAT_HWCOUNTER_VALUE, count);
    unnest(a, entry);
  }
  unnest(a, all);
  end(a);
}

// write_statistic answers what rdma statistic asks of a port. It returns an error number.
static int write_statistic(struct answer *a, const struct query *q, const struct device *d) {
  if (!q->has_resource) {
    write_counters(a, d, q->port);
    return 0;
  }
  if (q->resource != RES_QP) return EINVAL;
  if (!q->has_mode) return ENOENT;  // a counter by its number: there are none
  enum { NONE };                    // queue pairs are not counted one by one, as long as nobody asks for it
  begin(a, a->type, 0);
  put32(a, DEV_INDEX, (uint32_t)d->number);
  put_text(a, DEV_NAME, d->name);
  put32(a, PORT_INDEX, q->port);
  put32(a, STAT_MODE, NONE);
  end(a);
  return 0;
}

// write_all answers a request for all of something.
static int write_all(struct answer *a, uint16_t command, const struct query *q) {
  struct device d;
  switch (command) {
    case GET:
      for (int i = 0; device_find(&d, i); i++) write_device(a, &d, NLM_F_MULTI);
      break;
    case PORT_GET:
    case RES_QP_GET:
    case RES_CM_ID_GET:
    case RES_MR_GET:
    case RES_CTX_GET:
      if (!q->has_device || !device_find(&d, (int)q->device)) return EINVAL;
      for (int port = 1; command == PORT_GET && port <= d.ports; port++) write_port(a, &d, (unsigned)port, NLM_F_MULTI);
      if (command == RES_QP_GET) write_queue_pairs(a, &d);
      break;  // the kernel itself has none of the others
    case STAT_GET:
      if (!q->has_resource || (q->resource != RES_QP && q->resource != RES_MR)) return EINVAL;
      break;  // only what programs have made is counted one by one
    default:
      return EOPNOTSUPP;
  }
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
    case STAT_GET:
      if (!q->has_device || !q->has_port) return EINVAL;
      if (!device_find(&d, (int)q->device)) return ENODEV;
      if (q->port < 1 || q->port > (unsigned)d.ports) return EINVAL;
      if (command == STAT_GET) return write_statistic(a, q, &d);
      write_port(a, &d, q->port, 0);
      return 0;
    case RES_GET:
      if (!q->has_device || !device_find(&d, (int)q->device)) return q->has_device ? ENODEV : EINVAL;
      write_resources(a, &d);
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
