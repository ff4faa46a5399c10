// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a call of the driver's means, before and after the driver. The arguments lie in user space, where other threads may change them at
 * any time: what was decided is compared with what is there when the driver comes back (docs/vgpu.md says what that leaves open).
 */
#include <linux/compat.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgpu.h"

/* ---- Open files ---------------------------------------------------------------------------------------------------------------------- */

/* An open file of the driver, and the processes that opened it or used it. */
struct open_file {
	struct table_node node;		/* a: the struct file */
	struct file_user *users;
};

struct file_user {
	struct file_user *next;
	u32 tgid;
};

static struct table files;		/* vgpu_lock */
static LIST_HEAD(frees);		/* vgpu_lock: of struct freeing, calls that are in the driver now */

static u64 file_id(const struct file *file)
{
	return (unsigned long)file;
}

/* Notes that the process uses the file. Without memory it is noted at the next call. */
static void use_file(struct file *file, struct vgpu_task *task)
{
	struct table_node *n = table_find(&files, file_id(file), 0);
	struct open_file *f = n ? container_of(n, struct open_file, node) : NULL;
	struct file_user *u;

	if (!task)
		return;
	if (!f) {
		f = kzalloc(sizeof(*f), GFP_KERNEL);
		if (!f || table_insert(&files, &f->node, file_id(file), 0)) {
			kfree(f);
			return;
		}
	}
	for (u = f->users; u; u = u->next)
		if (u->tgid == task->tgid)
			return;
	u = kmalloc(sizeof(*u), GFP_KERNEL);
	if (!u)
		return;
	u->tgid = task->tgid;
	u->next = f->users;
	f->users = u;
	task->files++;
}

/* A process with no file of the driver and no call in it holds nothing, whatever was noted. */
static u64 clear_if_idle(struct vgpu_task *task)
{
	if (!vgpu_clear_on_last_close || task->files || task->calls)
		return 0;
	return ledger_exit(&vgpu_ledger, task->tgid);
}

static u64 forget_file(struct open_file *f)
{
	struct file_user *u, *next;
	struct vgpu_task *task;
	u64 bytes = 0;

	table_remove(&files, &f->node);
	for (u = f->users; u; u = next) {
		next = u->next;
		task = vgpu_task_find(u->tgid);
		if (task && !--task->files)
			bytes += clear_if_idle(task);
		kfree(u);
	}
	kfree(f);
	return bytes;
}

static int forget_any(struct table_node *n, void *context)
{
	forget_file(container_of(n, struct open_file, node));
	return 0;
}

void vgpu_calls_reset(void)
{
	table_each(&files, forget_any, NULL);
	table_clear(&files, NULL, NULL);
	ledger_clear(&vgpu_ledger);
	vgpu_gpus_reset();
}

static u32 file_minor(const struct file *file)
{
	u32 minor = iminor(file_inode(file));

	return minor <= NV_MINOR_GPU_MAX ? minor : VGPU_MINOR_ANY;
}

int vgpu_open(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	struct vgpu_event e = { .type = VGPU_EVENT_OPEN, .minor = file_minor(file) };
	int result = vgpu_real_open(d, inode, file);

	if (vgpu_mode() == VGPU_MODE_OFF)
		return result;
	vgpu_count(opens);
	e.cgroup_id = vgpu_cgroup_current();
	e.status = result;
	if (!result) {
		mutex_lock(&vgpu_lock);
		vgpu_reap();
		use_file(file, vgpu_task_current());
		mutex_unlock(&vgpu_lock);
	}
	vgpu_event(&e);
	return result;
}

/* Also while the module is off, like FREE: so that what was accounted before is not found to be there for ever when it is on again. */
int vgpu_close(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	struct vgpu_event e = { .type = VGPU_EVENT_CLOSE, .minor = file_minor(file), .cgroup_id = vgpu_cgroup_current() };
	int result = vgpu_real_close(d, inode, file);
	struct table_node *n;

	mutex_lock(&vgpu_lock);
	vgpu_reap();
	e.value = ledger_close(&vgpu_ledger, file_id(file));
	n = table_find(&files, file_id(file), 0);
	if (n)
		e.value += forget_file(container_of(n, struct open_file, node));
	mutex_unlock(&vgpu_lock);
	if (vgpu_mode() == VGPU_MODE_OFF)
		return result;
	vgpu_count(closes);
	vgpu_event(&e);
	return result;
}

