/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the parts of vgpu.ko. */
#ifndef VGPU_H
#define VGPU_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/types.h>

#include "../logic/ledger.h"
#include "../uapi/nvrm.h"
#include "../uapi/vgpuctl.h"

/* ---- module.c: parameters, mode, counts ---------------------------------------------------------------------------------------------- */

extern bool vgpu_memory_trace, vgpu_compute_trace, vgpu_clear_on_last_close, vgpu_control_events, vgpu_private_arguments, vgpu_allow_enforce;
extern unsigned long long vgpu_alloc_min_bytes, vgpu_alloc_max_bytes;

enum vgpu_mode vgpu_mode(void);
int vgpu_set_mode(u32 mode);		/* -EINVAL, -EPERM */
void vgpu_mode_update(void);		/* called when a driver was loaded or removed */
void vgpu_defaults(struct policy_defaults *d);

/* One mutex for all that follows. It is not held during the driver's functions and copies from and
 * to user space. */
extern struct mutex vgpu_lock;
extern struct ledger vgpu_ledger;
extern struct policies vgpu_policies;
void vgpu_state_drop(void);		/* forgets everything about a removed driver; policies stay */

/* The counts of vgpu_stats that only grow, per processor. */
DECLARE_PER_CPU(struct vgpu_stats, vgpu_counts);
#define vgpu_count(field) this_cpu_inc(vgpu_counts.field)
void vgpu_stats_get(struct vgpu_stats *out);

/* ---- hook.c: the driver's functions and the detours ---------------------------------------------------------------------------------- */

enum vgpu_hook { VGPU_HOOK_OPEN, VGPU_HOOK_CLOSE, VGPU_HOOK_IOCTL, VGPU_HOOK_COMPAT, VGPU_HOOKS };

struct vgpu_driver;
int vgpu_real_open(const struct vgpu_driver *d, struct inode *inode, struct file *file);
int vgpu_real_close(const struct vgpu_driver *d, struct inode *inode, struct file *file);
long vgpu_real_ioctl(const struct vgpu_driver *d, struct file *file, unsigned int cmd, unsigned long arg);

struct vgpu_hook_info { const char *driver, *function; unsigned long address; u64 calls; };
/* Calls visit for each function that is hooked now. */
void vgpu_hooks_each(void (*visit)(const struct vgpu_hook_info *h, void *context), void *context);

struct vgpu_fingerprint {
	bool hooked, known;
	char driver[32], version[32], srcversion[32];
	char reason[96];		/* why it is not known or not hooked, or "-" */
};
void vgpu_fingerprint_get(struct vgpu_fingerprint *out);
bool vgpu_driver_known(void);		/* hooked, and the module may enforce on its version */

int vgpu_hooks_start(void);
void vgpu_hooks_stop(void);		/* returns once no call is in the module any more */

/* ---- files.c, calls.c: the driver's calls
 * ------------------------------------------------------------------------------------------ */

int vgpu_open(const struct vgpu_driver *d, struct inode *inode, struct file *file);
int vgpu_close(const struct vgpu_driver *d, struct inode *inode, struct file *file);
long vgpu_ioctl(const struct vgpu_driver *d, struct file *file, unsigned int cmd, unsigned long arg);
struct vgpu_task;
/* Both: vgpu_lock is held. */
void vgpu_files_leave(struct vgpu_task *task);	/* it has ended */
void vgpu_files_reset(void);

/* ---- gpus.c: which minor number a device instance has, and counts by number of the call ---------------------------------------------- */

u32 vgpu_instance_minor(u32 instance);
const u32 *vgpu_minors(u32 *count);	/* by instance; vgpu_lock is held */
void vgpu_learn_cards(const void __user *cards, u32 bytes);
void vgpu_learn_id(const void __user *info);
void vgpu_gpus_reset(void);

void vgpu_count_escape(u32 escape);
void vgpu_count_control(u32 command);
void vgpu_counts_each(void (*visit)(bool control, u32 number, u64 count, void *context), void *context);

/* ---- subject.c: processes and cgroups ------------------------------------------------------------------------------------------------ */

/* A process that has used the driver or has a policy. */
struct vgpu_task {
	struct hlist_node node;		/* by tgid, under a spinlock that the exit takes */
	struct llist_node dead;
	u32 tgid, uid;
	u64 cgroup_id;			/* where it was when last seen */
	struct list_head uses;		/* of open files that it opened or made calls through; see files.c */
	u32 files;			/* how many */
	u32 calls;			/* number of its calls that are in the driver now */
	char comm[TASK_COMM_LEN];
};

/* All of these: vgpu_lock is held. */
struct vgpu_task *vgpu_task_find(u32 tgid);
struct vgpu_task *vgpu_task_current(void);		/* made if it is missing; NULL: no memory, or the task is exiting */
/* Finds another process, by its number in the caller's PID namespace; -ESRCH, -ENOMEM. If make is false, *task may
 * become NULL. */
int vgpu_task_get(u32 nr, bool make, struct vgpu_task **task, u32 *tgid);
void vgpu_tasks_each(void (*visit)(const struct vgpu_task *t, void *context), void *context);
u64 vgpu_tasks_count(void);
/* Forgets processes and cgroups that have ended. Whoever takes vgpu_lock to look one up calls this first, so that a
 * process with a reused number never gets the state of an earlier one. */
void vgpu_reap(void);

void vgpu_subject_current(struct policy_subject *s, u32 minor);
u64 vgpu_cgroup_current(void);
int vgpu_cgroup_alive(u64 id);				/* -ENOENT */

int vgpu_subjects_start(void);
void vgpu_subjects_stop(void);

/* ---- events.c ------------------------------------------------------------------------------------------------------------------------ */

/* Fills in sequence and time, and the current process unless tgid is set. */
void vgpu_event(struct vgpu_event *e);
int vgpu_events_open(struct file *file);
void vgpu_events_release(struct file *file);
ssize_t vgpu_events_read(struct file *file, char __user *buffer, size_t size, loff_t *offset);
__poll_t vgpu_events_poll(struct file *file, struct poll_table_struct *wait);
/* Calls visit for each event that is still kept, oldest first. visit may sleep. */
void vgpu_events_each(void (*visit)(const struct vgpu_event *e, void *context), void *context);

struct vgpu_timeslice {
	u64 time_ns, asked_us, given_us, cgroup_id, weight;
	u32 tgid, minor, client, object, status;
	enum vgpu_scope scope;
	bool dry_run;
	char comm[TASK_COMM_LEN];
};
#define VGPU_TIMESLICES 256
/* vgpu_lock is held. The last VGPU_TIMESLICES of them are kept. */
void vgpu_timeslice_log(const struct vgpu_timeslice *t);
void vgpu_timeslices_each(void (*visit)(const struct vgpu_timeslice *t, void *context), void *context);

/* ---- device.c, debugfs.c ------------------------------------------------------------------------------------------------------------- */

int vgpu_control_start(void);
void vgpu_control_stop(void);
void vgpu_debugfs_start(void);
void vgpu_debugfs_stop(void);

#endif
