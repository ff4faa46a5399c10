// SPDX-License-Identifier: GPL-2.0-only
#include "../ledger.h"
#include "program.h"
#include "suite.h"

/* Few of each, so that calls affect the same ones. A client's number is also a handle in that client. */
#define TASKS 4			/* 1 to 4, with a cgroup each and shared cgroups above these */
#define CLIENTS 5		/* 1 to 4 */
#define HANDLES 9		/* 1 to 8 */
#define FILES 4			/* 0 to 3 */
#define CHARGES 24
#define POLICIES 24
#define LEVELS 3
#define IDS 32			/* of tasks and cgroups; the scope distinguishes them */
#define NOTHING (-1)

typedef unsigned __int128 u128;

static const u32 minors[] = { 0, 1, VGPU_MINOR_ANY };
static const u32 instances[] = { 1, 0 };
static const u64 sizes[] = { 0, 1, 2, 3, 5, 8, 1ull << 63, U64_MAX };

struct model_object { bool there, seen; int parent, charge; u32 class, device, held; };
struct model_client { u32 file, task, levels; u64 cgroup[LEVELS]; };
struct model_charge {
	bool there, pending;
	enum rm_memory kind;
	u64 bytes;
	u32 minor, task, levels;	/* task 0: one that has ended */
	u64 cgroup[LEVELS];
	struct ledger_charge *real;
};
struct model_account { bool there; u64 peak, denied, timeslices, timeslice_us, turn; };
struct model_policy { bool there; enum vgpu_scope scope; u64 id; u32 minor; struct vgpu_limits limits; };

static struct ledger ledger;
static struct policies policies;
static struct {
	struct model_object object[CLIENTS][HANDLES];
	struct model_client client[CLIENTS];
	struct model_charge charge[CHARGES];
	struct model_account account[2][IDS][3];
	u64 peak_all[2][IDS];
	struct model_policy policy[POLICIES];
	u32 holds, turns;
	u64 freed;
} m;

static u64 saturated(u128 sum)
{
	return sum > U64_MAX ? U64_MAX : (u64)sum;
}

static struct policy_subject subject(struct program *p)
{
	u32 task = 1 + program_byte(p) % TASKS;

	return (struct policy_subject){ task, minors[program_byte(p) % 3], LEVELS, { 10 + task, 20 + task / 2, 30 } };
}

static u32 slot(u32 minor)
{
	return minor == VGPU_MINOR_ANY ? 2 : minor;
}

/* The sums of all charges, computed anew. scope 0: tasks, 1: cgroups. */
static u128 sums[2][IDS][3][RM_MEMORY_KINDS];
static u64 numbers[2][IDS][3];

static void add_up(void)
{
	struct model_charge *c;
	u32 i;

	memset(sums, 0, sizeof(sums));
	memset(numbers, 0, sizeof(numbers));
	for (c = m.charge; c < m.charge + CHARGES; c++) {
		if (!c->there)
			continue;
		sums[0][c->task][slot(c->minor)][c->kind] += c->bytes;
		numbers[0][c->task][slot(c->minor)]++;
		for (i = 0; i < c->levels; i++) {
			sums[1][c->cgroup[i]][slot(c->minor)][c->kind] += c->bytes;
			numbers[1][c->cgroup[i]][slot(c->minor)]++;
		}
	}
}

static u64 use_of_all(u32 scope, u64 id, enum rm_memory kind)
{
	return saturated(sums[scope][id][0][kind] + sums[scope][id][1][kind] + sums[scope][id][2][kind]);
}

/* Updates accounts and peaks for a charge that was added. */
static void arrive(u32 scope, u64 id, u32 minor)
{
	struct model_account *a = &m.account[scope][id][slot(minor)];
	u64 one = saturated(sums[scope][id][slot(minor)][RM_MEMORY_DEVICE]);
	u64 all = use_of_all(scope, id, RM_MEMORY_DEVICE);

	a->there = true;
	if (one > a->peak)
		a->peak = one;
	if (all > m.peak_all[scope][id])
		m.peak_all[scope][id] = all;
}

