// The verbs devices: what the kernel's ib_uverbs answers to ioctls, as far as programs need it to look at adapters. Numbers and
// layouts are those of the kernel's rdma/ib_user_ioctl_*.h and ib_user_verbs.h. Whatever needs a data path is answered with
// EOPNOTSUPP. Completion queues and shared receive queues can be made, since UCX makes one of each to look at an adapter; nothing
// ever arrives in them, because there are no queue pairs.

#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// ---- The descriptor --------------------------------------------------------------------------------------------------
// It is a memory file that nobody can write, whose size tells the number of the device. dup, fork, close and passing it to
// another process are the kernel's own, and so no table has to follow them. Its offset is 1 after the program has made its
// context: all descriptors of one opening share that.

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, PAGE = 4096, MOST = 4096, HAS_CONTEXT = 1 };
static const off_t size_base = 0x5bd00000;

int uverbs_open(int number, int flags) {
  struct device d;
  if (number < 0 || number >= MOST || !device_find(&d, number)) return -ENXIO;
  char name[32];
  snprintf(name, sizeof name, "uverbs%d", number);
  int kept = errno;
  int fd = memfd_create(name, MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0));
  if (fd >= 0 && (ftruncate(fd, size_base + number * (off_t)PAGE) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0 ||
                  (flags & O_NONBLOCK && fcntl(fd, F_SETFL, O_NONBLOCK) < 0))) {
    int error = errno;
    kernel_close(fd);
    errno = error;
    fd = -1;
  }
  int error = errno;
  errno = kept;
  return fd < 0 ? -error : fd;
}

bool uverbs_size(off_t size) {
  return size >= size_base && size < size_base + MOST * (off_t)PAGE && (size - size_base) % PAGE == 0;
}

int uverbs_number(int fd) {
  struct stat st;
  if (kernel(SYS_fstat, fd, (long)&st, 0, 0) < 0 || !S_ISREG(st.st_mode) || !uverbs_size(st.st_size) ||
      kernel(SYS_fcntl, fd, F_GET_SEALS, 0, 0) != SEALS)
    return -1;
  return (int)((st.st_size - size_base) / PAGE);
}

// ---- Attributes ------------------------------------------------------------------------------------------------------

struct attribute {
  uint16_t id, length, flags, reserved;
  uint64_t data;
};

struct request {
  uint16_t length, object, method, count;
  uint64_t reserved1;
  uint32_t driver, reserved2;
};

enum { MANDATORY = 1, VALID_OUTPUT = 2, MOST_ATTRIBUTES = 64 };

struct call {
  struct request head;
  struct attribute attributes[MOST_ATTRIBUTES];
  struct attribute *at;  // where the program has them
};

static struct attribute *attribute(struct call *c, uint16_t id) {
  for (int i = 0; i < c->head.count; i++)
    if (c->attributes[i].id == id) return &c->attributes[i];
  return NULL;
}

// value reads a number that goes in. Up to eight bytes stand in the attribute itself.
static int value(struct call *c, uint16_t id, uint64_t *number) {
  struct attribute *a = attribute(c, id);
  if (!a || !a->length || a->length > 8) return -EINVAL;
  *number = a->length == 8 ? a->data : a->data & ((1ULL << 8 * a->length) - 1);
  return 0;
}

// give copies an answer to where an attribute says, and zeros if there is more room. Without the attribute it does nothing.
static int give(struct call *c, uint16_t id, const void *data, size_t size) {
  struct attribute *a = attribute(c, id);
  if (!a) return 0;
  uint8_t room[PAGE] = {0};
  size_t length = a->length;
  if (length > sizeof room) return -EINVAL;
  memcpy(room, data, size < length ? size : length);
  a->flags |= VALID_OUTPUT;
  if (!hand((void *)(uintptr_t)a->data, room, length) || !hand(&c->at[a - c->attributes].flags, &a->flags, sizeof a->flags)) return -EFAULT;
  return 0;
}

// give_whole is give for an answer that needs all its room.
static int give_whole(struct call *c, uint16_t id, const void *data, size_t size) {
  struct attribute *a = attribute(c, id);
  return !a || a->length < size ? -EINVAL : give(c, id, data, size);
}

// ---- Structures of the kernel ----------------------------------------------------------------------------------------