/* ---- A call -------------------------------------------------------------------------------------------------------------------------- */

struct call {
	const struct vgpu_driver *driver;
	struct file *file;
	unsigned int cmd;		/* as the driver gets it */
	unsigned long arg;
	u32 escape, size;		/* behind an nv_xfer */
	void __user *user;
	u32 flags;			/* VGPU_EVENT_XFER, VGPU_EVENT_COMPAT */
	bool enforce;
	struct rm_call rm;
	struct policy_subject subject;
	struct policy policy;
	u8 head[RM_CALL_BYTES];
};

static long call_driver(const struct call *c)
{
	return vgpu_real_ioctl(c->driver, c->file, c->cmd, c->arg);
}

static u32 head_bytes(const struct call *c)
{
	return min_t(u32, c->size, RM_CALL_BYTES);
}

static int read_user(void *to, u64 address, u32 bytes)
{
	if (!copy_from_user(to, u64_to_user_ptr(address), bytes))
		return 0;
	vgpu_count(faults);
	return -EFAULT;
}

/* Reads the structure and, of an allocation, its parameters. */
static int decode(const struct call *c, u8 *head, struct rm_call *rm)
{
	u8 params[RM_PARAMS_BYTES];
	u32 bytes;

	if (read_user(head, (unsigned long)c->user, head_bytes(c)))
		return -EFAULT;
	rm_decode(c->escape, c->size, head, rm);
	if (rm->kind != RM_ALLOC || !rm->params.bytes)
		return 0;
	bytes = min_t(u32, rm->params.bytes, RM_PARAMS_BYTES);
	if (read_user(params, rm->params.address, bytes))
		return -EFAULT;
	rm_decode_params(rm, params, bytes);
	return 0;
}

/* Answers in the driver's place. */
static long answer(const struct call *c, u32 status)
{
	return put_user(status, (u32 __user *)(c->user + c->rm.status_offset)) ? -EFAULT : 0;
}

/* Whether the driver will be able to write its answer. Otherwise it would make the object all the same, and say EFAULT. */
static bool writable(const struct call *c)
{
	u32 status;

	memcpy(&status, c->head + c->rm.status_offset, sizeof(status));
	return !answer(c, status);
}

static struct vgpu_event event_of(const struct call *c, enum vgpu_event_type type)
{
	return (struct vgpu_event){ .type = type, .flags = c->flags, .minor = c->subject.minor, .cgroup_id = vgpu_cgroup_current(),
				    .client = c->rm.client, .object = c->rm.object, .code = c->rm.code };
}

/* Both: vgpu_lock is held. */
static struct vgpu_task *begin(struct call *c, u32 near)
{
	struct vgpu_task *task;
	u32 count, minor = file_minor(c->file);
	const u32 *minors = vgpu_minors(&count);
	struct policy_defaults defaults;

	vgpu_reap();
	task = vgpu_task_current();
	use_file(c->file, task);
	if (minor == VGPU_MINOR_ANY)
		minor = ledger_minor(&vgpu_ledger, c->rm.client, near, minors, count);
	vgpu_subject_current(&c->subject, minor);
	vgpu_defaults(&defaults);
	defaults.dry_run = !c->enforce;
	policy_resolve(&vgpu_policies, &c->subject, &defaults, &c->policy);
	if (task)
		task->calls++;
	return task;
}

static void end(struct vgpu_task *task)
{
	if (task && !--task->calls && !task->files)
		clear_if_idle(task);
}

static void race(const struct call *c, u64 checked, u64 there)
{
	struct vgpu_event e = event_of(c, VGPU_EVENT_RACE);

	e.value = checked;
	e.detail = there;
	vgpu_count(races);
	vgpu_event(&e);
}

/* ---- Allocations --------------------------------------------------------------------------------------------------------------------- */