static void arrive_all(const struct model_charge *c)
{
	u32 i;

	if (c->task)
		arrive(0, c->task, c->minor);
	for (i = 0; i < c->levels; i++)
		arrive(1, c->cgroup[i], c->minor);
}

static void drop_accounts(u32 scope, u64 id)
{
	memset(m.account[scope][id], 0, sizeof(m.account[scope][id]));
	m.peak_all[scope][id] = 0;
}

/* ---- Policies ---- */

static struct model_policy *policy_at(enum vgpu_scope scope, u64 id, u32 minor)
{
	u32 i;

	for (i = 0; i < POLICIES; i++)
		if (m.policy[i].there && m.policy[i].scope == scope && m.policy[i].id == id && m.policy[i].minor == minor)
			return &m.policy[i];
	return NULL;
}

static u64 lesser(u64 a, u64 b)
{
	return !a || (b && b < a) ? b : a;
}

/* The limits of a level, if there are any. sure: they apply to any GPU. */
static bool limits_for(enum vgpu_scope scope, u64 id, u32 minor, struct vgpu_limits *l, bool *sure)
{
	struct model_policy *q = policy_at(scope, id, minor);
	bool found = false;
	u32 i, flags;

	q = q ? q : policy_at(scope, id, VGPU_MINOR_ANY);
	*sure |= q != NULL;
	if (q)
		*l = q->limits;
	if (minor != VGPU_MINOR_ANY)
		return q != NULL;
	for (flags = 0; flags <= VGPU_LIMIT_DRY_RUN && !found; flags++)
		for (i = 0; i < 3; i++) {
			q = policy_at(scope, id, minors[i]);
			if (!q || q->limits.flags != flags)
				continue;
			if (!found)
				*l = q->limits;
			found = true;
			l->memory_limit_bytes = lesser(l->memory_limit_bytes, q->limits.memory_limit_bytes);
			l->timeslice_max_us = lesser(l->timeslice_max_us, q->limits.timeslice_max_us);
			l->weight = lesser(l->weight, q->limits.weight);
			if (l->timeslice_min_us > q->limits.timeslice_min_us)
				l->timeslice_min_us = q->limits.timeslice_min_us;
		}
	return found;
}

static void expect_limit(struct program *p, const struct policy *out, u32 *at, u64 bytes, u64 cgroup, bool dry_run)
{
	const struct policy_limit *l = &out->limit[*at];

	if (!bytes)
		return;
	PROGRAM_EXPECT(p, *at < out->limits && l->bytes == bytes && l->cgroup == cgroup && l->dry_run == dry_run);
	++*at;
}

static void check_policy(struct program *p, const struct policy_subject *s, struct policy *out)
{
	struct policy_defaults d = { 6, 100, 0, program_byte(p) % 4 == 0 };
	struct vgpu_limits first = {}, l = {};
	enum vgpu_scope scope = VGPU_SCOPE_MODULE;
	u64 cgroup = 0;
	u32 i, at = 0;
	bool sure = false, alone;

	policy_resolve(&policies, s, &d, out);
	if (limits_for(VGPU_SCOPE_TGID, s->tgid, s->minor, &first, &sure)) {
		scope = VGPU_SCOPE_TGID;
		expect_limit(p, out, &at, first.memory_limit_bytes, 0, d.dry_run || first.flags);
	}
	alone = sure;
	for (i = 0; i < s->cgroups && !alone; i++) {
		if (!limits_for(VGPU_SCOPE_CGROUP, s->cgroup[i], s->minor, &l, &sure))
			continue;
		if (scope == VGPU_SCOPE_MODULE) {
			scope = VGPU_SCOPE_CGROUP;
			cgroup = s->cgroup[i];
			first = l;
		}
		expect_limit(p, out, &at, l.memory_limit_bytes, s->cgroup[i], d.dry_run || l.flags);
	}
	if (!sure)
		expect_limit(p, out, &at, 6, 0, d.dry_run);
	PROGRAM_EXPECT(p, out->limits == at && out->scope == scope && out->cgroup_id == cgroup);
	PROGRAM_EXPECT(p, out->timeslice.weight == first.weight && out->timeslice.max_us == first.timeslice_max_us);
	PROGRAM_EXPECT(p, out->timeslice.min_us == (first.timeslice_min_us ? first.timeslice_min_us : 100));
	PROGRAM_EXPECT(p, out->dry_run == (d.dry_run || first.flags));
}

