/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The interface of /dev/vgpuctl: policies for what tasks and cgroups may use of the GPUs of NVIDIA's driver. It is fixed: what
 * is here never changes its number, size or meaning.
 *
 * Setting and clearing need CAP_SYS_ADMIN in the initial user namespace, and so does opening the device. Structures have the same layout for 32-
 * and 64-bit callers. A reserved field or an unknown flag that is not 0 is EINVAL; an unknown command is ENOTTY.
 */
#ifndef VGPUCTL_UAPI_H
#define VGPUCTL_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define VGPU_ABI_VERSION 1

/* Replaces a minor number: means every GPU that has no policy of its own in the same scope. */
#define VGPU_MINOR_ANY 0xffffffffu

#define VGPU_WEIGHT_MAX 10000u

/* Report what the policy would do, and do nothing, even while the module enforces. */
#define VGPU_LIMIT_DRY_RUN (1u << 0)

struct vgpu_limits {
	__u64 memory_limit_bytes;	/* device memory; 0: no limit */
	__u64 timeslice_min_us;		/* 0: the module's timeslice_min_us */
	__u64 timeslice_max_us;		/* 0: the module's timeslice_max_us */
	__u32 weight;			/* timeslices are multiplied by it, up to VGPU_WEIGHT_MAX; 0: they are only clamped */
	__u32 flags;			/* VGPU_LIMIT_* */
};

/* The policy of a process. It ends with the process. ESRCH: no such process. ENOENT, for GET and CLEAR: no such
 * policy. */
struct vgpu_policy {
	__u32 tgid;			/* in: as the caller's PID namespace numbers it */
	__u32 minor;			/* in: N of /dev/nvidiaN, or VGPU_MINOR_ANY */
	struct vgpu_limits limits;	/* SET: in, GET: out */
};

/* The policy of a cgroup, and of those below it that have none of their own. It ends with the cgroup. ENOENT: for
 * SET no such cgroup, for GET and CLEAR no such policy. */
struct vgpu_cgroup_policy {
	__u64 cgroup_id;		/* in: the inode number of the folder in cgroup2 */
	__u32 minor;			/* in: as above */
	__u32 reserved;			/* in: 0 */
	struct vgpu_limits limits;	/* SET: in, GET: out */
};

/* GET fills in the limits of the structure that asks for them: a query is the same structure by another name. */
#define vgpu_cgroup_policy_query vgpu_cgroup_policy

enum vgpu_mode {
	VGPU_MODE_OFF = 0,		/* nothing is traced, accounted or changed */
	VGPU_MODE_DRY_RUN = 1,		/* everything is accounted and reported, nothing is changed */
	VGPU_MODE_ENFORCE = 2,		/* EPERM unless the module was loaded with allow_enforce=1 and knows the driver */
};

struct vgpu_info {
	__u32 abi_version;		/* out: VGPU_ABI_VERSION of the kernel */
	__u32 mode;			/* out: enum vgpu_mode */
	__u32 may_enforce;		/* out: 1 if VGPU_MODE_ENFORCE may be set */
	__u32 hooked;			/* out: 1 while a driver is there and hooked */
	char driver[32];		/* out: "nvidia", "fakegpu" or "" */
	char driver_version[32];	/* out */
};

/* Counts since the module was loaded. */
struct vgpu_stats {
	__u64 opens, closes, ioctls;
	__u64 allocs, frees, controls, dups;	/* of resource manager objects, tried */
	__u64 memory_charged, memory_denied, memory_would_deny;
	__u64 timeslices_seen, timeslices_rewritten, timeslices_would_rewrite;
	__u64 xfer_unwrapped, compat_calls;
	__u64 races;			/* an argument had been changed by another thread when the driver came back */
	__u64 faults;			/* an argument could not be read */
	__u64 events, events_lost;
	__u64 objects, tasks, cgroups, policies, cgroup_policies;	/* now */
};