struct query_device {
  uint64_t fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd,
      max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
      max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr,
      max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay, phys_port_cnt, reserved[4];
};
_Static_assert(sizeof(struct query_device) == 176, "ib_uverbs_query_device_resp");

struct query_device_ex {
  struct query_device base;
  uint32_t comp_mask, response_length;
  uint64_t odp_general;
  uint32_t odp_rc, odp_uc, odp_ud, odp_reserved;
  uint64_t timestamp_mask, hca_core_clock, device_cap_flags_ex;
  uint32_t rss_supported_qpts, rss_max_tables, rss_max_table_size, rss_reserved, max_wq_type_rq, raw_packet_caps;
  uint32_t tm_max_rndv_hdr_size, tm_max_num_tags, tm_flags, tm_max_ops, tm_max_sge, tm_reserved;
  uint16_t cq_moderation_count, cq_moderation_period;
  uint32_t cq_reserved;
  uint64_t max_dm_size;
  uint32_t xrc_odp_caps, reserved;
};
_Static_assert(sizeof(struct query_device_ex) == 304, "ib_uverbs_ex_query_device_resp");

struct query_port {
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, gid_tbl_len;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t state, max_mtu, active_mtu, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state,
      link_layer, flags, reserved;
  uint16_t port_cap_flags2;
  uint8_t reserved2[2];
  uint32_t active_speed_ex;
};
_Static_assert(sizeof(struct query_port) == 48, "ib_uverbs_query_port_resp_ex");

struct gid_entry {
  uint8_t gid[16];
  uint32_t index, port, type, net_index;
};
_Static_assert(sizeof(struct gid_entry) == 32, "ib_uverbs_gid_entry");

// What mlx5's driver answers when a context is made. Without doorbell registers (tot_bfregs) the provider maps nothing.
struct mlx5_context {
  uint32_t qp_tab_size, bf_reg_size, tot_bfregs, cache_line_size;
  uint16_t max_sq_desc_sz, max_rq_desc_sz;
  uint32_t max_send_wqebb, max_recv_wr, max_srq_recv_wr;
  uint16_t num_ports, flow_action_flags;
  uint32_t comp_mask, response_length;
  uint8_t cqe_version, cmds_supp_uhw, eth_min_inline, clock_info_versions;
  uint64_t hca_core_clock_offset;
  uint32_t log_uar_size, num_uars_per_page, num_dyn_bfregs, dump_fill_mkey;
};
_Static_assert(sizeof(struct mlx5_context) == 72, "mlx5_ib_alloc_ucontext_resp");

// ---- Queries ---------------------------------------------------------------------------------------------------------

enum { VENDOR = 0x2c9 };

// query_device has the limits of a ConnectX-7, as public outputs of ibv_devinfo -v show them.
static struct query_device query_device(const struct device *d) {
  unsigned long v[3] = {0, 0, 0};
  sscanf(d->firmware, "%lu.%lu.%lu", &v[0], &v[1], &v[2]);
  return (struct query_device){
      .fw_ver = v[0] << 32 | v[1] << 16 | v[2],
      .node_guid = __builtin_bswap64(d->node_guid),
      .sys_image_guid = __builtin_bswap64(d->system_guid),
      .max_mr_size = UINT64_MAX,
      .page_size_cap = 0xfffffffffffff000,
      .vendor_id = VENDOR,
      .vendor_part_id = d->part,
      .hw_ver = d->hw_rev,
      .max_qp = 131072,
      .max_qp_wr = 32768,
      .device_cap_flags = 0x21361c36,
      .max_sge = 30,
      .max_sge_rd = 30,
      .max_cq = 16777216,
      .max_cqe = 4194303,
      .max_mr = 16777216,
      .max_pd = 8388608,
      .max_qp_rd_atom = 16,
      .max_res_rd_atom = 2097152,
      .max_qp_init_rd_atom = 16,
      .atomic_cap = 1,
      .max_mw = 16777216,
      .max_mcast_grp = 2097152,
      .max_mcast_qp_attach = 240,
      .max_total_mcast_qp_attach = 503316480,
      .max_ah = 2147483647,
      .max_srq = 8388608,
      .max_srq_wr = 32767,
      .max_srq_sge = 31,
      .max_pkeys = 128,
      .local_ca_ack_delay = 16,
      .phys_port_cnt = (uint8_t)d->ports,
  };
}

