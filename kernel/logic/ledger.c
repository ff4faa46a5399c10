// SPDX-License-Identifier: GPL-2.0-only
#include "ledger.h"

struct ledger_object {
	struct rm_object object;
	u32 device;				/* of NV01_DEVICE_0: the instance */
	bool seen;				/* the ledger saw its allocation; otherwise it is a placeholder */
	struct ledger_charge *charge;
	struct ledger_object *next, **link;	/* among those that hold the charge */
};

/* A root among the objects. */
struct ledger_client {
	struct ledger_object object;
	struct ledger_client *next, **link;
	u64 file;
	struct policy_subject owner;
};

struct ledger_charge {
	struct ledger_object first;		/* the object that it was made for, so that every charge has a place */
	struct ledger_object *holders;		/* none before ledger_add */
	struct ledger_charge *next, **link;	/* among those of the process */
	enum rm_memory kind;
	u64 bytes;
	u32 minor, levels;
	struct ledger_account *task, *cgroup[POLICY_CGROUP_DEPTH];
};

struct release { struct ledger *ledger; u64 freed; };

static struct ledger_object *find(const struct ledger *l, u32 client, u32 handle)
{
	struct rm_object *o = rm_find(&l->objects, client, handle);

	return o ? container_of(o, struct ledger_object, object) : NULL;
}

static struct ledger_client *find_client(const struct ledger *l, u32 number)
{
	struct ledger_object *o = find(l, number, number);

	return o ? container_of(o, struct ledger_client, object) : NULL;
}

/* ---- Charges ---- */

static u32 levels_of(const struct policy_subject *s)
{
	return s->cgroups < POLICY_CGROUP_DEPTH ? s->cgroups : POLICY_CGROUP_DEPTH;
}

/* The accounts that a charge to the subject goes to. */
static int find_accounts(struct ledger *l, const struct policy_subject *s, u32 minor, struct ledger_account **task,
			 struct ledger_account **cgroup)
{
	u32 i;

	*task = account_get(&l->tasks, s->tgid, minor);
	if (!*task)
		return -ENOMEM;
	for (i = 0; i < levels_of(s); i++) {
		cgroup[i] = account_get(&l->cgroups, s->cgroup[i], minor);
		if (!cgroup[i])
			return -ENOMEM;
	}
	return 0;
}

static void charge_accounts(struct ledger *l, struct ledger_charge *c)
{
	u32 i;

	account_add(&l->tasks, c->task, c->kind, c->bytes);
	for (i = 0; i < c->levels; i++)
		account_add(&l->cgroups, c->cgroup[i], c->kind, c->bytes);
	c->next = c->task->charges;
	if (c->next)
		c->next->link = &c->next;
	c->link = &c->task->charges;
	c->task->charges = c;
}

static void uncharge_accounts(struct ledger_charge *c)
{
	u32 i;

	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	account_subtract(c->task, c->kind, c->bytes);
	for (i = 0; i < c->levels; i++)
		account_subtract(c->cgroup[i], c->kind, c->bytes);
}

/* Moves the charge to the accounts of the client's owner. Without memory for that it stays with the
 * process that ended and its cgroups. */
static void move_charge(struct ledger *l, struct ledger_charge *c, const struct ledger_client *to)
{
	struct ledger_account *task, *cgroup[POLICY_CGROUP_DEPTH];

	if (find_accounts(l, &to->owner, c->minor, &task, cgroup))
		return;
	uncharge_accounts(c);
	c->task = task;
	c->levels = levels_of(&to->owner);
	memcpy(c->cgroup, cgroup, c->levels * sizeof(*cgroup));
	charge_accounts(l, c);
}

static bool exceeds(const struct ledger *l, const struct policy_subject *s, const struct policy_limit *limit, u64 bytes)
{
	u64 use = limit->cgroup ? accounts_use(&l->cgroups, limit->cgroup, s->minor) : accounts_use(&l->tasks, s->tgid, s->minor);

	return use > limit->bytes || bytes > limit->bytes - use;
}

