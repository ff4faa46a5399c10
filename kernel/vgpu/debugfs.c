// SPDX-License-Identifier: GPL-2.0-only
/* Files below vgpu/ in debugfs that show the module's state. The first line of each names its columns. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "vgpu.h"

static const char *scope_name(enum vgpu_scope scope)
{
	static const char * const names[] = { "none", "cgroup", "tgid", "module" };

	return scope < ARRAY_SIZE(names) ? names[scope] : "?";
}

static const char *mode_name(enum vgpu_mode mode)
{
	static const char * const names[] = { "off", "dry_run", "enforce" };

	return names[mode];
}

static void minor_show(struct seq_file *m, u32 minor)
{
	if (minor == VGPU_MINOR_ANY)
		seq_puts(m, " any");
	else
		seq_printf(m, " %u", minor);
}

/* A process chooses its own name, so blanks and line ends in it are replaced: they would break the
 * columns. */
static void comm_show(struct seq_file *m, const char *comm)
{
	seq_putc(m, ' ');
	if (*comm)
		seq_escape(m, comm, " \t\n\\");
	else
		seq_putc(m, '-');
}

static int enabled_show(struct seq_file *m, void *unused)
{
	struct vgpu_fingerprint f;

	vgpu_fingerprint_get(&f);
	seq_puts(m, "mode hooked may_enforce memory_trace compute_trace\n");
	seq_printf(m, "%s %d %d %d %d\n", mode_name(vgpu_mode()), f.hooked, vgpu_allow_enforce && f.known, vgpu_memory_trace, vgpu_compute_trace);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(enabled);

static int driver_fingerprint_show(struct seq_file *m, void *unused)
{
	struct vgpu_fingerprint f;

	vgpu_fingerprint_get(&f);
	seq_puts(m, "driver version srcversion hooked known reason\n");
	seq_printf(m, "%s %s %s %d %d %s\n", *f.driver ? f.driver : "-", *f.version ? f.version : "-", *f.srcversion ? f.srcversion : "-",
		   f.hooked, f.known, f.reason);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(driver_fingerprint);

static void hook_line(const struct vgpu_hook_info *h, void *context)
{
	seq_printf(context, "%s %s %px %llu\n", h->driver, h->function, (void *)h->address, h->calls);
}

static int hooks_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "driver function address calls\n");
	vgpu_hooks_each(hook_line, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(hooks);

static void policy_line(u64 id, u32 minor, const struct vgpu_limits *l, void *context)
{
	struct seq_file *m = context;

	seq_printf(m, "%llu", id);
	minor_show(m, minor);
	seq_printf(m, " %llu %llu %llu %u %d\n", l->memory_limit_bytes, l->timeslice_min_us, l->timeslice_max_us, l->weight,
		   !!(l->flags & VGPU_LIMIT_DRY_RUN));
}

static void policies_of(struct seq_file *m, enum vgpu_scope scope)
{
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	policy_each(&vgpu_policies, scope, policy_line, m);
	mutex_unlock(&vgpu_lock);
}

static int policies_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "tgid minor memory_limit_bytes timeslice_min_us timeslice_max_us weight dry_run\n");
	policies_of(m, VGPU_SCOPE_TGID);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(policies);

static int cgroup_policies_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "cgroup_id minor memory_limit_bytes timeslice_min_us timeslice_max_us weight dry_run\n");
	policies_of(m, VGPU_SCOPE_CGROUP);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cgroup_policies);

#define ACCOUNT_COLUMNS "minor device_bytes system_bytes virtual_bytes peak_device_bytes allocations denied timeslices timeslice_us"

static void account_show(struct seq_file *m, const struct ledger_account *a)
{
	minor_show(m, a->node.b);
	seq_printf(m, " %llu %llu %llu %llu %llu %llu %llu %llu\n", a->bytes[RM_MEMORY_DEVICE], a->bytes[RM_MEMORY_SYSTEM],
		   a->bytes[RM_MEMORY_VIRTUAL], a->peak_device_bytes, a->allocations, a->denied, a->timeslices, a->timeslice_us);
}

static int cgroup_line(struct table_node *n, void *context)
{
	const struct ledger_account *a = container_of(n, struct ledger_account, node);

	seq_printf(context, "%llu", a->node.a);
	account_show(context, a);
	return 0;
}

static int cgroups_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "cgroup_id " ACCOUNT_COLUMNS "\n");
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	table_each(&vgpu_ledger.cgroups, cgroup_line, m);
	mutex_unlock(&vgpu_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cgroups);

static int task_account(struct table_node *n, void *context)
{
	const struct ledger_account *a = container_of(n, struct ledger_account, node);
	const struct vgpu_task *t = vgpu_task_find(a->node.a);
	struct seq_file *m = context;

	seq_printf(m, "%llu %u %llu %u", a->node.a, t ? t->uid : 0, t ? t->cgroup_id : 0, t ? t->files : 0);
	comm_show(m, t ? t->comm : "");
	account_show(m, a);
	return 0;
}

/* A task that has used nothing yet. */
static void task_line(const struct vgpu_task *t, void *context)
{
	struct vgpu_usage usage;
	struct ledger_account none = { .node = { .b = VGPU_MINOR_ANY } };
	struct seq_file *m = context;

	if (!ledger_usage(&vgpu_ledger, VGPU_SCOPE_TGID, t->tgid, VGPU_MINOR_ANY, &usage))
		return;
	seq_printf(m, "%u %u %llu %u", t->tgid, t->uid, t->cgroup_id, t->files);
	comm_show(m, t->comm);
	account_show(m, &none);
}