static int get_context(struct call *c, int fd, const struct device *d) {
  if (kernel(SYS_lseek, fd, 0, SEEK_CUR, 0) == HAS_CONTEXT) return -EINVAL;
  uint32_t vectors = 63;
  uint64_t support = 1;  // optional memory registration
  struct mlx5_context answer = {
      .qp_tab_size = 1 << 18,
      .bf_reg_size = 512,
      .cache_line_size = 64,
      .max_sq_desc_sz = 1024,
      .max_rq_desc_sz = 512,
      .max_send_wqebb = 32768,
      .max_recv_wr = 32768,
      .max_srq_recv_wr = 32767,
      .num_ports = (uint16_t)d->ports,
      .response_length = sizeof answer,
      .cqe_version = 1,
      .cmds_supp_uhw = 3,
      .log_uar_size = 12,
      .num_uars_per_page = 1,
  };
  int error = give(c, 0, &vectors, sizeof vectors);
  if (!error) error = give(c, 1, &support, sizeof support);
  if (!error) error = give(c, 0x1001, &answer, sizeof answer);
  if (!error) kernel(SYS_lseek, fd, HAS_CONTEXT, SEEK_SET, 0);
  return error;
}

// mtu_code is the number of an MTU, 5 for 4096.
static uint8_t mtu_code(unsigned bytes) {
  uint8_t code = 1;
  while (code < 5 && 128u << code < bytes) code++;
  return code;
}

static int query_port(struct call *c, const struct device *d) {
  uint64_t number;
  struct port p;
  int error = value(c, 0, &number);
  if (error) return error;
  if (number < 1 || number > (unsigned)d->ports || !port_find(&p, d, (unsigned)number)) return -EINVAL;
  struct query_port answer = {
      .port_cap_flags = p.cap_mask,
      .max_msg_sz = 1 << 30,
      .gid_tbl_len = p.gids,
      .pkey_tbl_len = (uint16_t)p.pkeys,
      .lid = (uint16_t)p.lid,
      .sm_lid = (uint16_t)p.sm_lid,
      .state = (uint8_t)p.state,
      .max_mtu = mtu_code(p.max_mtu),
      .active_mtu = mtu_code(p.mtu),
      .lmc = (uint8_t)p.lmc,
      .max_vl_num = 4,  // eight lanes
      .sm_sl = (uint8_t)p.sm_sl,
      .subnet_timeout = p.ethernet ? 0 : 18,
      .active_width = (uint8_t)p.width,
      .active_speed = (uint8_t)(p.speed > 128 ? 128 : p.speed),
      .phys_state = (uint8_t)p.phys,
      .link_layer = p.ethernet ? 2 : 1,
      .port_cap_flags2 = (uint16_t)p.cap_mask2,
      .active_speed_ex = p.speed,
  };
  return give(c, 1, &answer, sizeof answer);
}

static int gid_entry(struct gid_entry *e, const struct device *d, unsigned port, unsigned index) {
  struct port p;
  *e = (struct gid_entry){.index = index, .port = port};
  int error = gid_find(e->gid, &e->type, d, port, index);
  if (!error && port_find(&p, d, port) && p.ethernet) e->net_index = p.net_index;
  return -error;
}

static int query_gid_entry(struct call *c, const struct device *d) {
  uint64_t port, index, flags;
  struct gid_entry e;
  int error = value(c, 0, &port);
  if (!error) error = value(c, 1, &index);
  if (!error) error = value(c, 2, &flags);
  if (!error && (flags || port < 1 || port > (unsigned)d->ports || index > UINT16_MAX)) error = -EINVAL;
  if (!error) error = gid_entry(&e, d, (unsigned)port, (unsigned)index);
  return error ? error : give_whole(c, 3, &e, sizeof e);
}

static int query_gid_table(struct call *c, const struct device *d) {
  uint64_t size, flags, count = 0;
  int error = value(c, 0, &size);
  if (!error) error = value(c, 1, &flags);
  struct attribute *to = attribute(c, 2);
  if (!error && (flags || size < sizeof(struct gid_entry) || size > PAGE || !to)) error = -EINVAL;
  for (unsigned port = 1; !error && port <= (unsigned)d->ports; port++) {
    struct port p;
    if (!port_find(&p, d, port)) continue;
    for (unsigned index = 0; !error && index < p.gids; index++) {
      struct gid_entry e;
      if (gid_entry(&e, d, port, index)) continue;
      if ((count + 1) * size > to->length) return -EINVAL;
      if (!hand((char *)(uintptr_t)to->data + count * size, &e, sizeof e)) error = -EFAULT;
      count++;
    }
  }
  if (error) return error;
  uint16_t valid = to->flags | VALID_OUTPUT;
  if (!hand(&c->at[to - c->attributes].flags, &valid, sizeof valid)) return -EFAULT;
  return give(c, 3, &count, sizeof count);
}