static bool accounted(const struct rm_call *rm)
{
	return vgpu_memory_trace && rm->memory != RM_MEMORY_NONE && rm->bytes != U64_MAX && rm->bytes && rm->bytes >= vgpu_alloc_min_bytes;
}

static bool has_limit(const struct call *c)
{
	u32 i;

	for (i = 0; i < c->policy.limits; i++)
		if (c->policy.limit[i].bytes && !c->policy.limit[i].dry_run)
			return true;
	return vgpu_alloc_max_bytes != 0;
}

/* 0: the driver shall see the call. Otherwise *status is for the caller, or the error. vgpu_lock is held. */
static int charge(struct call *c, struct ledger_charge **charge, u32 *status)
{
	const struct rm_call *rm = &c->rm;
	bool device = rm->memory == RM_MEMORY_DEVICE, denied = false;
	const struct policy_limit *over = NULL;
	struct vgpu_event e = event_of(c, VGPU_EVENT_DENY);
	int err = 0;

	if (c->enforce && vgpu_memory_trace && rm->memory != RM_MEMORY_NONE && (rm->serialized || (device && rm->bytes == U64_MAX && has_limit(c)))) {
		*status = NV_ERR_NOT_SUPPORTED;
		e.scope = VGPU_SCOPE_MODULE;
		denied = true;
	} else if (device && accounted(rm) && vgpu_alloc_max_bytes && rm->bytes > vgpu_alloc_max_bytes) {
		*status = NV_ERR_NO_MEMORY;
		e.scope = VGPU_SCOPE_MODULE;
		e.detail = vgpu_alloc_max_bytes;
		denied = true;
		ledger_denied(&vgpu_ledger, &c->subject);
	}
	if (denied && c->enforce)
		goto deny;
	if (!accounted(rm))
		return 0;
	err = ledger_charge(&vgpu_ledger, &c->subject, rm->memory, rm->bytes, &c->policy, charge, &over);
	if (over && !denied) {
		*status = NV_ERR_NO_MEMORY;
		e.scope = over->cgroup ? VGPU_SCOPE_CGROUP : c->policy.scope == VGPU_SCOPE_TGID ? VGPU_SCOPE_TGID : VGPU_SCOPE_MODULE;
		e.detail = over->bytes;
		denied = true;
	}
	if (err == -EDQUOT)
		goto deny;
	if (err && c->enforce)
		return err;
	if (denied) {
		vgpu_count(memory_would_deny);
		e.flags |= VGPU_EVENT_DRY_RUN;
		e.value = rm->bytes;
		e.status = *status;
		vgpu_event(&e);
	}
	return 0;
deny:
	vgpu_count(memory_denied);
	e.value = rm->bytes;
	e.status = *status;
	vgpu_event(&e);
	return -EDQUOT;
}

/* What the driver has made is charged in any case. vgpu_lock is held. */
static struct ledger_charge *charge_anyway(struct call *c, const struct rm_call *rm)
{
	struct policy none = {};
	struct ledger_charge *charge = NULL;
	const struct policy_limit *over;

	ledger_charge(&vgpu_ledger, &c->subject, rm->memory, rm->bytes, &none, &charge, &over);
	return charge;
}

/* An object of that name has been made, so that calls under way that free this name meant the one before. vgpu_lock is held. */
struct freeing { struct list_head list; u32 client, object; bool outdated; };

static void outdate_frees(u32 client, u32 object)
{
	struct freeing *f;

	list_for_each_entry(f, &frees, list)
		if (f->client == client && f->object == object)
			f->outdated = true;
}

/* Sizes that the driver has rounded up to its pages come back with the call; more than that another thread has written. */
#define ROUNDED_UP (512ull << 20)

static bool same_call(const struct rm_call *a, const struct rm_call *b)
{
	return a->kind == b->kind && a->client == b->client && a->parent == b->parent && a->code == b->code &&
	       a->params.address == b->params.address && a->params.bytes == b->params.bytes && (!a->object || a->object == b->object);
}