static int tasks_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "tgid uid cgroup_id files comm " ACCOUNT_COLUMNS "\n");
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	table_each(&vgpu_ledger.tasks, task_account, m);
	vgpu_tasks_each(task_line, m);
	mutex_unlock(&vgpu_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tasks);

static const char *event_name(u32 type)
{
	static const char * const names[] = {
		[VGPU_EVENT_OPEN] = "open", [VGPU_EVENT_CLOSE] = "close", [VGPU_EVENT_ALLOC] = "alloc", [VGPU_EVENT_FREE] = "free",
		[VGPU_EVENT_DUP] = "dup", [VGPU_EVENT_CONTROL] = "control", [VGPU_EVENT_DENY] = "deny", [VGPU_EVENT_TIMESLICE] = "timeslice",
		[VGPU_EVENT_EXIT] = "exit", [VGPU_EVENT_RACE] = "race", [VGPU_EVENT_CGROUP_GONE] = "cgroup_gone",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "?";
}

static void event_line(const struct vgpu_event *e, void *context)
{
	struct seq_file *m = context;

	seq_printf(m, "%llu %llu %s %s%s%s%s %u %u", e->sequence, e->time_ns, event_name(e->type), e->flags & VGPU_EVENT_DRY_RUN ? "d" : "",
		   e->flags & VGPU_EVENT_XFER ? "x" : "", e->flags & VGPU_EVENT_COMPAT ? "c" : "", e->flags ? "" : "-", e->tgid, e->tid);
	comm_show(m, e->comm);
	seq_printf(m, " %llu", e->cgroup_id);
	minor_show(m, e->minor);
	seq_printf(m, " %s %llu %llu %#x %#x %#x %#x\n", scope_name(e->scope), e->value, e->detail, e->client, e->object, e->code, e->status);
}

static int events_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "sequence time_ns type flags tgid tid comm cgroup_id minor policy_scope value detail client object code status\n");
	vgpu_events_each(event_line, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(events);

static void timeslice_line(const struct vgpu_timeslice *t, void *context)
{
	struct seq_file *m = context;

	seq_printf(m, "%llu %u", t->time_ns, t->tgid);
	comm_show(m, t->comm);
	minor_show(m, t->minor);
	seq_printf(m, " %#x %#x %llu %llu %llu %s %llu %d %#x\n", t->client, t->object, t->asked_us, t->given_us, t->weight,
		   scope_name(t->scope), t->cgroup_id, t->dry_run, t->status);
}

static int timeslices_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "time_ns tgid comm minor client object asked_us given_us weight policy_scope cgroup_id dry_run status\n");
	mutex_lock(&vgpu_lock);
	vgpu_timeslices_each(timeslice_line, m);
	mutex_unlock(&vgpu_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(timeslices);

static void count_line(bool is_control, u32 number, u64 count, void *context)
{
	seq_printf(context, "%s %#x %llu\n", is_control ? "control" : "ioctl", number, count);
}

static int ioctls_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "kind number count\n");
	vgpu_counts_each(count_line, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ioctls);

static int stats_show(struct seq_file *m, void *unused)
{
	/* In the order of struct vgpu_stats, which has only these members. */
	static const char * const names[] = {
		"opens", "closes", "ioctls", "allocs", "frees", "controls", "dups", "memory_charged", "memory_denied", "memory_would_deny",
		"timeslices_seen", "timeslices_rewritten", "timeslices_would_rewrite", "xfer_unwrapped", "compat_calls", "races", "faults",
		"events", "events_lost", "objects", "tasks", "cgroups", "policies", "cgroup_policies",
	};
	struct vgpu_stats stats;
	unsigned int i;

	BUILD_BUG_ON(ARRAY_SIZE(names) != sizeof(stats) / sizeof(u64));
	vgpu_stats_get(&stats);
	seq_puts(m, "name value\n");
	for (i = 0; i < ARRAY_SIZE(names); i++)
		seq_printf(m, "%s %llu\n", names[i], ((u64 *)&stats)[i]);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static struct dentry *folder;

/* A kernel without debugfs has no such files; nothing else depends on them. */
void vgpu_debugfs_start(void)
{
	static const struct { const char *name; const struct file_operations *fops; } files[] = {
		{ "enabled", &enabled_fops }, { "driver_fingerprint", &driver_fingerprint_fops }, { "hooks", &hooks_fops },
		{ "policies", &policies_fops }, { "cgroup_policies", &cgroup_policies_fops }, { "cgroups", &cgroups_fops },
		{ "tasks", &tasks_fops }, { "events", &events_fops }, { "timeslices", &timeslices_fops }, { "ioctls", &ioctls_fops },
		{ "stats", &stats_fops },
	};
	unsigned int i;

	folder = debugfs_create_dir("vgpu", NULL);
	for (i = 0; i < ARRAY_SIZE(files); i++)
		debugfs_create_file(files[i].name, 0400, folder, NULL, files[i].fops);
}

void vgpu_debugfs_stop(void)
{
	debugfs_remove_recursive(folder);
}
