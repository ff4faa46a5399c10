// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a call of the driver's means, before and after the driver. The arguments lie in user space, where other threads may change them at
 * any time: what was decided is compared with what is there when the driver comes back (docs/vgpu.md says what that leaves open).
 */
#include <linux/compat.h>
#include <linux/uaccess.h>

#include "calls.h"

/* ---- A call -------------------------------------------------------------------------------------------------------------------------- */

long vgpu_call_driver(const struct call *c)
{
	return vgpu_real_ioctl(c->driver, c->file, c->cmd, c->arg);
}

u32 vgpu_head_bytes(const struct call *c)
{
	return min_t(u32, c->size, RM_CALL_BYTES);
}

int vgpu_read_user(void *to, u64 address, u32 bytes)
{
	if (!copy_from_user(to, u64_to_user_ptr(address), bytes))
		return 0;
	vgpu_count(faults);
	return -EFAULT;
}

/* Reads the structure, and the parameters that matter; how many those are, into *bytes. */
static int decode_to(const struct call *c, u8 *head, u8 *params, u32 *bytes, struct rm_call *rm)
{
	*bytes = 0;
	if (vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)))
		return -EFAULT;
	rm_decode(c->escape, c->size, head, rm);
	if (rm->kind == RM_ALLOC && rm->params.bytes)
		*bytes = rm_params_whole(rm->code);
	else if (vgpu_is_timeslice(rm) && rm->params.bytes == sizeof(u64))
		*bytes = sizeof(u64);
	if (*bytes && vgpu_read_user(params, rm->params.address, *bytes))
		return -EFAULT;
	rm_decode_params(rm, params, min(*bytes, rm->params.bytes));
	return 0;
}

static int decode(const struct call *c, u8 *head, struct rm_call *rm)
{
	u8 params[RM_PARAMS_BYTES];
	u32 bytes;

	return decode_to(c, head, params, &bytes, rm);
}

/* Answers in the driver's place. */
long vgpu_answer(const struct call *c, u32 status)
{
	return put_user(status, (u32 __user *)(c->user + c->rm.status_offset)) ? -EFAULT : 0;
}

bool vgpu_writable(const struct call *c)
{
	u32 status;

	memcpy(&status, c->head + c->rm.status_offset, sizeof(status));
	return !vgpu_answer(c, status);
}

struct vgpu_event vgpu_event_of(const struct call *c, enum vgpu_event_type type)
{
	return (struct vgpu_event){ .type = type, .flags = c->flags, .minor = c->subject.minor, .cgroup_id = vgpu_cgroup_current(),
				    .client = c->rm.client, .object = c->rm.object, .code = c->rm.code };
}

/* The file that a client not seen before goes with. Clients are made on nvidiactl alone, and may be used on others. */
static u64 client_file(const struct call *c)
{
	return vgpu_file_minor(c->file) == VGPU_MINOR_ANY ? vgpu_file_id(c->file) : 0;
}

struct vgpu_task *vgpu_begin(struct call *c, u32 near)
{
	struct vgpu_task *task;
	u32 count, minor = vgpu_file_minor(c->file);
	const u32 *minors = vgpu_minors(&count);
	struct policy_defaults defaults;