static int check(struct ledger *l, const struct policy_subject *s, u64 bytes, const struct policy *policy, const struct policy_limit **over)
{
	u32 i;

	for (i = 0; i < policy->limits; i++) {
		if (!exceeds(l, s, &policy->limit[i], bytes))
			continue;
		if (!*over || !policy->limit[i].dry_run)
			*over = &policy->limit[i];
		if (!policy->limit[i].dry_run)
			return -EDQUOT;
	}
	return 0;
}

int ledger_charge(struct ledger *l, const struct policy_subject *s, enum rm_memory kind, u64 bytes, const struct policy *policy,
		  struct ledger_charge **charge, const struct policy_limit **over)
{
	struct ledger_charge *c;
	int err = 0;

	*charge = NULL;
	*over = NULL;
	if (kind == RM_MEMORY_NONE)
		return 0;
	if (kind == RM_MEMORY_DEVICE && policy)
		err = check(l, s, bytes, policy, over);
	if (*over)
		ledger_denied(l, s);
	if (err)
		return err;
	c = logic_alloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->kind = kind;
	c->bytes = bytes;
	c->minor = s->minor;
	c->levels = levels_of(s);
	err = find_accounts(l, s, s->minor, &c->task, c->cgroup);
	if (err) {
		logic_free(c);
		return err;
	}
	charge_accounts(l, c);
	*charge = c;
	return 0;
}

void ledger_cancel(struct ledger *l, struct ledger_charge *charge)
{
	(void)l;
	if (!charge)
		return;
	uncharge_accounts(charge);
	logic_free(charge);
}

static void hold(struct ledger_object *o, struct ledger_charge *c)
{
	o->charge = c;
	if (!c)
		return;
	o->next = c->holders;
	if (o->next)
		o->next->link = &o->next;
	o->link = &c->holders;
	c->holders = o;
}

/* ---- Objects ---- */

static void release(struct rm_object *object, void *context)
{
	struct ledger_object *o = container_of(object, struct ledger_object, object);
	struct ledger_client *client = object->parent ? NULL : container_of(o, struct ledger_client, object);
	struct ledger_charge *c = o->charge;
	struct release *r = context;

	if (client) {
		*client->link = client->next;
		if (client->next)
			client->next->link = client->link;
		logic_free(client);
		return;
	}
	if (c) {
		*o->link = o->next;
		if (o->next)
			o->next->link = o->link;
	}
	if (!c || o != &c->first)
		logic_free(o);
	if (!c || c->holders)
		return;
	if (c->kind == RM_MEMORY_DEVICE)
		r->freed = account_plus(r->freed, c->bytes);
	ledger_cancel(r->ledger, c);
}

static u64 remove_object(struct ledger *l, struct ledger_object *o)
{
	struct release r = { l, 0 };

	rm_remove(&l->objects, &o->object, release, &r);
	return r.freed;
}

static bool is_root(u32 class)
{
	return class == NV01_ROOT || class == NV01_ROOT_NON_PRIV || class == NV01_ROOT_CLIENT;
}

static struct ledger_client *add_client(struct ledger *l, const struct policy_subject *s, u64 file, u32 number, bool seen)
{
	struct ledger_client *c = find_client(l, number);

	if (c && !seen)
		return c;
	if (c && c->object.seen) {
		remove_object(l, &c->object);
		c = NULL;
	}
	if (!c) {
		c = logic_alloc(sizeof(*c));
		if (!c)
			return NULL;
		if (rm_add(&l->objects, &c->object.object, NULL, number, number, NV01_ROOT_CLIENT)) {
			logic_free(c);
			return NULL;
		}
		c->next = l->clients;
		if (c->next)
			c->next->link = &c->next;
		c->link = &l->clients;
		l->clients = c;
	}
	c->object.seen = seen;
	c->file = file;
	c->owner = *s;
	return c;
}

static struct rm_object *parent_of(struct ledger *l, struct ledger_client *c, u32 handle, u32 object)
{
	struct rm_object *root = &c->object.object;
	struct ledger_object *parent = find(l, rm_client(root), handle);

	if (parent)
		return &parent->object;
	if (!handle || handle == object)
		return root;
	parent = logic_alloc(sizeof(*parent));
	if (!parent)
		return root;
	if (rm_add(&l->objects, &parent->object, root, rm_client(root), handle, 0)) {
		logic_free(parent);
		return root;
	}
	return &parent->object;
}