static void set_policy(struct program *p)
{
	u8 what = program_byte(p);
	struct policy_subject s = subject(p);
	enum vgpu_scope scope = what & 1 ? VGPU_SCOPE_TGID : VGPU_SCOPE_CGROUP;
	u64 id = what & 1 ? s.tgid : s.cgroup[what / 2 % LEVELS];
	struct vgpu_limits l = { program_byte(p) % 16, program_byte(p), program_byte(p), program_byte(p) * 64, program_byte(p) % 3 };
	bool valid = l.weight <= 10000 && l.flags <= 1 && (!l.timeslice_max_us || l.timeslice_min_us <= l.timeslice_max_us);
	struct model_policy *q = policy_at(scope, id, s.minor);
	int err = what & 1 ? policy_set_tgid(&policies, id, s.minor, &l) : policy_set_cgroup(&policies, id, s.minor, &l);
	u32 i, count = 0;

	for (i = 0; i < POLICIES; i++)
		count += m.policy[i].there && m.policy[i].scope == scope;
	PROGRAM_EXPECT(p, err == (!valid ? -EINVAL : !q && count >= policies.max ? -ENOSPC : 0));
	if (err)
		return;
	for (i = 0; !q; i++)
		if (!m.policy[i].there)
			q = &m.policy[i];
	*q = (struct model_policy){ true, scope, id, s.minor, l };
}

static void clear_policy(struct program *p)
{
	u8 what = program_byte(p);
	struct policy_subject s = subject(p);
	u64 id = what & 1 ? s.tgid : s.cgroup[what / 2 % LEVELS];
	struct model_policy *q = policy_at(what & 1 ? VGPU_SCOPE_TGID : VGPU_SCOPE_CGROUP, id, s.minor);
	int err = what & 1 ? policy_clear_tgid(&policies, id, s.minor) : policy_clear_cgroup(&policies, id, s.minor);

	PROGRAM_EXPECT(p, err == (q ? 0 : -ENOENT));
	if (q)
		q->there = false;
}

static u32 forget_policies(enum vgpu_scope scope, u64 id)
{
	u32 i, dropped = 0;

	for (i = 0; i < POLICIES; i++) {
		if (!m.policy[i].there || m.policy[i].scope != scope || m.policy[i].id != id)
			continue;
		m.policy[i].there = false;
		dropped++;
	}
	return dropped;
}

/* ---- Objects ---- */

static int last_holder(int charge, bool of_somebody, u32 *client)
{
	int found = NOTHING;
	u32 c, h;

	for (c = 0; c < CLIENTS; c++)
		for (h = 0; h < HANDLES; h++) {
			if (!m.object[c][h].there || m.object[c][h].charge != charge)
				continue;
			if (of_somebody && !m.client[c].task)
				continue;
			if (found != NOTHING && m.object[*client][found].held > m.object[c][h].held)
				continue;
			found = h;
			*client = c;
		}
	return found;
}