// new_handle is the number of an object, another one for each.
static uint32_t new_handle(void) {
  static _Atomic uint32_t next = 1;
  return atomic_fetch_add(&next, 1);
}

// created tells the program the number of an object that it has made. The provider keeps what the object consists of in the program's
// memory, and gets the number too.
static int created(struct call *c, uint32_t number) {
  enum { HANDLE = 0, FOR_DRIVER = 0x1001 };
  struct attribute *a = attribute(c, HANDLE);
  uint64_t handle = number;
  uint32_t answer[] = {number, 0};
  int error = a ? give(c, FOR_DRIVER, answer, sizeof answer) : -EINVAL;
  return !error && !hand(&c->at[a - c->attributes].data, &handle, sizeof handle) ? -EFAULT : error;
}

// create_cq makes a completion queue.
static int create_cq(struct call *c, const struct query_device *limits) {
  enum { ENTRIES = 1, ENTRIES_MADE = 6 };
  uint64_t wanted;
  int error = value(c, ENTRIES, &wanted);
  if (error || !wanted || wanted > limits->max_cqe) return error ? error : -EINVAL;
  uint32_t made = (uint32_t)wanted;
  error = give_whole(c, ENTRIES_MADE, &made, sizeof made);
  return error ? error : created(c, new_handle());
}

// create_srq makes a shared receive queue.
static int create_srq(struct call *c, const struct query_device *limits) {
  enum { ROOM = 5, PARTS = 6, ROOM_MADE = 11, PARTS_MADE = 12, NUMBER = 13 };
  uint64_t room, parts;
  int error = value(c, ROOM, &room);
  if (!error) error = value(c, PARTS, &parts);
  if (error || !room || room > limits->max_srq_wr || parts > limits->max_srq_sge) return error ? error : -EINVAL;
  uint32_t made[] = {(uint32_t)room, (uint32_t)parts, new_handle()};
  error = give_whole(c, ROOM_MADE, &made[0], sizeof *made);
  if (!error) error = give_whole(c, PARTS_MADE, &made[1], sizeof *made);
  if (!error) error = give(c, NUMBER, &made[2], sizeof *made);
  return error ? error : created(c, made[2]);
}

// destroy ends a queue, which has had no events.
static int destroy(struct call *c, size_t counters) {
  const uint32_t events[] = {0, 0};
  return give_whole(c, 1, events, counters * sizeof *events);
}

// invoke_write is a command of the older interface, by ioctl.
static int invoke_write(struct call *c, const struct device *d) {
  enum { QUERY_DEVICE = 1, ALLOC_PD = 3, DEALLOC_PD = 4, QUERY_DEVICE_EX = (int)0x80000001 };
  uint64_t command;
  int error = value(c, 2, &command);
  if (error) return error;
  struct query_device base = query_device(d);
  switch ((int)command) {
    case QUERY_DEVICE: {
      struct attribute *out = attribute(c, 1);
      if (!out || out->length < sizeof base) return -ENOSPC;  // the provider tries by this whether the call is there
      return give(c, 1, &base, sizeof base);
    }
    case QUERY_DEVICE_EX: {
      struct query_device_ex answer = {
          .base = base,
          .response_length = sizeof answer,
          .timestamp_mask = 0x7fffffffffffffff,
          .hca_core_clock = 1000000,
          .device_cap_flags_ex = base.device_cap_flags,
          .max_wq_type_rq = 8388608,
          .cq_moderation_count = 65535,
          .cq_moderation_period = 4095,
          .max_dm_size = 131072,
      };
      struct attribute *out = attribute(c, 1);
      if (!out || out->length < offsetof(struct query_device_ex, odp_general)) return -ENOSPC;
      if (out->length < sizeof answer) answer.response_length = out->length;
      return give(c, 1, &answer, sizeof answer);
    }
    case ALLOC_PD: {
      uint32_t handle = new_handle();
      return give_whole(c, 1, &handle, sizeof handle);
    }
    case DEALLOC_PD:
      return 0;
  }
  return -EOPNOTSUPP;
}