/* Present use of memory. tgid 0: by the cgroup and those below it; otherwise by the process, and cgroup_id is 0. */
struct vgpu_usage {
	__u64 cgroup_id;		/* in */
	__u32 tgid;			/* in */
	__u32 minor;			/* in: as above; VGPU_MINOR_ANY: of all GPUs */
	__u64 device_bytes;		/* out: counts against memory_limit_bytes */
	__u64 system_bytes;		/* out: of the host's memory */
	__u64 virtual_bytes;		/* out: address ranges */
	__u64 peak_device_bytes;	/* out */
	__u64 allocations;		/* out */
	__u64 denied;			/* out: allocations refused, or that would have been */
	__u64 timeslices;		/* out: timeslices set */
	__u64 timeslice_us;		/* out: the last one, as the driver got it */
};

#define VGPU_IOCTL_GET_INFO		_IOR('v', 0x40, struct vgpu_info)
#define VGPU_IOCTL_SET_MODE		_IOW('v', 0x41, __u32)
#define VGPU_IOCTL_GET_STATS		_IOR('v', 0x42, struct vgpu_stats)
#define VGPU_IOCTL_GET_USAGE		_IOWR('v', 0x43, struct vgpu_usage)
#define VGPU_IOCTL_SET_POLICY		_IOW('v', 0x48, struct vgpu_policy)
#define VGPU_IOCTL_GET_POLICY		_IOWR('v', 0x49, struct vgpu_policy)
#define VGPU_IOCTL_CLEAR_POLICY		_IOW('v', 0x4a, struct vgpu_policy)
#define VGPU_IOCTL_SET_CGROUP_POLICY	_IOW('v', 0x4c, struct vgpu_cgroup_policy)
#define VGPU_IOCTL_GET_CGROUP_POLICY	_IOWR('v', 0x4d, struct vgpu_cgroup_policy)
#define VGPU_IOCTL_CLEAR_CGROUP_POLICY	_IOW('v', 0x4e, struct vgpu_cgroup_policy)

enum vgpu_event_type {
	VGPU_EVENT_OPEN = 1,
	VGPU_EVENT_CLOSE = 2,
	VGPU_EVENT_ALLOC = 3,		/* value: bytes of memory, 0 for another object */
	VGPU_EVENT_FREE = 4,		/* value: bytes given back */
	VGPU_EVENT_DUP = 5,
	VGPU_EVENT_CONTROL = 6,
	VGPU_EVENT_DENY = 7,		/* value: bytes asked for, detail: the limit */
	VGPU_EVENT_TIMESLICE = 8,	/* value: microseconds asked for, detail: microseconds that the driver got or would have got */
	VGPU_EVENT_EXIT = 9,		/* value: bytes that the process still held */
	VGPU_EVENT_RACE = 10,		/* value: what was checked, detail: what was there afterwards */
	VGPU_EVENT_CGROUP_GONE = 11,
};

enum vgpu_scope { VGPU_SCOPE_NONE = 0, VGPU_SCOPE_CGROUP = 1, VGPU_SCOPE_TGID = 2, VGPU_SCOPE_MODULE = 3 };

#define VGPU_EVENT_DRY_RUN (1u << 0)
#define VGPU_EVENT_XFER (1u << 1)
#define VGPU_EVENT_COMPAT (1u << 2)

/* read() returns as many whole events as fit. It waits for one unless O_NONBLOCK is set. An open file starts with
 * the events after its opening. sequence grows by one each time; a gap means that the reader was too slow. poll():
 * POLLIN. */
struct vgpu_event {
	__u64 sequence;
	__u64 time_ns;			/* CLOCK_BOOTTIME */
	__u32 type;			/* enum vgpu_event_type */
	__u32 flags;			/* VGPU_EVENT_* */
	__u32 tgid, tid;		/* in the initial PID namespace */
	__u64 cgroup_id;
	__u32 minor;			/* VGPU_MINOR_ANY: not known */
	__u32 scope;			/* enum vgpu_scope, of the policy that decided */
	__u64 value, detail;
	__u32 client, object;		/* handles of the resource manager */
	__u32 code;			/* class of an object, command of a control, number of another ioctl */
	__u32 status;			/* what the driver or the module answered */
	char comm[16];
};

#endif