/* Puts the object in its place. spare is memory for it, which is not needed if there is a placeholder already. */
static struct ledger_object *place(struct ledger *l, struct ledger_client *c, u32 parent, u32 handle, u32 class,
				   struct ledger_object *spare)
{
	u32 client = rm_client(&c->object.object);
	struct ledger_object *o = find(l, client, handle);
	struct rm_object *above;

	if (o && o->seen) {
		remove_object(l, o);
		o = NULL;
	}
	above = parent_of(l, c, parent, handle);
	if (o) {
		rm_move(&o->object, above);	/* an object cannot be its own ancestor: then it stays where it is */
		o->object.class = class;
	} else {
		o = spare ? spare : logic_alloc(sizeof(*o));
		if (!o)
			return NULL;
		if (rm_add(&l->objects, &o->object, above, client, handle, class)) {
			if (!spare)
				logic_free(o);
			return NULL;
		}
	}
	o->seen = true;
	return o;
}

int ledger_add(struct ledger *l, const struct policy_subject *s, u64 file, const struct rm_call *call, u32 object,
	       struct ledger_charge *charge)
{
	struct ledger_client *c;
	struct ledger_object *o;

	if (is_root(call->code)) {
		ledger_cancel(l, charge);
		return add_client(l, s, file, object, true) ? 0 : -ENOMEM;
	}
	c = add_client(l, s, file, call->client, false);
	if (!c || !object || object == call->client) {	/* the driver gives no object such a handle */
		ledger_cancel(l, charge);
		return c ? 0 : -ENOMEM;
	}
	o = place(l, c, call->parent, object, call->code, charge ? &charge->first : NULL);
	if (!o) {
		ledger_cancel(l, charge);
		return -ENOMEM;
	}
	o->device = call->device;
	hold(o, charge);
	return 0;
}

int ledger_dup(struct ledger *l, const struct policy_subject *s, const struct rm_call *call, u32 object)
{
	struct ledger_client *c = add_client(l, s, 0, call->client, false);
	struct ledger_object *o, *source;

	if (!c)
		return -ENOMEM;
	if (!object || object == call->client || (call->source_client == call->client && call->source_object == object))
		return 0;
	o = place(l, c, call->parent, object, 0, NULL);
	if (!o)
		return -ENOMEM;
	source = find(l, call->source_client, call->source_object);	/* unless it went with what was replaced */
	if (source) {
		o->object.class = source->object.class;
		o->device = source->device;
		hold(o, source->charge);
	}
	return 0;
}

bool ledger_holds(const struct ledger *l, u32 client, u32 object)
{
	struct ledger_object *top = find(l, client, object);
	struct rm_object *o;

	if (!top || !top->seen)
		return false;
	for (o = &top->object; !container_of(o, struct ledger_object, object)->charge;) {
		if (o->child) {
			o = o->child;
			continue;
		}
		while (o != &top->object && !o->next)
			o = o->parent;
		if (o == &top->object)
			return false;
		o = o->next;
	}
	return true;
}

u64 ledger_free(struct ledger *l, u32 client, u32 object)
{
	struct ledger_object *o = find(l, client, object);

	return o ? remove_object(l, o) : 0;
}

u64 ledger_close(struct ledger *l, u64 file)
{
	struct ledger_client *c, *next;
	u64 freed = 0;

	for (c = l->clients; c && file; c = next) {
		next = c->next;
		if (c->file == file)
			freed = account_plus(freed, remove_object(l, &c->object));
	}
	return freed;
}

/* The heir of a charge: among the clients that have an owner, the owner of the one that duplicated
 * it last. */
static struct ledger_client *heir(const struct ledger *l, const struct ledger_charge *c)
{
	struct ledger_client *client;
	struct ledger_object *o;

	for (o = c->holders; o; o = o->next) {
		client = find_client(l, rm_client(&o->object));
		if (client->owner.tgid)
			return client;
	}
	return NULL;
}

/* The accounts of a process that ended. A charge without an heir stays with them and with the
 * cgroups: no client holds it yet, or only clients without an owner do. */