static void model_remove(u32 c, u32 h)
{
	struct model_object *o = &m.object[c][h];
	u32 other;

	for (other = 0; other < HANDLES; other++)
		if (m.object[c][other].there && m.object[c][other].parent == (int)h && other != h)
			model_remove(c, other);		/* the depth is at most the number of handles */
	o->there = false;
	if (o->charge == NOTHING || last_holder(o->charge, false, &other) != NOTHING)
		return;
	if (m.charge[o->charge].kind == RM_MEMORY_DEVICE)
		m.freed = saturated((u128)m.freed + m.charge[o->charge].bytes);
	m.charge[o->charge].there = false;
}

static void model_client(const struct policy_subject *s, u32 file, u32 c, bool seen)
{
	struct model_object *o = &m.object[c][c];

	if (o->there && !seen)
		return;
	if (o->there && o->seen)
		model_remove(c, c);
	if (!o->there)
		*o = (struct model_object){ .there = true, .parent = NOTHING, .charge = NOTHING, .class = NV01_ROOT_CLIENT };
	o->seen = seen;
	m.client[c] = (struct model_client){ file, s->tgid, s->cgroups, { s->cgroup[0], s->cgroup[1], s->cgroup[2] } };
}

static bool is_below(u32 c, int h, u32 top)
{
	for (; h != NOTHING; h = m.object[c][h].parent)
		if (h == (int)top)
			return true;
	return false;
}

static struct model_object *model_place(u32 c, u32 parent, u32 h, u32 class)
{
	struct model_object *o = &m.object[c][h];

	if (o->there && o->seen)
		model_remove(c, h);
	if (!parent || parent == h)
		parent = c;
	if (!m.object[c][parent].there)
		m.object[c][parent] = (struct model_object){ .there = true, .parent = c, .charge = NOTHING };
	if (!o->there)
		*o = (struct model_object){ .there = true, .parent = parent, .charge = NOTHING };
	else if (!is_below(c, parent, h))
		o->parent = parent;
	o->class = class;
	o->seen = true;
	return o;
}

static int pending(struct program *p)
{
	u32 i = program_byte(p) % CHARGES;

	return m.charge[i].there && m.charge[i].pending ? (int)i : NOTHING;
}

static void add(struct program *p)
{
	static const u32 classes[] = { NV01_ROOT_CLIENT, NV01_ROOT, NV01_DEVICE_0, NV20_SUBDEVICE_0, NV01_MEMORY_LOCAL_USER };
	struct policy_subject s = subject(p);
	u32 file = program_byte(p) % FILES, c = 1 + program_byte(p) % (CLIENTS - 1), h = program_byte(p) % HANDLES;
	struct rm_call call = { .client = c, .parent = program_byte(p) % HANDLES, .code = classes[program_byte(p) % 5], .device = program_byte(p) % 3 };
	int i = pending(p);
	struct model_charge *charge = i == NOTHING ? NULL : &m.charge[i];
	struct model_object *o;
	int err = ledger_add(&ledger, &s, file, &call, call.code < 0x80 && call.code != NV01_MEMORY_LOCAL_USER ? c : h, charge ? charge->real : NULL);

	PROGRAM_EXPECT(p, !err);
	if (call.code == NV01_ROOT || call.code == NV01_ROOT_CLIENT) {
		if (charge)
			charge->there = false;
		model_client(&s, file, c, true);
		return;
	}
	model_client(&s, file, c, false);
	if (!h || h == c) {
		if (charge)
			charge->there = false;
		return;
	}
	o = model_place(c, call.parent, h, call.code);
	o->device = call.device;
	o->charge = i;
	o->held = ++m.holds;
	if (charge)
		charge->pending = false;
}

static void dup(struct program *p)
{
	struct policy_subject s = subject(p);
	u32 c = 1 + program_byte(p) % (CLIENTS - 1), h = program_byte(p) % HANDLES;
	u32 from = 1 + program_byte(p) % (CLIENTS - 1), source = program_byte(p) % HANDLES;
	struct rm_call call = { .client = c, .parent = program_byte(p) % HANDLES, .source_client = from, .source_object = source };
	struct model_object *o, *of = &m.object[from][source];

	PROGRAM_EXPECT(p, !ledger_dup(&ledger, &s, &call, h));
	model_client(&s, 0, c, false);
	if (!h || h == c || (c == from && h == source))
		return;
	o = model_place(c, call.parent, h, 0);
	if (!of->there)
		return;
	o->class = of->class;
	o->device = of->device;
	o->charge = of->charge;
	o->held = ++m.holds;
}

