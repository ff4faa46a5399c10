// SPDX-License-Identifier: GPL-2.0-only
/* Calls that make, free and duplicate objects: what the module charges to whom, before and after the driver. */
#include <linux/list.h>

#include "calls.h"

/* The file to which an unknown client belongs. Clients are made on nvidiactl alone, and may be used
 * on other files. */
static u64 client_file(const struct call *c)
{
	return vgpu_file_minor(c->file) == VGPU_MINOR_ANY ? vgpu_file_id(c->file) : 0;
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

/* Returns 0 if the driver may see the call. Otherwise *status is for the caller, or the result is
 * the error. vgpu_lock is held. */
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

/* Charges what the driver has made, over a limit or not. vgpu_lock is held. */
static struct ledger_charge *charge_anyway(struct call *c, const struct rm_call *rm)
{
	struct ledger_charge *charge = NULL;
	const struct policy_limit *over;

	ledger_charge(&vgpu_ledger, &c->subject, rm->memory, rm->bytes, NULL, &charge, &over);
	return charge;
}

/* A freeing call that is inside the driver. */
struct freeing {
	struct list_head list;
	u32 client, object;
	bool outdated;		/* an object of that name was made since: the free meant the earlier one */
};
static LIST_HEAD(frees);	/* vgpu_lock */

static bool is_root(const struct rm_call *rm)
{
	return rm->kind == RM_ALLOC && (rm->code == NV01_ROOT || rm->code == NV01_ROOT_NON_PRIV || rm->code == NV01_ROOT_CLIENT);
}

/* For an object whose name cannot be trusted: it keeps its charge until its client ends. */
static u32 unused_name(u32 client)
{
	static u32 next = 0xe0000000;

	return rm_unused(&vgpu_ledger.objects, client, &next);
}

/* The name of the object that the driver made. The caller chooses it, except for clients. */
static u32 object_made(const struct call *c, u32 answered)
{
	return is_root(&c->rm) ? answered : c->rm.object ?: answered;
}

/* The name under which to note an object that the driver made; 0: do not note it. If an object of
 * that name already holds memory, and no call is freeing it or an object above it, then another
 * thread changed the name so that the memory would be forgotten. vgpu_lock is held. */
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

/* The driver writes back the size, rounded up to its pages. A larger value was written by another
 * thread. */
#define ROUNDED_UP (512ull << 20)

static bool same_call(const struct rm_call *a, const struct rm_call *b)
{
	/* The driver writes class and name of a client itself. */
	bool named = is_root(a) ? is_root(b) : a->code == b->code && (!a->object || a->object == b->object);

	return named && a->kind == b->kind && a->client == b->client && a->parent == b->parent && a->params.address == b->params.address &&
	       a->params.bytes == b->params.bytes;
}

long vgpu_allocate(struct call *c)
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
	readable = !vgpu_decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = vgpu_event_of(c, VGPU_EVENT_ALLOC);
	/* If the answer did not reach the caller, the object may exist. It is better to charge for
	 * an object that does not exist than to miss one. */
	made = called && ((!result && (!readable || !r.status)) || (result == -EFAULT && held));

	mutex_lock(&vgpu_lock);
	vgpu_subject_current(&c->subject, c->subject.minor);	/* the task may have moved, and its old cgroup may be gone */
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

long vgpu_free(struct call *c, bool quiet)
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
	readable = !vgpu_decode(c, head, &after);
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

/* While the driver duplicates, the ledger holds the source by a duplicate in a client of the
 * module's own, so that it stays charged if another thread frees it meanwhile. vgpu_lock is
 * held. */
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

	/* A client that is older than this module is tied to its file, so that it ends with the
	 * file. */
	if (!rm_find(&vgpu_ledger.objects, c->rm.client, c->rm.client))
		ledger_add(&vgpu_ledger, &c->subject, client_file(c), &root, c->rm.client, NULL);
	if (holder) {
		from.source_client = holder;
		from.source_object = 1;
	}
	ledger_dup(&vgpu_ledger, &c->subject, &from, name_of(c, object));
}

long vgpu_duplicate(struct call *c)
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
	readable = !vgpu_decode(c, head, &after);
	if (readable)
		r = rm_result(c->escape, c->size, head);
	e = vgpu_event_of(c, VGPU_EVENT_DUP);
	e.status = result ? (u32)result : r.status;

	mutex_lock(&vgpu_lock);
	vgpu_subject_current(&c->subject, c->subject.minor);
	/* As with an allocation: if the answer did not reach the caller, the duplicate may
	 * exist. */
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
