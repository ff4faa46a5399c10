// SPDX-License-Identifier: GPL-2.0-only
/* Which process and cgroup makes a call, and which ones have ended. */
#define pr_fmt(fmt) "vgpu: " fmt

#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>
#include <linux/workqueue.h>

#include "vgpu.h"

/* ---- Processes ----------------------------------------------------------------------------------------------------------------------- */

static DEFINE_HASHTABLE(tasks, 10);
static DEFINE_SPINLOCK(tasks_lock);	/* the table; changes need vgpu_lock as well, except at exit, which only removes */
static u64 tasks_count;
static LLIST_HEAD(dead_tasks);
static LLIST_HEAD(dead_cgroups);

struct dead_cgroup { struct llist_node node; u64 id; };

static void reap_work(struct work_struct *work)
{
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	mutex_unlock(&vgpu_lock);
}
static DECLARE_WORK(reaper, reap_work);

static struct vgpu_task *find_locked(u32 tgid)
{
	struct vgpu_task *t;

	hash_for_each_possible(tasks, t, node, tgid)
		if (t->tgid == tgid)
			return t;
	return NULL;
}

struct vgpu_task *vgpu_task_find(u32 tgid)
{
	struct vgpu_task *t;

	spin_lock(&tasks_lock);
	t = find_locked(tgid);
	spin_unlock(&tasks_lock);
	return t;
}

/* Makes the entry of the process whose first thread p is. p's own pointer to the first thread may
 * be stale if another thread called exec since. NULL: no memory, or all threads of the process have
 * begun to exit. The entry goes into the table first: an exit that begins later finds it there, and
 * after one that began earlier no thread is live. */
static struct vgpu_task *make(struct task_struct *p)
{
	struct vgpu_task *t = kzalloc(sizeof(*t), GFP_KERNEL);
	bool alive;

	if (!t)
		return NULL;
	INIT_LIST_HEAD(&t->uses);
	t->tgid = p->tgid;
	get_task_comm(t->comm, p);
	t->uid = from_kuid_munged(&init_user_ns, task_uid(p));
	spin_lock(&tasks_lock);
	hash_add(tasks, &t->node, t->tgid);
	spin_unlock(&tasks_lock);

	spin_lock(&tasks_lock);
	alive = atomic_read(&p->signal->live) > 0;
	if (!alive && !hlist_unhashed(&t->node))
		hash_del_rcu(&t->node);
	else
		alive = true;		/* otherwise its exit has taken it, and vgpu_reap frees it */
	spin_unlock(&tasks_lock);
	if (!alive) {
		kfree(t);
		return NULL;
	}
	tasks_count++;
	return t;
}

struct vgpu_task *vgpu_task_current(void)
{
	struct vgpu_task *t;

	if (current->flags & (PF_EXITING | PF_KTHREAD))
		return NULL;
	t = vgpu_task_find(current->tgid) ?: make(current->group_leader);
	if (t)
		t->cgroup_id = vgpu_cgroup_current();
	return t;
}

int vgpu_task_get(u32 nr, bool make_it, struct vgpu_task **task, u32 *tgid)
{
	struct task_struct *p;
	int err = 0;

	if (nr > INT_MAX)
		return -ESRCH;
	rcu_read_lock();
	p = pid_task(find_vpid(nr), PIDTYPE_TGID);
	if (p)
		get_task_struct(p);
	rcu_read_unlock();
	if (!p)
		return -ESRCH;
	*tgid = p->tgid;
	*task = vgpu_task_find(p->tgid);
	if (!atomic_read(&p->signal->live))
		err = -ESRCH;
	else if (!*task && make_it) {
		*task = make(p);
		if (!*task)
			err = atomic_read(&p->signal->live) ? -ENOMEM : -ESRCH;
	}
	put_task_struct(p);
	return err;
}

void vgpu_tasks_each(void (*visit)(const struct vgpu_task *t, void *context), void *context)
{
	struct vgpu_task *t;
	struct hlist_node *next;
	int bucket;

	/* Only an exit removes entries here, and it frees nothing: that takes vgpu_lock. */
	hash_for_each_safe(tasks, bucket, next, t, node)
		visit(t, context);
}

u64 vgpu_tasks_count(void)
{
	return tasks_count;
}

/* All threads of the process are past their last system call, but its files are still open. */
static void on_exit(void *context, struct task_struct *p)
{
	struct vgpu_task *t;

	if (atomic_read(&p->signal->live))
		return;
	spin_lock(&tasks_lock);
	t = find_locked(p->tgid);
	if (t)
		hash_del_rcu(&t->node);	/* keeps its next pointer, since vgpu_tasks_each may be at this entry */
	spin_unlock(&tasks_lock);
	if (t) {
		llist_add(&t->dead, &dead_tasks);
		schedule_work(&reaper);
	}
}