static void free_object(struct program *p)
{
	u32 c = program_byte(p) % CLIENTS, h = program_byte(p) % HANDLES;
	u64 freed;

	m.freed = 0;
	if (m.object[c][h].there)
		model_remove(c, h);
	freed = ledger_free(&ledger, c, h);
	PROGRAM_EXPECT(p, freed == m.freed);
}

static void close_file(struct program *p)
{
	u32 file = program_byte(p) % FILES, c;
	u64 freed;

	m.freed = 0;
	for (c = 0; c < CLIENTS && file; c++)
		if (m.object[c][c].there && m.client[c].file == file)
			model_remove(c, c);
	freed = ledger_close(&ledger, file);
	PROGRAM_EXPECT(p, freed == m.freed);
}

/* Charges of the process move to the owner of the last duplicate, or stay with the cgroups alone. */
static void model_leave(u32 task)
{
	u32 c, i;

	drop_accounts(0, task);
	for (i = 0; i < CHARGES; i++) {
		struct model_charge *charge = &m.charge[i];

		if (!charge->there || charge->task != task)
			continue;
		charge->task = 0;
		if (last_holder(i, true, &c) == NOTHING)
			continue;
		charge->task = m.client[c].task;
		charge->levels = m.client[c].levels;
		memcpy(charge->cgroup, m.client[c].cgroup, sizeof(charge->cgroup));
	}
	add_up();
	for (i = 0; i < CHARGES; i++)
		if (m.charge[i].there)
			arrive_all(&m.charge[i]);
}

static void exit_task(struct program *p)
{
	u32 task = 1 + program_byte(p) % TASKS, c;
	u64 freed;
	u32 dropped = policy_drop_tgid(&policies, task);

	PROGRAM_EXPECT(p, dropped == forget_policies(VGPU_SCOPE_TGID, task));
	m.freed = 0;
	for (c = 0; c < CLIENTS; c++)
		if (m.object[c][c].there && m.client[c].task == task)
			model_remove(c, c);
	model_leave(task);
	freed = ledger_exit(&ledger, task);
	PROGRAM_EXPECT(p, freed == m.freed);
}

/* As exit_task, but clients that have a file stay, without an owner. */
static void leave_task(struct program *p)
{
	u32 task = 1 + program_byte(p) % TASKS, c;
	u64 held, left;

	add_up();
	held = use_of_all(0, task, RM_MEMORY_DEVICE);
	for (c = 0; c < CLIENTS; c++) {
		if (!m.object[c][c].there || m.client[c].task != task)
			continue;
		if (m.client[c].file)
			m.client[c].task = 0;
		else
			model_remove(c, c);
	}
	model_leave(task);
	left = ledger_leave(&ledger, task);
	PROGRAM_EXPECT(p, left == held);
}

static void forget(u32 *levels, u64 *cgroup, u64 id)
{
	u32 i, kept = 0;

	for (i = 0; i < *levels; i++)
		if (cgroup[i] != id)
			cgroup[kept++] = cgroup[i];
	*levels = kept;
}

static void drop_cgroup(struct program *p)
{
	struct policy_subject s = subject(p);
	u64 id = s.cgroup[program_byte(p) % LEVELS];
	u32 i, dropped = policy_drop_cgroup(&policies, id);

	PROGRAM_EXPECT(p, dropped == forget_policies(VGPU_SCOPE_CGROUP, id));
	ledger_drop_cgroup(&ledger, id);
	for (i = 0; i < CLIENTS; i++)
		forget(&m.client[i].levels, m.client[i].cgroup, id);
	for (i = 0; i < CHARGES; i++)
		forget(&m.charge[i].levels, m.charge[i].cgroup, id);
	drop_accounts(1, id);
}

