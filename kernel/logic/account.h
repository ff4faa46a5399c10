/* SPDX-License-Identifier: GPL-2.0-only */
/* The use of one GPU by a process or a cgroup. */
#ifndef LOGIC_ACCOUNT_H
#define LOGIC_ACCOUNT_H

#include "rmcall.h"
#include "table.h"
#include "../uapi/vgpuctl.h"

struct ledger_charge;

/* Minor VGPU_MINOR_ANY: the use of GPUs whose minor number is not known. */
struct ledger_account {
	struct table_node node;			/* a: tgid or cgroup id, b: minor */
	u64 bytes[RM_MEMORY_KINDS];		/* exact together with carries; account_bytes is what to show */
	u32 carries[RM_MEMORY_KINDS];		/* how often bytes passed 2^64, which unknown sizes cause */
	u64 peak_device_bytes;
	u64 peak_all_device_bytes;		/* all GPUs together, at the time when this account last raised it */
	u64 allocations;			/* number of memory allocations now */
	u64 denied;
	u64 timeslices, timeslice_us;
	u64 timeslice_turn;			/* greater than that of every account whose timeslice_us is older */
	struct ledger_charge *charges;		/* of a process */
	bool gone;				/* removed from the table; freed with its last charge */
};

static inline u64 account_plus(u64 x, u64 y) { return x > U64_MAX - y ? U64_MAX : x + y; }
u64 account_bytes(const struct ledger_account *a, enum rm_memory kind);	/* saturates, as all sums do */
/* Returns the account, and makes it if it is missing. NULL: no memory. */
struct ledger_account *account_get(struct table *t, u64 id, u32 minor);
/* The account of that id that follows one; NULL: the first. */
struct ledger_account *account_next(const struct table *t, u64 id, const struct ledger_account *after);
/* Takes the account out of the table. It is freed with the last of its charges. */
void account_drop(struct table *t, struct ledger_account *a);
void account_add(const struct table *t, struct ledger_account *a, enum rm_memory kind, u64 bytes);
void account_subtract(struct ledger_account *a, enum rm_memory kind, u64 bytes);
/* The device memory that counts against a limit for that minor number. */
u64 accounts_use(const struct table *t, u64 id, u32 minor);
int accounts_usage(const struct table *t, u64 id, u32 minor, struct vgpu_usage *out);
void accounts_clear(struct table *t);

#endif
