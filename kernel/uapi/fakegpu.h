/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The interface of /dev/fakegpu. It is fixed: what is here never changes its number, size or meaning. What comes later gets
 * a number of its own, or a flag that today's kernel refuses.
 *
 * Every open() makes a context with handles of its own. Structures have the same layout for 32- and 64-bit callers. A reserved
 * field or an unknown flag that is not 0 is EINVAL; an unknown command is ENOTTY; a bad pointer is EFAULT.
 */
#ifndef FAKEGPU_UAPI_H
#define FAKEGPU_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FAKEGPU_ABI_VERSION 1

/* The device's resources, and how much of them is in use now. */
struct fakegpu_info {
	__u32 abi_version;	/* out: FAKEGPU_ABI_VERSION of the kernel */
	__u32 max_handles;	/* out: allocations that one context may hold */
	__u64 device_bytes;	/* out: memory of the device */
	__u64 device_used;	/* out: the part of it that all contexts together hold */
	__u64 context_bytes;	/* out: memory that one context may hold */
	__u64 context_used;	/* out: the part of it that this context holds */
	__u32 context_handles;	/* out: allocations that this one holds */
	__u32 job_latency_us;	/* out: from a job's submission to its completion, if no other job is before it */
	char name[32];		/* out: ends in a NUL */
};

/* EINVAL: size 0. ENOSPC: the context's quota, of bytes or of handles. ENOMEM: the device's memory, or the kernel's. */
struct fakegpu_alloc {
	__u64 size;		/* in: bytes; counted in pages of 4096 */
	__u32 flags;		/* in: 0 */
	__u32 handle;		/* out: never 0, never used twice in a context */
};

/* EINVAL: no handle of this context. A job that uses the allocation keeps its memory until it completes. */
struct fakegpu_free {
	__u32 handle;		/* in */
	__u32 reserved;		/* in: 0 */
};

/* Starts a job on an allocation. Jobs of a context complete in the order of their submission. EINVAL: no handle of
 * this context. EAGAIN: too many jobs are running. */
struct fakegpu_submit {
	__u32 handle;		/* in */
	__u32 flags;		/* in: 0 */
	__u64 seqno;		/* out: 1 for the first job of the context, then one more each time */
};

#define FAKEGPU_WAIT_FOREVER (-1)

/* Waits until the job has completed. EINVAL: it was never submitted. ETIMEDOUT, EINTR: completed_seq is written all the same. */
struct fakegpu_wait {
	__u64 seqno;		/* in */
	__s64 timeout_ns;	/* in: FAKEGPU_WAIT_FOREVER, or not negative; 0 does not wait */
	__u64 completed_seq;	/* out: the last job that has completed */
};

#define FAKEGPU_IOCTL_INFO	_IOR('G', 0x40, struct fakegpu_info)
#define FAKEGPU_IOCTL_ALLOC	_IOWR('G', 0x41, struct fakegpu_alloc)
#define FAKEGPU_IOCTL_FREE	_IOW('G', 0x42, struct fakegpu_free)
#define FAKEGPU_IOCTL_SUBMIT	_IOWR('G', 0x43, struct fakegpu_submit)
#define FAKEGPU_IOCTL_WAIT	_IOWR('G', 0x44, struct fakegpu_wait)

/* The same requests by shorter names. */
#define FAKEGPU_INFO	FAKEGPU_IOCTL_INFO
#define FAKEGPU_ALLOC	FAKEGPU_IOCTL_ALLOC
#define FAKEGPU_FREE	FAKEGPU_IOCTL_FREE
#define FAKEGPU_SUBMIT	FAKEGPU_IOCTL_SUBMIT
#define FAKEGPU_WAIT	FAKEGPU_IOCTL_WAIT

/* mmap() of the descriptor, offset 0, one page, MAP_SHARED, PROT_READ, maps this structure. The kernel writes it as
 * jobs are submitted and complete, so reading completed_seq needs no system call. Any other mapping is EINVAL, or
 * EPERM if it is writable.
 *
 * poll(): POLLIN while completed_seq is greater than every completed_seq that a WAIT of this context has returned;
 * POLLOUT while SUBMIT would not return EAGAIN. */
struct fakegpu_page {
	__u32 abi_version;
	__u32 reserved;
	__u64 completed_seq;
	__u64 submitted_seq;
};

#endif
