// SPDX-License-Identifier: GPL-2.0-only
#include "policy.h"

struct entry {
	struct table_node node;
	struct vgpu_limits limits;
};

static struct entry *entry_of(struct table_node *n)
{
	return n ? container_of(n, struct entry, node) : NULL;
}

int policy_check(const struct vgpu_limits *limits)
{
	if (limits->weight > VGPU_WEIGHT_MAX || limits->flags & ~VGPU_LIMIT_DRY_RUN)
		return -EINVAL;
	return limits->timeslice_max_us && limits->timeslice_min_us > limits->timeslice_max_us ? -EINVAL : 0;
}

static int set(const struct policies *p, struct table *t, u64 id, u32 minor, const struct vgpu_limits *limits)
{
	struct entry *e = entry_of(table_find(t, id, minor));
	int err = policy_check(limits);

	if (err)
		return err;
	if (e) {
		e->limits = *limits;
		return 0;
	}
	if (t->count >= (p->max ? p->max : POLICIES_MAX))
		return -ENOSPC;
	e = logic_alloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	t->grouped = true;
	err = table_insert(t, &e->node, id, minor);
	if (err) {
		logic_free(e);
		return err;
	}
	e->limits = *limits;
	return 0;
}

static int get(const struct table *t, u64 id, u32 minor, struct vgpu_limits *limits)
{
	struct entry *e = entry_of(table_find(t, id, minor));

	if (!e)
		return -ENOENT;
	*limits = e->limits;
	return 0;
}

static int clear(struct table *t, u64 id, u32 minor)
{
	struct entry *e = entry_of(table_find(t, id, minor));

	if (!e)
		return -ENOENT;
	table_remove(t, &e->node);
	logic_free(e);
	return 0;
}

static u32 drop(struct table *t, u64 id)
{
	struct table_node *n;
	u32 dropped = 0;

	for (; (n = table_group(t, id, NULL)); dropped++) {
		table_remove(t, n);
		logic_free(entry_of(n));
	}
	return dropped;
}

int policy_set_tgid(struct policies *p, u32 tgid, u32 minor, const struct vgpu_limits *limits)
{
	return set(p, &p->tgid, tgid, minor, limits);
}

int policy_set_cgroup(struct policies *p, u64 id, u32 minor, const struct vgpu_limits *limits)
{
	return set(p, &p->cgroup, id, minor, limits);
}

int policy_get_tgid(const struct policies *p, u32 tgid, u32 minor, struct vgpu_limits *limits)
{
	return get(&p->tgid, tgid, minor, limits);
}

int policy_get_cgroup(const struct policies *p, u64 id, u32 minor, struct vgpu_limits *limits)
{
	return get(&p->cgroup, id, minor, limits);
}

int policy_clear_tgid(struct policies *p, u32 tgid, u32 minor)
{
	return clear(&p->tgid, tgid, minor);
}

int policy_clear_cgroup(struct policies *p, u64 id, u32 minor)
{
	return clear(&p->cgroup, id, minor);
}

u32 policy_drop_tgid(struct policies *p, u32 tgid)
{
	return drop(&p->tgid, tgid);
}

u32 policy_drop_cgroup(struct policies *p, u64 id)
{
	return drop(&p->cgroup, id);
}

static u64 least(u64 a, u64 b)
{
	return a && (!b || a < b) ? a : b;
}

/* The tighter of both. One that only reports yields to one that acts. */
static void tighten(struct vgpu_limits *to, const struct vgpu_limits *l)
{
	if (l->flags != to->flags) {
		if (to->flags & VGPU_LIMIT_DRY_RUN)
			*to = *l;
		return;
	}
	to->memory_limit_bytes = least(to->memory_limit_bytes, l->memory_limit_bytes);
	to->timeslice_max_us = least(to->timeslice_max_us, l->timeslice_max_us);
	to->weight = least(to->weight, l->weight);
	if (l->timeslice_min_us < to->timeslice_min_us)
		to->timeslice_min_us = l->timeslice_min_us;
}

/* The policy for the minor itself, or the one for any. If the minor is not known, the tightest of
 * all holds, so that no caller escapes a policy by hiding the GPU; if there is none for any, it is
 * not certain that a policy holds at all. */
static bool best(const struct table *t, u64 id, u32 minor, struct vgpu_limits *out, bool *sure)
{
	struct table_node *n = table_find(t, id, minor);

	if (!n)
		n = minor == VGPU_MINOR_ANY ? table_group(t, id, NULL) : table_find(t, id, VGPU_MINOR_ANY);
	if (!n)
		return false;
	*sure |= minor != VGPU_MINOR_ANY || table_find(t, id, minor);
	*out = entry_of(n)->limits;
	if (minor == VGPU_MINOR_ANY)
		for (n = table_group(t, id, NULL); n; n = table_group(t, id, n))
			tighten(out, &entry_of(n)->limits);
	return true;
}