/* ---- Charges ---- */

static void count(const struct policy_subject *s, bool denied, u64 us)
{
	struct model_account *a;
	u32 i;

	m.turns += !denied;
	for (i = 0; i <= s->cgroups; i++) {
		a = i ? &m.account[1][s->cgroup[i - 1]][slot(s->minor)] : &m.account[0][s->tgid][slot(s->minor)];
		a->there = true;
		a->denied += denied;
		a->timeslices += !denied;
		a->timeslice_us = denied ? a->timeslice_us : us;
		a->turn = denied ? a->turn : m.turns;
	}
}

static void charge(struct program *p)
{
	struct policy_subject s = subject(p);
	struct model_charge *c = &m.charge[program_byte(p) % CHARGES];
	enum rm_memory kind = RM_MEMORY_DEVICE + program_byte(p) % 4 % 3;
	u64 bytes = sizes[program_byte(p) % ARRAY_SIZE(sizes)];
	u128 used;
	const struct policy_limit *over, *first = NULL, *denies = NULL;
	struct policy policy;
	u32 i;
	int err;

	check_policy(p, &s, &policy);
	if (c->there)
		return;
	add_up();
	for (i = 0; i < policy.limits && kind == RM_MEMORY_DEVICE; i++) {
		const struct policy_limit *limit = &policy.limit[i];
		u128 (*sum)[RM_MEMORY_KINDS] = limit->cgroup ? sums[1][limit->cgroup] : sums[0][s.tgid];

		used = s.minor == VGPU_MINOR_ANY ? sum[0][kind] + sum[1][kind] + sum[2][kind] : sum[slot(s.minor)][kind] + sum[2][kind];
		if (used + bytes <= limit->bytes)
			continue;
		first = first ? first : limit;
		denies = denies || limit->dry_run ? denies : limit;
	}
	err = ledger_charge(&ledger, &s, kind, bytes, &policy, &c->real, &over);
	PROGRAM_EXPECT(p, err == (denies ? -EDQUOT : 0));
	PROGRAM_EXPECT(p, over == (denies ? denies : first));
	if (first)
		count(&s, true, 0);
	if (err)
		return;
	*c = (struct model_charge){ true, true, kind, bytes, s.minor, s.tgid, LEVELS, { s.cgroup[0], s.cgroup[1], s.cgroup[2] }, c->real };
	add_up();
	arrive_all(c);
}

static void cancel(struct program *p)
{
	int i = pending(p);

	if (i == NOTHING)
		return;
	ledger_cancel(&ledger, m.charge[i].real);
	m.charge[i].there = false;
}

static void timeslice(struct program *p)
{
	struct policy_subject s = subject(p);
	u64 us = program_byte(p);

	ledger_timeslice(&ledger, &s, us);
	count(&s, false, us);
}

static void denied(struct program *p)
{
	struct policy_subject s = subject(p);

	ledger_denied(&ledger, &s);
	count(&s, true, 0);
}

/* ---- Comparison ---- */

static bool model_holds(u32 c, u32 h)
{
	u32 other;

	for (other = 0; other < HANDLES; other++)
		if (m.object[c][other].there && m.object[c][other].charge != NOTHING && is_below(c, other, h))
			return m.object[c][h].seen;
	return false;
}

