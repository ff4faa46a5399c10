// SPDX-License-Identifier: GPL-2.0-only
/* The driver's open files, the processes that use them, and what ends when a file is closed. */
#include <linux/slab.h>

#include "calls.h"

/* An open file of the driver, and the processes that opened it or made calls through it. */
struct open_file {
	struct table_node node;		/* a: vgpu_file_id */
	struct list_head uses;
};

struct use {
	struct list_head in_file, in_task;
	struct vgpu_task *task;
};

static struct table files;		/* vgpu_lock */
u32 vgpu_closing;

u64 vgpu_file_id(const struct file *file)
{
	return (unsigned long)file;
}

u32 vgpu_file_minor(const struct file *file)
{
	u32 minor = iminor(file_inode(file));

	return minor <= NV_MINOR_GPU_MAX ? minor : VGPU_MINOR_ANY;
}

/* Notes that the process uses the file. If there is no memory now, the next call notes it. */
void vgpu_file_use(struct file *file, struct vgpu_task *task)
{
	struct table_node *n = table_find(&files, vgpu_file_id(file), 0);
	struct open_file *f = n ? container_of(n, struct open_file, node) : NULL;
	struct use *u;

	if (!task)
		return;
	if (!f) {
		f = kzalloc(sizeof(*f), GFP_KERNEL);
		if (!f || table_insert(&files, &f->node, vgpu_file_id(file), 0)) {
			kfree(f);
			return;
		}
		INIT_LIST_HEAD(&f->uses);
	}
	list_for_each_entry(u, &f->uses, in_file)
		if (u->task == task)
			return;
	u = kmalloc(sizeof(*u), GFP_KERNEL);
	if (!u)
		return;
	u->task = task;
	list_add(&u->in_file, &f->uses);
	list_add(&u->in_task, &task->uses);
	task->files++;
}

static void forget_use(struct use *u)
{
	list_del(&u->in_file);
	list_del(&u->in_task);
	u->task->files--;
	kfree(u);
}

void vgpu_files_leave(struct vgpu_task *task)
{
	struct use *u, *next;

	list_for_each_entry_safe(u, next, &task->uses, in_task)
		forget_use(u);
}

u64 vgpu_task_idle(struct vgpu_task *task)
{
	if (!vgpu_clear_on_last_close || task->files || task->calls)
		return 0;
	return ledger_exit(&vgpu_ledger, task->tgid);
}

static u64 forget_file(struct open_file *f)
{
	struct vgpu_task *task;
	struct use *u, *next;
	u64 bytes = 0;

	list_for_each_entry_safe(u, next, &f->uses, in_file) {
		task = u->task;
		forget_use(u);
		bytes += vgpu_task_idle(task);
	}
	table_remove(&files, &f->node);
	kfree(f);
	return bytes;
}

static int forget_any(struct table_node *n, void *context)
{
	forget_file(container_of(n, struct open_file, node));
	return 0;
}

void vgpu_files_reset(void)
{
	table_each(&files, forget_any, NULL);
	table_clear(&files, NULL, NULL);
}

int vgpu_open(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	struct vgpu_event e = { .type = VGPU_EVENT_OPEN, .minor = vgpu_file_minor(file) };
	int result = vgpu_real_open(d, inode, file);
	struct vgpu_task *task;

	if (vgpu_mode() == VGPU_MODE_OFF)
		return result;
	vgpu_count(opens);
	e.cgroup_id = vgpu_cgroup_current();
	e.status = result;
	if (!result) {
		mutex_lock(&vgpu_lock);
		vgpu_reap();
		task = vgpu_task_current();
		if (task)
			get_task_comm(task->comm, current->group_leader);	/* the name may have changed since it got its policy */
		vgpu_file_use(file, task);
		mutex_unlock(&vgpu_lock);
	}
	vgpu_event(&e);
	return result;
}

/* Also while the module is off: otherwise what was accounted before would count for ever once it is
 * on again. */
int vgpu_close(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	struct vgpu_event e = { .type = VGPU_EVENT_CLOSE, .minor = vgpu_file_minor(file), .cgroup_id = vgpu_cgroup_current() };
	struct table_node *n;
	int result;

	mutex_lock(&vgpu_lock);
	vgpu_closing++;
	mutex_unlock(&vgpu_lock);
	result = vgpu_real_close(d, inode, file);
	mutex_lock(&vgpu_lock);
	vgpu_closing--;
	vgpu_reap();
	e.value = ledger_close(&vgpu_ledger, vgpu_file_id(file));
	n = table_find(&files, vgpu_file_id(file), 0);
	if (n)
		e.value += forget_file(container_of(n, struct open_file, node));
	mutex_unlock(&vgpu_lock);
	if (vgpu_mode() == VGPU_MODE_OFF)
		return result;
	vgpu_count(closes);
	vgpu_event(&e);
	return result;
}
