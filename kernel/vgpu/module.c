// SPDX-License-Identifier: GPL-2.0-only
/* vgpu.ko: tracing, accounting and policy over the devices of NVIDIA's driver. */
#define pr_fmt(fmt) "vgpu: " fmt

#include <linux/module.h>

#include "vgpu.h"

static bool dry_run = true;
module_param(dry_run, bool, 0444);
MODULE_PARM_DESC(dry_run, "only report what the policies would do (default: 1)");

bool vgpu_allow_enforce;
module_param_named(allow_enforce, vgpu_allow_enforce, bool, 0444);
MODULE_PARM_DESC(allow_enforce, "let calls be refused and changed at all; with dry_run=0 from the start (default: 0)");

bool vgpu_memory_trace = true;
module_param_named(memory_trace, vgpu_memory_trace, bool, 0444);
MODULE_PARM_DESC(memory_trace, "account for memory and heed its limits (default: 1)");

bool vgpu_compute_trace = true;
module_param_named(compute_trace, vgpu_compute_trace, bool, 0444);
MODULE_PARM_DESC(compute_trace, "watch timeslices and heed their rules (default: 1)");

unsigned long long vgpu_alloc_min_bytes = 16777216;
module_param_named(memory_alloc_min_bytes, vgpu_alloc_min_bytes, ullong, 0444);
MODULE_PARM_DESC(memory_alloc_min_bytes, "allocations below this are neither accounted nor limited (default: 16777216)");

unsigned long long vgpu_alloc_max_bytes;
module_param_named(memory_alloc_max_bytes, vgpu_alloc_max_bytes, ullong, 0444);
MODULE_PARM_DESC(memory_alloc_max_bytes, "a single allocation above this is over the limit; 0: no such limit (default)");

static unsigned long long memory_trace_limit_bytes;
module_param(memory_trace_limit_bytes, ullong, 0444);
MODULE_PARM_DESC(memory_trace_limit_bytes, "limit of a process that no policy covers; 0: none (default)");

bool vgpu_clear_on_last_close = true;
module_param_named(clear_memory_on_last_close, vgpu_clear_on_last_close, bool, 0444);
MODULE_PARM_DESC(clear_memory_on_last_close, "forget a process's memory when its last open file of the driver closes, not only when it ends (default: 1)");

static unsigned long long timeslice_min_us, timeslice_max_us;
module_param(timeslice_min_us, ullong, 0444);
MODULE_PARM_DESC(timeslice_min_us, "least timeslice, where no policy says another; 0: none (default)");
module_param(timeslice_max_us, ullong, 0444);
MODULE_PARM_DESC(timeslice_max_us, "greatest timeslice, where no policy says another; 0: none (default)");

bool vgpu_control_events;
module_param_named(control_events, vgpu_control_events, bool, 0444);
MODULE_PARM_DESC(control_events, "an event for every control command, not only a count (default: 0)");

bool vgpu_private_arguments = true;
module_param_named(private_arguments, vgpu_private_arguments, bool, 0444);
MODULE_PARM_DESC(private_arguments, "while enforcing, have the driver read copies that no other thread can change (default: 1)");

DEFINE_MUTEX(vgpu_lock);
struct ledger vgpu_ledger;
struct policies vgpu_policies;
DEFINE_PER_CPU(struct vgpu_stats, vgpu_counts);

void vgpu_state_drop(void)
{
	mutex_lock(&vgpu_lock);
	vgpu_files_reset();
	ledger_clear(&vgpu_ledger);
	vgpu_gpus_reset();
	mutex_unlock(&vgpu_lock);
}

/* ---- Mode ---------------------------------------------------------------------------------------------------------------------------- */

static DEFINE_MUTEX(mode_lock);
static u32 wanted;		/* as set */
static u32 mode;		/* enforcing needs a known driver */

enum vgpu_mode vgpu_mode(void)
{
	return READ_ONCE(mode);
}

static const char * const mode_names[] = { "off", "dry run", "enforcing" };

static void update_locked(void)
{
	u32 now = wanted == VGPU_MODE_ENFORCE && !vgpu_driver_known() ? VGPU_MODE_DRY_RUN : wanted;

	if (now != mode)
		pr_info("%s\n", mode_names[now]);
	WRITE_ONCE(mode, now);
}

void vgpu_mode_update(void)
{
	mutex_lock(&mode_lock);
	update_locked();
	mutex_unlock(&mode_lock);
}

int vgpu_set_mode(u32 to)
{
	int err = 0;

	if (to > VGPU_MODE_ENFORCE)
		return -EINVAL;
	mutex_lock(&mode_lock);
	if (to == VGPU_MODE_ENFORCE && (!vgpu_allow_enforce || !vgpu_driver_known())) {
		err = -EPERM;
	} else {
		wanted = to;
		update_locked();
	}
	mutex_unlock(&mode_lock);
	return err;
}

void vgpu_defaults(struct policy_defaults *d)
{
	*d = (struct policy_defaults){ memory_trace_limit_bytes, timeslice_min_us, timeslice_max_us, vgpu_mode() != VGPU_MODE_ENFORCE };
}

/* ---- Counts -------------------------------------------------------------------------------------------------------------------------- */

void vgpu_stats_get(struct vgpu_stats *out)
{
	int cpu, i;

	memset(out, 0, sizeof(*out));
	for_each_possible_cpu(cpu)
		for (i = 0; i < sizeof(*out) / sizeof(u64); i++)
			((u64 *)out)[i] += ((u64 *)per_cpu_ptr(&vgpu_counts, cpu))[i];
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	out->objects = vgpu_ledger.objects.table.count;
	out->tasks = vgpu_tasks_count();
	out->cgroups = vgpu_ledger.cgroups.count;
	out->policies = vgpu_policies.tgid.count;
	out->cgroup_policies = vgpu_policies.cgroup.count;
	mutex_unlock(&vgpu_lock);
}

/* ---- Loading and removing
 * ------------------------------------------------------------------------------------------------------------ */

static int __init vgpu_init(void)
{
	int err;

	if (timeslice_max_us && timeslice_min_us > timeslice_max_us) {
		pr_err("timeslice_min_us=%llu is above timeslice_max_us=%llu; load it with other values\n", timeslice_min_us, timeslice_max_us);
		return -EINVAL;
	}
	if (!dry_run && !vgpu_allow_enforce)
		pr_notice("dry_run=0 does nothing without allow_enforce=1: dry run\n");
	wanted = !dry_run && vgpu_allow_enforce ? VGPU_MODE_ENFORCE : VGPU_MODE_DRY_RUN;
	mode = VGPU_MODE_DRY_RUN;
	vgpu_gpus_reset();

	err = vgpu_subjects_start();
	if (err)
		return err;
	err = vgpu_control_start();
	if (err)
		goto subjects;
	err = vgpu_hooks_start();
	if (err)
		goto control;
	vgpu_debugfs_start();
	pr_info("ready: %s, see /sys/kernel/debug/vgpu and vgpuctl\n", mode_names[vgpu_mode()]);
	return 0;
control:
	vgpu_control_stop();
subjects:
	vgpu_subjects_stop();
	return err;
}

static void __exit vgpu_exit(void)
{
	vgpu_debugfs_stop();
	vgpu_control_stop();
	vgpu_hooks_stop();
	vgpu_subjects_stop();
	vgpu_state_drop();
	policies_clear(&vgpu_policies);
}

module_init(vgpu_init);
module_exit(vgpu_exit);
MODULE_DESCRIPTION("Tracing, accounting and policy over the devices of NVIDIA's driver");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