static void compare_account(struct program *p, u32 scope, u64 id)
{
	struct vgpu_usage u, sum = { 0 };
	struct model_account *a;
	u64 turn = 0;
	bool any = false;
	u32 i;
	int err;

	for (i = 0; i < 3; i++) {
		a = &m.account[scope][id][i];
		any |= a->there;
		sum.denied += a->denied;
		sum.timeslices += a->timeslices;
		if (a->turn > turn) {
			turn = a->turn;
			sum.timeslice_us = a->timeslice_us;
		}
		if (i == 2)
			break;		/* an unknown GPU cannot be asked for */
		err = ledger_usage(&ledger, scope ? VGPU_SCOPE_CGROUP : VGPU_SCOPE_TGID, id, i, memset(&u, 0, sizeof(u)));
		PROGRAM_EXPECT(p, err == (a->there ? 0 : -ENOENT));
		PROGRAM_EXPECT(p, u.device_bytes == saturated(sums[scope][id][i][RM_MEMORY_DEVICE]));
		PROGRAM_EXPECT(p, u.system_bytes == saturated(sums[scope][id][i][RM_MEMORY_SYSTEM]));
		PROGRAM_EXPECT(p, u.virtual_bytes == saturated(sums[scope][id][i][RM_MEMORY_VIRTUAL]));
		PROGRAM_EXPECT(p, u.peak_device_bytes == a->peak && u.allocations == numbers[scope][id][i] && u.denied == a->denied);
		PROGRAM_EXPECT(p, u.timeslices == a->timeslices && u.timeslice_us == a->timeslice_us);
	}
	err = ledger_usage(&ledger, scope ? VGPU_SCOPE_CGROUP : VGPU_SCOPE_TGID, id, VGPU_MINOR_ANY, memset(&u, 0, sizeof(u)));
	PROGRAM_EXPECT(p, err == (any ? 0 : -ENOENT));
	PROGRAM_EXPECT(p, u.device_bytes == use_of_all(scope, id, RM_MEMORY_DEVICE));
	PROGRAM_EXPECT(p, u.system_bytes == use_of_all(scope, id, RM_MEMORY_SYSTEM));
	PROGRAM_EXPECT(p, u.virtual_bytes == use_of_all(scope, id, RM_MEMORY_VIRTUAL));
	PROGRAM_EXPECT(p, u.peak_device_bytes == m.peak_all[scope][id] && u.denied == sum.denied);
	PROGRAM_EXPECT(p, u.allocations == numbers[scope][id][0] + numbers[scope][id][1] + numbers[scope][id][2]);
	PROGRAM_EXPECT(p, u.timeslices == sum.timeslices && u.timeslice_us == sum.timeslice_us);
}

static void compare_objects(struct program *p)
{
	struct rm_object *real;
	u64 there = 0;
	u32 c, h, minor;

	for (c = 1; c < CLIENTS; c++)
		for (h = 0; h < HANDLES; h++) {
			struct model_object *o = &m.object[c][h], *up = o;

			real = rm_find(&ledger.objects, c, h);
			PROGRAM_EXPECT(p, o->there == (real != NULL));
			PROGRAM_EXPECT(p, ledger_holds(&ledger, c, h) == (o->there && model_holds(c, h)));
			if (!o->there || !real)
				continue;
			there++;
			PROGRAM_EXPECT(p, real->class == o->class);
			PROGRAM_EXPECT(p, (real->parent ? (int)rm_handle(real->parent) : NOTHING) == o->parent);
			while (up->class != NV01_DEVICE_0 && up->parent != NOTHING)
				up = &m.object[c][up->parent];
			minor = up->class == NV01_DEVICE_0 && up->device < 2 ? instances[up->device] : VGPU_MINOR_ANY;
			PROGRAM_EXPECT(p, ledger_minor(&ledger, c, h, instances, 2) == minor);
		}
	PROGRAM_EXPECT(p, ledger.objects.table.count == there);
}

static void compare(struct program *p)
{
	u32 i;

	add_up();
	compare_objects(p);
	for (i = 1; i <= TASKS; i++) {
		compare_account(p, 0, i);
		compare_account(p, 1, 10 + i);
	}
	for (i = 20; i <= 22; i++)
		compare_account(p, 1, i);
	compare_account(p, 1, 30);
}