static void drop_accounts(struct ledger *l, u32 tgid)
{
	struct ledger_account *a;
	struct ledger_charge *c, *next;
	struct ledger_client *to;

	while ((a = account_next(&l->tasks, tgid, NULL))) {
		next = a->charges;
		account_drop(&l->tasks, a);
		while ((c = next)) {
			next = c->next;
			to = heir(l, c);
			if (to)
				move_charge(l, c, to);
		}
	}
}

u64 ledger_exit(struct ledger *l, u32 tgid)
{
	struct ledger_client *c, *next;
	u64 freed = 0;

	for (c = l->clients; c; c = next) {
		next = c->next;
		if (c->owner.tgid == tgid)
			freed = account_plus(freed, remove_object(l, &c->object));
	}
	drop_accounts(l, tgid);
	return freed;
}

u64 ledger_leave(struct ledger *l, u32 tgid)
{
	struct ledger_account *a;
	struct ledger_client *c, *next;
	u64 held = 0;

	for (a = account_next(&l->tasks, tgid, NULL); a; a = account_next(&l->tasks, tgid, a))
		held = account_plus(held, account_bytes(a, RM_MEMORY_DEVICE));
	for (c = l->clients; c; c = next) {
		next = c->next;
		if (c->owner.tgid == tgid && !c->file)
			remove_object(l, &c->object);
		else if (c->owner.tgid == tgid)
			c->owner.tgid = 0;
	}
	drop_accounts(l, tgid);
	return held;
}

/* A client forgets a cgroup that is gone: a charge that moves to the client would otherwise bring
 * the cgroup back. */
static void forget_cgroup(struct policy_subject *s, u64 id)
{
	u32 i, kept = 0;

	for (i = 0; i < levels_of(s); i++)
		if (s->cgroup[i] != id)
			s->cgroup[kept++] = s->cgroup[i];
	s->cgroups = kept;
}

void ledger_drop_cgroup(struct ledger *l, u64 id)
{
	struct ledger_client *c;
	struct ledger_account *a;

	for (c = l->clients; c; c = c->next)
		forget_cgroup(&c->owner, id);
	while ((a = account_next(&l->cgroups, id, NULL)))
		account_drop(&l->cgroups, a);
}

/* ---- Counts ---- */

/* Without memory a count is lost. */
static void each_account(struct ledger *l, const struct policy_subject *s, void (*count)(struct ledger_account *a, u64 turn, u64 us),
			 u64 us)
{
	struct ledger_account *a = account_get(&l->tasks, s->tgid, s->minor);
	u32 i;

	if (a)
		count(a, l->timeslices, us);
	for (i = 0; i < levels_of(s); i++) {
		a = account_get(&l->cgroups, s->cgroup[i], s->minor);
		if (a)
			count(a, l->timeslices, us);
	}
}

static void count_timeslice(struct ledger_account *a, u64 turn, u64 us)
{
	a->timeslices++;
	a->timeslice_us = us;
	a->timeslice_turn = turn;
}

void ledger_timeslice(struct ledger *l, const struct policy_subject *s, u64 us)
{
	l->timeslices++;
	each_account(l, s, count_timeslice, us);
}

static void count_denial(struct ledger_account *a, u64 turn, u64 us)
{
	(void)turn;
	(void)us;
	a->denied++;
}

void ledger_denied(struct ledger *l, const struct policy_subject *s)
{
	each_account(l, s, count_denial, 0);
}

u32 ledger_minor(const struct ledger *l, u32 client, u32 object, const u32 *minors, u32 count)
{
	struct rm_object *o = rm_find(&l->objects, client, object);
	u32 device;

	while (o && o->class != NV01_DEVICE_0)
		o = o->parent;
	if (!o)
		return VGPU_MINOR_ANY;
	device = container_of(o, struct ledger_object, object)->device;
	return device < count ? minors[device] : VGPU_MINOR_ANY;
}

int ledger_usage(const struct ledger *l, enum vgpu_scope scope, u64 id, u32 minor, struct vgpu_usage *out)
{
	return accounts_usage(scope == VGPU_SCOPE_TGID ? &l->tasks : &l->cgroups, id, minor, out);
}

void ledger_clear(struct ledger *l)
{
	struct release r = { l, 0 };

	rm_clear(&l->objects, release, &r);
	accounts_clear(&l->tasks);
	accounts_clear(&l->cgroups);
}