static long allocate(struct call *c)
{
	struct ledger_charge *held = NULL;
	struct rm_call after;
	struct rm_result r = {};
	struct vgpu_task *task;
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	u32 object, status = 0;
	bool readable, made;
	long result;
	int err;

	vgpu_count(allocs);
	mutex_lock(&vgpu_lock);
	task = begin(c, c->rm.parent);
	if (c->rm.code == NV01_DEVICE_0 && c->subject.minor == VGPU_MINOR_ANY)
		c->subject.minor = vgpu_instance_minor(c->rm.device);
	err = charge(c, &held, &status);
	if (err) {
		end(task);
		mutex_unlock(&vgpu_lock);
		return err == -EDQUOT ? answer(c, status) : err;
	}
	mutex_unlock(&vgpu_lock);

	if (c->enforce && held && !writable(c))
		result = -EFAULT;
	else
		result = call_driver(c);
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = event_of(c, VGPU_EVENT_ALLOC);
	/* After an answer that did not reach the caller, the object is there. Better to charge for what is not than the reverse. */
	made = (!result && (!readable || !r.status)) || (result == -EFAULT && held && !(c->enforce && !readable));

	mutex_lock(&vgpu_lock);
	if (!made) {
		if (held)
			ledger_cancel(&vgpu_ledger, held);
	} else {
		object = c->rm.object ?: r.object;
		if (readable && !same_call(&c->rm, &after))
			race(c, c->rm.bytes, after.bytes);
		else if (readable && after.bytes != U64_MAX && after.bytes > c->rm.bytes && after.bytes - c->rm.bytes >= ROUNDED_UP)
			race(c, c->rm.bytes, after.bytes);
		if (readable && accounted(&after) && (!accounted(&c->rm) || after.bytes > c->rm.bytes)) {
			if (held)
				ledger_cancel(&vgpu_ledger, held);
			held = charge_anyway(c, &after);
			e.value = after.bytes;
		} else if (held) {
			e.value = c->rm.bytes;
		}
		if (held)
			vgpu_count(memory_charged);
		outdate_frees(c->rm.client, object);
		ledger_add(&vgpu_ledger, &c->subject, file_id(c->file), &c->rm, object, held);
		e.object = object;
	}
	end(task);
	mutex_unlock(&vgpu_lock);
	e.status = result ? (u32)result : r.status;
	vgpu_event(&e);
	return result;
}

/* ---- Frees, duplicates --------------------------------------------------------------------------------------------------------------- */

static long free_object(struct call *c, bool quiet)
{
	struct freeing f = { .client = c->rm.client, .object = c->rm.object };
	struct rm_call after;
	struct rm_result r = {};
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	bool readable;
	long result;

	mutex_lock(&vgpu_lock);
	list_add(&f.list, &frees);
	end(begin(c, c->rm.object));
	mutex_unlock(&vgpu_lock);

	result = call_driver(c);
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = event_of(c, VGPU_EVENT_FREE);
	e.status = result ? (u32)result : r.status;

	mutex_lock(&vgpu_lock);
	list_del(&f.list);
	if (readable && (after.client != c->rm.client || after.object != c->rm.object))
		race(c, c->rm.object, after.object);
	else if (!f.outdated && !result && readable && !r.status)
		e.value = ledger_free(&vgpu_ledger, c->rm.client, c->rm.object);
	mutex_unlock(&vgpu_lock);
	if (!quiet) {
		vgpu_count(frees);
		vgpu_event(&e);
	}
	return result;
}

static long duplicate(struct call *c)
{
	struct rm_call after;
	struct rm_result r = {};
	struct vgpu_task *task;
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	bool readable;
	long result;
	u32 object;

	vgpu_count(dups);
	mutex_lock(&vgpu_lock);
	task = begin(c, c->rm.parent);
	mutex_unlock(&vgpu_lock);

	result = call_driver(c);
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = event_of(c, VGPU_EVENT_DUP);
	e.status = result ? (u32)result : r.status;

	mutex_lock(&vgpu_lock);
	if (!result && readable && !r.status) {
		object = c->rm.object ?: r.object;
		outdate_frees(c->rm.client, object);
		ledger_dup(&vgpu_ledger, &c->subject, &c->rm, object);
		e.object = object;
		if (after.source_client != c->rm.source_client || after.source_object != c->rm.source_object)
			race(c, c->rm.source_object, after.source_object);
	}
	end(task);
	mutex_unlock(&vgpu_lock);
	vgpu_event(&e);
	return result;
}