	vgpu_reap();
	task = vgpu_task_current();
	vgpu_file_use(c->file, task);
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

void vgpu_end(struct vgpu_task *task)
{
	if (task && !--task->calls && !task->files)
		vgpu_task_idle(task);
}

void vgpu_race(const struct call *c, u64 checked, u64 there)
{
	struct vgpu_event e = vgpu_event_of(c, VGPU_EVENT_RACE);

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
	struct vgpu_event e = vgpu_event_of(c, VGPU_EVENT_DENY);
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
	struct ledger_charge *charge = NULL;
	const struct policy_limit *over;

	ledger_charge(&vgpu_ledger, &c->subject, rm->memory, rm->bytes, NULL, &charge, &over);
	return charge;
}

/* A call that frees, while it is in the driver. */
struct freeing {
	struct list_head list;
	u32 client, object;
	bool outdated;		/* an object of that name has been made since: it meant the one before */
};
static LIST_HEAD(frees);	/* vgpu_lock */

static bool is_root(const struct rm_call *rm)
{
	return rm->kind == RM_ALLOC && (rm->code == NV01_ROOT || rm->code == NV01_ROOT_NON_PRIV || rm->code == NV01_ROOT_CLIENT);
}

/* For an object whose name is not to be believed: it holds its charge until its client goes. */
static u32 unused_name(u32 client)
{
	static u32 next = 0xe0000000;

	return rm_unused(&vgpu_ledger.objects, client, &next);
}

/* What the driver calls the object that it has made: it asks the caller, but for clients. */
static u32 object_made(const struct call *c, u32 answered)
{
	return is_root(&c->rm) ? answered : c->rm.object ?: answered;
}

/*
 * The name under which to note an object that the driver has made, 0 if it is better not noted. If there is one of that name that holds memory, and nobody
 * is freeing it or what it lies below, the name was changed by another thread, to have that memory forgotten. vgpu_lock is held.
 */
static u32 name_of(const struct call *c, u32 object)
{
	u32 client = is_root(&c->rm) ? object : c->rm.client;
	bool freed = is_root(&c->rm) && vgpu_closing;
	const struct rm_object *o;
	struct freeing *f;

	if (!object)
		return is_root(&c->rm) ? 0 : unused_name(client);
	for (o = rm_find(&vgpu_ledger.objects, client, object); o && !freed; o = o->parent)
		list_for_each_entry(f, &frees, list)
			freed |= f->client == client && f->object == rm_handle(o);
	if (!freed && ledger_holds(&vgpu_ledger, client, object)) {
		vgpu_race(c, c->rm.object, object);
		return is_root(&c->rm) ? 0 : unused_name(client);
	}
	list_for_each_entry(f, &frees, list)
		f->outdated |= f->client == client && f->object == object;
	return object;
}

/* Sizes that the driver has rounded up to its pages come back with the call; more than that another thread has written. */
#define ROUNDED_UP (512ull << 20)

static bool same_call(const struct rm_call *a, const struct rm_call *b)
{
	/* The driver writes class and name of a client itself. */
	bool named = is_root(a) ? is_root(b) : a->code == b->code && (!a->object || a->object == b->object);

	return named && a->kind == b->kind && a->client == b->client && a->parent == b->parent && a->params.address == b->params.address &&
	       a->params.bytes == b->params.bytes;
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
	bool readable, called, made;
	long result;
	int err;

	vgpu_count(allocs);
	mutex_lock(&vgpu_lock);
	task = vgpu_begin(c, c->rm.parent);
	if (c->rm.code == NV01_DEVICE_0 && c->subject.minor == VGPU_MINOR_ANY)
		c->subject.minor = vgpu_instance_minor(c->rm.device);
	err = charge(c, &held, &status);
	if (err) {
		vgpu_end(task);
		mutex_unlock(&vgpu_lock);
		return err == -EDQUOT ? vgpu_answer(c, status) : err;
	}
	mutex_unlock(&vgpu_lock);

	called = !(c->enforce && held && !vgpu_writable(c));
	result = called ? vgpu_call_driver(c) : -EFAULT;
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = vgpu_event_of(c, VGPU_EVENT_ALLOC);
	/* After an answer that did not reach the caller, the object is there. Better to charge for what is not than the reverse. */
	made = called && ((!result && (!readable || !r.status)) || (result == -EFAULT && held));

	mutex_lock(&vgpu_lock);
	vgpu_subject_current(&c->subject, c->subject.minor);	/* it may have moved, and the cgroup have gone */
	if (!made) {
		ledger_cancel(&vgpu_ledger, held);
	} else {
		object = object_made(c, r.object);
		if (readable && !same_call(&c->rm, &after))
			vgpu_race(c, c->rm.bytes, after.bytes);
		else if (readable && after.bytes != U64_MAX && after.bytes > c->rm.bytes && after.bytes - c->rm.bytes >= ROUNDED_UP)
			vgpu_race(c, c->rm.bytes, after.bytes);
		if (readable && accounted(&after) && (!accounted(&c->rm) || after.bytes > c->rm.bytes)) {
			ledger_cancel(&vgpu_ledger, held);
			held = charge_anyway(c, &after);
			e.value = after.bytes;
		} else if (held) {
			e.value = c->rm.bytes;
		}
		if (held)
			vgpu_count(memory_charged);
		e.object = object;
		object = name_of(c, object);
		if (object || held)
			ledger_add(&vgpu_ledger, &c->subject, client_file(c), &c->rm, object, held);
	}
	vgpu_end(task);
	mutex_unlock(&vgpu_lock);
	e.status = result ? (u32)result : r.status;
	vgpu_event(&e);
	return result;
}

/* ---- Frees, duplicates --------------------------------------------------------------------------------------------------------------- */

static long free_object(struct call *c, bool quiet)
{
	struct freeing f = { .client = c->rm.client, .object = c->rm.object };
	bool known;
	struct rm_call after;
	struct rm_result r = {};
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	bool readable;
	long result;

	mutex_lock(&vgpu_lock);
	known = rm_find(&vgpu_ledger.objects, f.client, f.object);
	if (!quiet || known) {
		list_add(&f.list, &frees);
		vgpu_end(vgpu_begin(c, c->rm.object));
	}
	mutex_unlock(&vgpu_lock);
	if (quiet && !known)
		return vgpu_call_driver(c);

	result = vgpu_call_driver(c);
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = vgpu_event_of(c, VGPU_EVENT_FREE);
	e.status = result ? (u32)result : r.status;

	mutex_lock(&vgpu_lock);
	list_del(&f.list);
	if (readable && (after.client != c->rm.client || after.object != c->rm.object))
		vgpu_race(c, c->rm.object, after.object);
	else if (!f.outdated && !result && readable && !r.status)
		e.value = ledger_free(&vgpu_ledger, c->rm.client, c->rm.object);
	mutex_unlock(&vgpu_lock);
	if (!quiet) {
		vgpu_count(frees);
		vgpu_event(&e);
	}
	return result;
}

/*
 * While the driver duplicates, the source is held by a duplicate of ours, in a client of ours: so that it stays charged if another thread
 * frees it meanwhile. vgpu_lock is held.
 */
static u32 hold_source(struct call *c)
{
	static u32 next = 0xf0000000;
	struct rm_call ours = { .kind = RM_DUP, .source_client = c->rm.source_client, .source_object = c->rm.source_object };

	if (!rm_find(&vgpu_ledger.objects, c->rm.source_client, c->rm.source_object))
		return 0;
	ours.client = ours.parent = rm_unused(&vgpu_ledger.objects, 0, &next);
	if (!ours.client || ledger_dup(&vgpu_ledger, &c->subject, &ours, 1))
		return 0;
	return ours.client;
}

static void add_duplicate(struct call *c, u32 holder, u32 object)
{
	static const struct rm_call root = { .kind = RM_ALLOC, .code = NV01_ROOT_CLIENT };
	struct rm_call from = c->rm;

	/* A client older than this module: so that it goes with its file. */
	if (!rm_find(&vgpu_ledger.objects, c->rm.client, c->rm.client))
		ledger_add(&vgpu_ledger, &c->subject, client_file(c), &root, c->rm.client, NULL);
	if (holder) {
		from.source_client = holder;
		from.source_object = 1;
	}
	ledger_dup(&vgpu_ledger, &c->subject, &from, name_of(c, object));
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
	u32 holder;

	vgpu_count(dups);
	mutex_lock(&vgpu_lock);
	task = vgpu_begin(c, c->rm.parent);
	holder = hold_source(c);
	mutex_unlock(&vgpu_lock);

	result = vgpu_call_driver(c);
	readable = !decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = vgpu_event_of(c, VGPU_EVENT_DUP);
	e.status = result ? (u32)result : r.status;

	mutex_lock(&vgpu_lock);
	vgpu_subject_current(&c->subject, c->subject.minor);
	/* As with an allocation: when the answer did not reach the caller, the duplicate is there. */
	if (result == -EFAULT || (!result && (!readable || !r.status))) {
		e.object = c->rm.object ?: r.object;
		add_duplicate(c, holder, e.object);
		if (readable && (after.source_client != c->rm.source_client || after.source_object != c->rm.source_object))
			vgpu_race(c, c->rm.source_object, after.source_object);
	}
	if (holder)
		ledger_free(&vgpu_ledger, holder, holder);
	vgpu_end(task);
	mutex_unlock(&vgpu_lock);
	vgpu_event(&e);
	return result;
}

/* ---- ioctl --------------------------------------------------------------------------------------------------------------------------- */

static long dispatch(struct call *c, bool off)
{
	switch (c->rm.kind) {
	case RM_FREE:
		return free_object(c, off);
	case RM_ALLOC:
		return off ? vgpu_call_driver(c) : allocate(c);
	case RM_DUP:
		return off ? vgpu_call_driver(c) : duplicate(c);
	case RM_CONTROL:
		return off ? vgpu_call_driver(c) : vgpu_control(c);
	default:
		return vgpu_call_driver(c);
	}
}

bool vgpu_bound(const struct call *c)
{
	bool timeslices = c->rm.kind == RM_CONTROL, binds;
	struct policy_defaults defaults;
	struct policy_subject s;

	if (timeslices ? !vgpu_compute_trace : !vgpu_memory_trace)
		return false;
	if (!timeslices && vgpu_alloc_max_bytes)
		return true;
	vgpu_defaults(&defaults);
	vgpu_subject_current(&s, VGPU_MINOR_ANY);
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	binds = policy_binds(&vgpu_policies, &s, &defaults, timeslices);
	mutex_unlock(&vgpu_lock);
	return binds;
}

static noinline_for_stack long watched(struct call *c, bool off)
{
	int err;

	if (decode_to(c, c->head, c->params, &c->params_bytes, &c->rm))
		return c->enforce ? -EFAULT : vgpu_call_driver(c);	/* which says so itself */
	if (!c->enforce || !vgpu_private_arguments || !vgpu_bound(c))
		return dispatch(c, off);
	err = vgpu_private_begin(c);
	return err ?: vgpu_private_end(c, dispatch(c, off));
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
		if (vgpu_read_user(&xfer, arg, sizeof(xfer)))
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