/* ---- Cgroups ------------------------------------------------------------------------------------------------------------------------- */

u64 vgpu_cgroup_current(void)
{
	u64 id;

	rcu_read_lock();
	id = cgroup_id(task_dfl_cgroup(current));
	rcu_read_unlock();
	return id;
}

/* If the chain is too long, its upper end counts: a process cannot escape a policy above it by
 * making many cgroups below its own. */
void vgpu_subject_current(struct policy_subject *s, u32 minor)
{
	struct cgroup *c;

	s->tgid = current->tgid;
	s->minor = minor;
	s->cgroups = 0;
	rcu_read_lock();
	for (c = task_dfl_cgroup(current); c; c = cgroup_parent(c))
		if (c->level < POLICY_CGROUP_DEPTH)
			s->cgroup[s->cgroups++] = cgroup_id(c);
	rcu_read_unlock();
}

int vgpu_cgroup_alive(u64 id)
{
	struct cgroup *c = cgroup_get_from_id(id);

	if (IS_ERR(c))
		return -ENOENT;
	cgroup_put(c);
	return 0;
}

/* Called under a spinlock. Numbers of cgroups are never used again, so the reaper may come late. */
static void on_rmdir(void *context, struct cgroup *c, const char *path)
{
	struct dead_cgroup *d = kmalloc(sizeof(*d), GFP_ATOMIC | __GFP_NOWARN);

	if (!d)
		return;		/* its policies stay until the module is removed, and hold for no process */
	d->id = cgroup_id(c);
	llist_add(&d->node, &dead_cgroups);
	schedule_work(&reaper);
}

/* ---- The end ------------------------------------------------------------------------------------------------------------------------- */

void vgpu_reap(void)
{
	struct vgpu_task *t, *next_task;
	struct dead_cgroup *c, *next_cgroup;

	llist_for_each_entry_safe(t, next_task, llist_del_all(&dead_tasks), dead) {
		struct vgpu_event e = { .type = VGPU_EVENT_EXIT, .tgid = t->tgid, .tid = t->tgid, .minor = VGPU_MINOR_ANY,
					.cgroup_id = t->cgroup_id };

		memcpy(e.comm, t->comm, sizeof(e.comm));
		policy_drop_tgid(&vgpu_policies, t->tgid);
		/* Its files are closed after this. Its memory is freed then, unless another process has the files open. */
		e.value = ledger_leave(&vgpu_ledger, t->tgid);
		vgpu_files_leave(t);
		if (vgpu_mode() != VGPU_MODE_OFF)
			vgpu_event(&e);
		tasks_count--;
		kfree(t);
	}
	llist_for_each_entry_safe(c, next_cgroup, llist_del_all(&dead_cgroups), node) {
		struct vgpu_usage usage;
		bool known = policy_drop_cgroup(&vgpu_policies, c->id) ||
			     !ledger_usage(&vgpu_ledger, VGPU_SCOPE_CGROUP, c->id, VGPU_MINOR_ANY, &usage);
		struct vgpu_event e = { .type = VGPU_EVENT_CGROUP_GONE, .minor = VGPU_MINOR_ANY, .cgroup_id = c->id };

		ledger_drop_cgroup(&vgpu_ledger, c->id);
		if (known && vgpu_mode() != VGPU_MODE_OFF)
			vgpu_event(&e);
		kfree(c);
	}
}

/* The tracepoints themselves are not exported. */
static struct probe { const char *name; void *function; struct tracepoint *point; bool registered; } probes[] = {
	{ "sched_process_exit", on_exit },
	{ "cgroup_rmdir", on_rmdir },
};

static void find_point(struct tracepoint *point, void *context)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(point->name, probes[i].name))
			probes[i].point = point;
}

int vgpu_subjects_start(void)
{
	unsigned int i;
	int err = 0;

	for_each_kernel_tracepoint(find_point, NULL);
	for (i = 0; !err && i < ARRAY_SIZE(probes); i++) {
		err = probes[i].point ? tracepoint_probe_register(probes[i].point, probes[i].function, NULL) : -ENOENT;
		if (err)
			pr_err("no tracepoint %s in this kernel, so that what has ended could not be noticed\n", probes[i].name);
		probes[i].registered = !err;
	}
	if (err)
		vgpu_subjects_stop();
	return err;
}

void vgpu_subjects_stop(void)
{
	struct vgpu_task *t;
	struct hlist_node *next;
	unsigned int i;
	int bucket;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		if (probes[i].registered)
			tracepoint_probe_unregister(probes[i].point, probes[i].function, NULL);
	tracepoint_synchronize_unregister();
	cancel_work_sync(&reaper);
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	hash_for_each_safe(tasks, bucket, next, t, node) {
		vgpu_files_leave(t);
		hash_del(&t->node);
		kfree(t);
	}
	tasks_count = 0;
	mutex_unlock(&vgpu_lock);
}