/* ---- Controls ------------------------------------------------------------------------------------------------------------------------ */

static void log_timeslice(const struct call *c, u64 asked, u64 given, bool applied, u32 status)
{
	struct vgpu_timeslice t = {
		.time_ns = ktime_get_boottime_ns(), .asked_us = asked, .given_us = given, .weight = c->policy.timeslice.weight,
		.cgroup_id = c->policy.scope == VGPU_SCOPE_CGROUP ? c->policy.cgroup_id : vgpu_cgroup_current(), .tgid = current->tgid,
		.minor = c->subject.minor, .client = c->rm.client, .object = c->rm.object, .status = status, .scope = c->policy.scope,
		.dry_run = !applied,
	};

	get_task_comm(t.comm, current);
	vgpu_timeslice_log(&t);
}

/* The head must not change by what is written to the parameters: they may be the same memory. */
static int write_timeslice(const struct call *c, u64 us)
{
	u8 head[RM_CALL_BYTES];

	if (put_user(us, (u64 __user *)u64_to_user_ptr(c->rm.params.address)))
		return -EFAULT;
	if (read_user(head, (unsigned long)c->user, head_bytes(c)))
		return -EFAULT;
	if (!memcmp(head, c->head, head_bytes(c)))
		return 0;
	race(c, c->rm.params.address, us);
	return -EFAULT;
}

static long set_timeslice(struct call *c)
{
	u64 asked, given, there, got;
	struct vgpu_task *task;
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	u32 status = 0;
	bool act;
	long result;

	if (c->rm.serialized) {
		if (!c->enforce)
			return call_driver(c);
		e = event_of(c, VGPU_EVENT_TIMESLICE);
		e.scope = VGPU_SCOPE_MODULE;
		e.status = NV_ERR_NOT_SUPPORTED;
		vgpu_event(&e);
		return answer(c, NV_ERR_NOT_SUPPORTED);
	}
	if (c->rm.params.bytes != sizeof(asked))
		return call_driver(c);		/* which refuses it */
	if (read_user(&asked, c->rm.params.address, sizeof(asked)))
		return c->enforce ? -EFAULT : call_driver(c);

	vgpu_count(timeslices_seen);
	mutex_lock(&vgpu_lock);
	task = begin(c, c->rm.object);
	mutex_unlock(&vgpu_lock);
	given = timeslice_rewrite(asked, &c->policy.timeslice);
	act = c->enforce && !c->policy.dry_run;
	got = act ? given : asked;

	result = act && given != asked ? write_timeslice(c, given) : 0;
	if (!result)
		result = call_driver(c);
	if (!read_user(head, (unsigned long)c->user, head_bytes(c)))
		status = rm_result(c->escape, c->size, head).status;
	if (act && !result && (read_user(&there, c->rm.params.address, sizeof(there)) || there != given))
		race(c, given, there);

	if (given != asked) {
		if (act)
			vgpu_count(timeslices_rewritten);
		else
			vgpu_count(timeslices_would_rewrite);
	}
	e = event_of(c, VGPU_EVENT_TIMESLICE);
	e.value = asked;
	e.detail = given;
	e.scope = c->policy.scope;
	e.status = result ? (u32)result : status;
	if (!act)
		e.flags |= VGPU_EVENT_DRY_RUN;
	mutex_lock(&vgpu_lock);
	if (!result && !status)
		ledger_timeslice(&vgpu_ledger, &c->subject, got);
	log_timeslice(c, asked, given, act, e.status);
	end(task);
	mutex_unlock(&vgpu_lock);
	vgpu_event(&e);
	return result;
}