// connect_events connects to the daemon, which sends the events of an adapter as the program is to read them. It returns the
// connection, or a negative error number.
static int connect_events(int number) {
  char path[PATH_MAX];
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int folder = tree_path(path, sizeof path, "/run") ? kernel_open(path, O_PATH | O_DIRECTORY) : -ENOENT;
  if (folder < 0) return folder;
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/mock-ib-events.sock", folder);
  int fd = (int)kernel(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
  uint32_t device = (uint32_t)number;
  long result = fd < 0 ? fd : kernel(SYS_connect, fd, (long)&address, sizeof address, 0);
  if (result >= 0) result = kernel(SYS_write, fd, (long)&device, sizeof device, 0);
  if (result >= 0) result = kernel(SYS_fcntl, fd, F_SETFL, O_RDWR, 0);
  kernel_close(folder);
  if (result >= 0) return fd;
  if (fd >= 0) kernel_close(fd);
  return (int)result;
}

// async_event gives the program the descriptor from which it reads events. Without the daemon there are none: then it is one that
// never becomes readable.
static int async_event(struct call *c, const struct device *d) {
  struct attribute *a = attribute(c, 0);
  if (!a) return -EINVAL;
  int fd = connect_events(d->number);
  if (fd < 0) {
    int kept = errno;
    fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0) fd = -errno;
    errno = kept;
  }
  if (fd < 0) return fd;
  uint64_t data = (uint64_t)fd;
  if (hand(&c->at[a - c->attributes].data, &data, sizeof data)) return 0;
  kernel_close(fd);
  return -EFAULT;
}

// ---- Calls -----------------------------------------------------------------------------------------------------------

enum { DEVICE = 0, PD = 1, CQ = 3, SRQ = 5, LAST_OBJECT = 0x13, ASYNC_EVENT = 0x10, DRIVERS = 0x1000, CREATE = 0, DESTROY = 1 };

int uverbs_ioctl(int fd, int number, void *argument) {
  struct call c;
  if (!take(&c.head, argument, sizeof c.head)) return -EFAULT;
  if (c.head.length != sizeof c.head + c.head.count * sizeof *c.attributes || c.head.count > MOST_ATTRIBUTES || c.head.reserved1 ||
      c.head.reserved2)
    return -EINVAL;
  c.at = (struct attribute *)((struct request *)argument + 1);
  if (c.head.count && !take(c.attributes, c.at, c.head.count * sizeof *c.attributes)) return -EFAULT;
  struct device d;
  if (!device_find(&d, number)) return -EIO;
  uint32_t what = (uint32_t)c.head.object << 16 | c.head.method;
  enum { INVOKE_WRITE = 0, QUERY_PORT = 2, GET_CONTEXT = 3, QUERY_GID_TABLE = 5, QUERY_GID_ENTRY = 6 };
  bool probes = what == INVOKE_WRITE && !attribute(&c, 1);
  if (what != GET_CONTEXT && !probes && kernel(SYS_lseek, fd, 0, SEEK_CUR, 0) != HAS_CONTEXT) return -EINVAL;
  switch (what) {
    case INVOKE_WRITE:
      return invoke_write(&c, &d);
    case QUERY_PORT:
      return query_port(&c, &d);
    case GET_CONTEXT:
      return get_context(&c, fd, &d);
    case QUERY_GID_TABLE:
      return query_gid_table(&c, &d);
    case QUERY_GID_ENTRY:
      return query_gid_entry(&c, &d);
    case ASYNC_EVENT << 16:
      return async_event(&c, &d);
    case PD << 16:  // PDs have no method to make one here
      return 0;
    case CQ << 16 | CREATE: {
      struct query_device limits = query_device(&d);
      return create_cq(&c, &limits);
    }
    case CQ << 16 | DESTROY:
      if (attribute(&c, 0)) return destroy(&c, 2);
      break;
    case SRQ << 16 | CREATE: {
      struct query_device limits = query_device(&d);
      return create_srq(&c, &limits);
    }
    case SRQ << 16 | DESTROY:
      if (attribute(&c, 0)) return destroy(&c, 1);
      break;
  }
  if (c.head.object != DEVICE && c.head.object <= LAST_OBJECT) return -EOPNOTSUPP;
  return -EPROTONOSUPPORT;
}
