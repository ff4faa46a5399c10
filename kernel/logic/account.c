// SPDX-License-Identifier: GPL-2.0-only
#include "account.h"

static struct ledger_account *account_of(struct table_node *n)
{
	return n ? container_of(n, struct ledger_account, node) : NULL;
}

u64 account_bytes(const struct ledger_account *a, enum rm_memory kind)
{
	return a->carries[kind] ? U64_MAX : a->bytes[kind];
}

struct ledger_account *account_next(const struct table *t, u64 id, const struct ledger_account *after)
{
	return account_of(table_group(t, id, after ? &after->node : NULL));
}

struct ledger_account *account_get(struct table *t, u64 id, u32 minor)
{
	struct ledger_account *a = account_of(table_find(t, id, minor));

	if (a)
		return a;
	a = logic_alloc(sizeof(*a));
	if (!a)
		return NULL;
	t->grouped = true;
	if (table_insert(t, &a->node, id, minor)) {
		logic_free(a);
		return NULL;
	}
	return a;
}

void account_add(const struct table *t, struct ledger_account *a, enum rm_memory kind, u64 bytes)
{
	const struct ledger_account *other;
	u64 all = 0;

	a->bytes[kind] += bytes;
	a->carries[kind] += a->bytes[kind] < bytes;
	a->allocations++;
	if (kind != RM_MEMORY_DEVICE)
		return;
	for (other = account_next(t, a->node.a, NULL); other; other = account_next(t, a->node.a, other))
		all = account_plus(all, account_bytes(other, kind));
	if (all > a->peak_all_device_bytes)
		a->peak_all_device_bytes = all;
	if (account_bytes(a, kind) > a->peak_device_bytes)
		a->peak_device_bytes = account_bytes(a, kind);
}

void account_subtract(struct ledger_account *a, enum rm_memory kind, u64 bytes)
{
	a->carries[kind] -= a->bytes[kind] < bytes;
	a->bytes[kind] -= bytes;
	if (!--a->allocations && a->gone)
		logic_free(a);
}

u64 accounts_use(const struct table *t, u64 id, u32 minor)
{
	const struct ledger_account *a;
	u64 all = 0;

	for (a = account_next(t, id, NULL); a; a = account_next(t, id, a))
		if (minor == VGPU_MINOR_ANY || a->node.b == minor || a->node.b == VGPU_MINOR_ANY)
			all = account_plus(all, account_bytes(a, RM_MEMORY_DEVICE));
	return all;
}

int accounts_usage(const struct table *t, u64 id, u32 minor, struct vgpu_usage *out)
{
	struct vgpu_usage u = { .cgroup_id = out->cgroup_id, .tgid = out->tgid, .minor = out->minor };
	const struct ledger_account *a;
	int err = -ENOENT;
	u64 turn = 0, peak;

	for (a = account_next(t, id, NULL); a; a = account_next(t, id, a)) {
		if (minor != VGPU_MINOR_ANY && a->node.b != minor)
			continue;
		err = 0;
		peak = minor == VGPU_MINOR_ANY ? a->peak_all_device_bytes : a->peak_device_bytes;
		u.device_bytes = account_plus(u.device_bytes, account_bytes(a, RM_MEMORY_DEVICE));
		u.system_bytes = account_plus(u.system_bytes, account_bytes(a, RM_MEMORY_SYSTEM));
		u.virtual_bytes = account_plus(u.virtual_bytes, account_bytes(a, RM_MEMORY_VIRTUAL));
		if (peak > u.peak_device_bytes)
			u.peak_device_bytes = peak;
		u.allocations += a->allocations;
		u.denied += a->denied;
		u.timeslices += a->timeslices;
		if (a->timeslice_turn > turn) {
			turn = a->timeslice_turn;
			u.timeslice_us = a->timeslice_us;
		}
	}
	*out = u;
	return err;
}

static void leave(struct table_node *n, void *context)
{
	struct ledger_account *a = account_of(n);

	(void)context;
	a->gone = true;
	if (!a->allocations)
		logic_free(a);
}

void account_drop(struct table *t, struct ledger_account *a)
{
	table_remove(t, &a->node);
	leave(&a->node, NULL);
}

void accounts_clear(struct table *t)
{
	table_clear(t, leave, NULL);
}