static long control(struct call *c)
{
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	u32 status = 0;
	long result;

	vgpu_count(controls);
	vgpu_count_control(c->rm.code);
	if (vgpu_compute_trace && c->rm.code == NVA06C_CTRL_CMD_SET_TIMESLICE)
		result = set_timeslice(c);
	else
		result = call_driver(c);
	if (!result && !c->rm.serialized &&
	    (c->rm.code == NV0000_CTRL_CMD_GPU_GET_ID_INFO || c->rm.code == NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2)) {
		if (!read_user(head, (unsigned long)c->user, head_bytes(c)) && !rm_result(c->escape, c->size, head).status)
			vgpu_learn_id(u64_to_user_ptr(c->rm.params.address));
	}
	if (vgpu_control_events) {
		if (!read_user(head, (unsigned long)c->user, head_bytes(c)))
			status = rm_result(c->escape, c->size, head).status;
		c->subject.minor = file_minor(c->file);
		e = event_of(c, VGPU_EVENT_CONTROL);
		e.status = result ? (u32)result : status;
		vgpu_event(&e);
	}
	return result;
}

/* ---- ioctl --------------------------------------------------------------------------------------------------------------------------- */

static noinline_for_stack long watched(struct call *c, bool off)
{
	if (decode(c, c->head, &c->rm))
		return c->enforce ? -EFAULT : call_driver(c);	/* which says so itself */
	switch (c->rm.kind) {
	case RM_FREE:
		return free_object(c, off);
	case RM_ALLOC:
		return off ? call_driver(c) : allocate(c);
	case RM_DUP:
		return off ? call_driver(c) : duplicate(c);
	case RM_CONTROL:
		return off ? call_driver(c) : control(c);
	default:
		return call_driver(c);
	}
}

/* While the module is off, what is freed is noted, so that it is not found to be there for ever when it is on again. */
static bool interesting(u32 escape, u32 size, bool off)
{
	if (off)
		return escape == NV_ESC_RM_FREE || escape == NV_ESC_RM_VID_HEAP_CONTROL;
	return rm_interesting(escape) && rm_size_valid(escape, size);
}

long vgpu_ioctl(const struct vgpu_driver *d, struct file *file, unsigned int cmd, unsigned long arg)
{
	enum vgpu_mode mode = vgpu_mode();
	u32 escape = rm_escape(cmd), size = rm_size(cmd), flags = 0;
	void __user *user = (void __user *)arg;
	bool off = mode == VGPU_MODE_OFF, enforce = mode == VGPU_MODE_ENFORCE;
	struct nv_xfer xfer;
	long result;

	if (!off)
		vgpu_count(ioctls);
	if (in_compat_syscall()) {
		flags |= VGPU_EVENT_COMPAT;
		if (!off)
			vgpu_count(compat_calls);
	}
	if (escape == NV_ESC_IOCTL_XFER_CMD && size == sizeof(xfer)) {
		if (read_user(&xfer, arg, sizeof(xfer)))
			return enforce ? -EFAULT : vgpu_real_ioctl(d, file, cmd, arg);
		flags |= VGPU_EVENT_XFER;
		escape = xfer.cmd;
		size = xfer.size;
		user = u64_to_user_ptr(xfer.ptr);
		if (!off)
			vgpu_count(xfer_unwrapped);
		/* The driver would read the nv_xfer again, and find there what another thread has put. Unwrapped it is the same call. What no
		 * call unwrapped can say, the driver has no command for. */
		if (enforce) {
			if (escape > 0xff || escape == NV_ESC_IOCTL_XFER_CMD || size >= 1u << _IOC_SIZEBITS)
				return -EINVAL;
			cmd = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, escape, size);
			arg = xfer.ptr;
		}
	}
	if (!off)
		vgpu_count_escape(escape > 0xff ? NV_ESC_IOCTL_XFER_CMD : escape);
	if (escape <= 0xff && interesting(escape, size, off)) {
		struct call c = { .driver = d, .file = file, .cmd = cmd, .arg = arg, .escape = escape, .size = size, .user = user,
				  .flags = flags, .enforce = enforce };

		return watched(&c, off);
	}
	result = vgpu_real_ioctl(d, file, cmd, arg);
	if (!off && !result && escape == NV_ESC_CARD_INFO)
		vgpu_learn_cards(user, size);
	return result;
}
