/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of fakegpu.ko share. */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/types.h>

/* module.c: parameters, checked before the device exists and constant afterwards. */
struct fakegpu_params {
	u64 device_bytes, context_bytes;
	u32 max_handles, max_jobs, job_latency_us;
	bool leak;
};

extern struct fakegpu_params fakegpu_params;

/* One file each in /sys/class/misc/fakegpu/stats. The first four are present values and are 0 when
 * all files are closed; the others only grow. */
#define FAKEGPU_STATS(X) \
	X(contexts) X(handles) X(device_used) X(jobs) \
	X(contexts_opened) X(jobs_submitted) X(jobs_completed) X(jobs_dropped) X(waits) \
	X(einval) X(efault) X(enospc) X(enomem) X(eagain) X(etimedout) X(eintr)

struct fakegpu_stats {
#define X(name) atomic64_t name;
	FAKEGPU_STATS(X)
#undef X
};

extern struct fakegpu_stats fakegpu_stats;

/* device.c: the calls on an open /dev/fakegpu. */
extern const struct file_operations fakegpu_fops;

/* nvidia.c: the NVIDIA personality. Each function is called once, and does nothing unless a
 * parameter asks for the personality. */
int fakegpu_nvidia_init(void);
bool fakegpu_nvidia_exit(void);	/* whether it had a leak to report */

#endif