static void add_limit(struct policy *out, u64 bytes, u64 cgroup, bool dry_run)
{
	struct policy_limit *limit = &out->limit[out->limits];

	if (!bytes)
		return;
	limit->bytes = bytes;
	limit->cgroup = cgroup;
	limit->dry_run = dry_run;
	out->limits++;
}

static void take_timeslice(struct policy *out, enum vgpu_scope scope, const struct vgpu_limits *l, const struct policy_defaults *d)
{
	out->scope = scope;
	out->timeslice.weight = l->weight;
	if (l->timeslice_min_us)
		out->timeslice.min_us = l->timeslice_min_us;
	if (l->timeslice_max_us)
		out->timeslice.max_us = l->timeslice_max_us;
	out->dry_run = d->dry_run || l->flags & VGPU_LIMIT_DRY_RUN;
}

void policy_resolve(const struct policies *p, const struct policy_subject *s, const struct policy_defaults *d, struct policy *out)
{
	struct vgpu_limits l;
	bool sure = false;
	u32 i;

	memset(out, 0, sizeof(*out));
	out->timeslice.min_us = d->timeslice_min_us;
	out->timeslice.max_us = d->timeslice_max_us;
	out->dry_run = d->dry_run;
	if (best(&p->tgid, s->tgid, s->minor, &l, &sure)) {
		take_timeslice(out, VGPU_SCOPE_TGID, &l, d);
		add_limit(out, l.memory_limit_bytes, 0, out->dry_run);
	}
	if (sure)
		return;
	for (i = 0; i < s->cgroups && i < POLICY_CGROUP_DEPTH; i++) {
		if (!best(&p->cgroup, s->cgroup[i], s->minor, &l, &sure))
			continue;
		if (out->scope == VGPU_SCOPE_NONE) {
			take_timeslice(out, VGPU_SCOPE_CGROUP, &l, d);
			out->cgroup_id = s->cgroup[i];
		}
		add_limit(out, l.memory_limit_bytes, s->cgroup[i], d->dry_run || l.flags & VGPU_LIMIT_DRY_RUN);
	}
	if (sure)
		return;
	add_limit(out, d->memory_limit_bytes, 0, d->dry_run);
	if (out->scope == VGPU_SCOPE_NONE && (out->limits || d->timeslice_min_us || d->timeslice_max_us))
		out->scope = VGPU_SCOPE_MODULE;
}

static bool any_binds(const struct table *t, u64 id, bool timeslices)
{
	const struct vgpu_limits *l;
	struct table_node *n;

	for (n = table_group(t, id, NULL); n; n = table_group(t, id, n)) {
		l = &entry_of(n)->limits;
		if (!(l->flags & VGPU_LIMIT_DRY_RUN) &&
		    (timeslices ? l->weight > 1 || l->timeslice_min_us || l->timeslice_max_us : l->memory_limit_bytes != 0))
			return true;
	}
	return false;
}

bool policy_binds(const struct policies *p, const struct policy_subject *s, const struct policy_defaults *d, bool timeslices)
{
	u32 i;

	if (d->dry_run)
		return false;
	if (timeslices ? d->timeslice_min_us || d->timeslice_max_us : d->memory_limit_bytes != 0)
		return true;
	if (any_binds(&p->tgid, s->tgid, timeslices))
		return true;
	for (i = 0; i < s->cgroups && i < POLICY_CGROUP_DEPTH; i++)
		if (any_binds(&p->cgroup, s->cgroup[i], timeslices))
			return true;
	return false;
}

struct visitor {
	void (*visit)(u64 id, u32 minor, const struct vgpu_limits *l, void *context);
	void *context;
};

static int visit(struct table_node *n, void *context)
{
	struct visitor *v = context;

	v->visit(n->a, n->b, &entry_of(n)->limits, v->context);
	return 0;
}

void policy_each(struct policies *p, enum vgpu_scope scope, void (*each)(u64 id, u32 minor, const struct vgpu_limits *l, void *context),
		 void *context)
{
	struct visitor v = { each, context };

	table_each(scope == VGPU_SCOPE_TGID ? &p->tgid : &p->cgroup, visit, &v);
}

static void release(struct table_node *n, void *context)
{
	(void)context;
	logic_free(entry_of(n));
}

void policies_clear(struct policies *p)
{
	table_clear(&p->tgid, release, NULL);
	table_clear(&p->cgroup, release, NULL);
}