/* ---- Programs ---- */

static void step(struct program *p)
{
	static void (* const calls[])(struct program *p) = {
		add, add, add, charge, charge, dup, dup, free_object, free_object, cancel, close_file, exit_task, leave_task, drop_cgroup,
		timeslice, denied, set_policy, clear_policy, set_policy,
	};

	calls[program_byte(p) % ARRAY_SIZE(calls)](p);
}

static void finish(struct program *p, bool failing)
{
	u32 i;

	for (i = 0; i < CHARGES; i++)
		if (m.charge[i].there && m.charge[i].pending)
			ledger_cancel(&ledger, m.charge[i].real);
	for (i = 1; i <= TASKS; i++)
		ledger_exit(&ledger, i);
	for (i = 1; i < FILES; i++)
		ledger_close(&ledger, i);
	PROGRAM_EXPECT(p, ledger.objects.table.count == 0 && ledger.tasks.count == 0 && !ledger.clients);
	for (i = 0; i < IDS; i++) {
		struct vgpu_usage u;

		if (!ledger_usage(&ledger, VGPU_SCOPE_CGROUP, i, VGPU_MINOR_ANY, memset(&u, 0, sizeof(u))))
			PROGRAM_EXPECT(p, !u.device_bytes && !u.system_bytes && !u.virtual_bytes && !u.allocations);
	}
	ledger_clear(&ledger);
	policies_clear(&policies);
	PROGRAM_EXPECT(p, failing || memory_live == 0);
}

static void begin(void)
{
	memset(&m, 0, sizeof(m));
	memset(&ledger, 0, sizeof(ledger));
	memset(&policies, 0, sizeof(policies));
	policies.max = POLICIES / 2;
	memory_live = 0;
	memory_fail_at = 0;
}

void program_ledger(struct program *p)
{
	begin();
	while (p->size && !p->wrong) {
		step(p);
		compare(p);
	}
	finish(p, false);
}

/* Makes calls as above and ignores their answers. It only keeps track of charges, since their owner must not lose
 * them. */
void program_ledger_failing(struct program *p)
{
	const struct policy_limit *over;
	struct policy_subject s;
	struct rm_call call;
	int i;

	begin();
	while (p->size) {
		u8 what = program_byte(p);

		memory_fail_at = program_byte(p) % 8;
		s = subject(p);
		call = (struct rm_call){ .client = 1 + program_byte(p) % (CLIENTS - 1), .parent = program_byte(p) % HANDLES,
					 .source_client = 1 + program_byte(p) % (CLIENTS - 1), .source_object = program_byte(p) % HANDLES,
					 .code = what & 0x80 ? NV01_ROOT_CLIENT : NV01_MEMORY_LOCAL_USER };
		i = program_byte(p) % CHARGES;
		switch (what % 8) {
		case 0:
		case 1:
			if (m.charge[i].there)
				break;
			m.charge[i].there = !ledger_charge(&ledger, &s, RM_MEMORY_DEVICE, 1, NULL, &m.charge[i].real, &over);
			m.charge[i].pending = true;
			break;
		case 2:
		case 3:
			ledger_add(&ledger, &s, 1, &call, program_byte(p) % HANDLES, m.charge[i].there ? m.charge[i].real : NULL);
			m.charge[i].there = false;
			break;
		case 4:
			ledger_dup(&ledger, &s, &call, program_byte(p) % HANDLES);
			break;
		case 5:
			if (what & 0x40)
				ledger_leave(&ledger, s.tgid);
			else
				ledger_exit(&ledger, s.tgid);
			break;
		case 6:
			ledger_drop_cgroup(&ledger, s.cgroup[i % LEVELS]);
			break;
		case 7:
			ledger_free(&ledger, call.client, call.parent);
			break;
		}
	}
	memory_fail_at = 0;
	finish(p, true);
	PROGRAM_EXPECT(p, memory_live == 0);
}
