/* SPDX-License-Identifier: GPL-2.0-only */
/* Who holds how much memory of which GPU. An allocation is charged before the driver sees it and
 * given back if the driver refuses it, so that two at the same time cannot both take the rest of a
 * limit. It is charged once, however many duplicates there are, until the last of them is freed. If
 * the process that made it ends while another holds a duplicate, the charge moves to that one.
 * Every charge counts for the process and for its cgroups at all levels. */
#ifndef LOGIC_LEDGER_H
#define LOGIC_LEDGER_H

#include "account.h"
#include "objects.h"
#include "policy.h"

struct ledger_client;
struct ledger {
	struct rm_objects objects;
	struct table tasks;		/* of ledger_account, by tgid */
	struct table cgroups;		/* of ledger_account, by cgroup id */
	struct ledger_client *clients;
	u64 timeslices;			/* set so far, of all */
};

struct ledger_charge;			/* an allocation of memory; opaque */

/* Charges bytes of that kind to the subject. -EDQUOT, for device memory only: use would exceed one of the limits
 * that is not dry_run, and nothing is charged. *over is the limit that denies, or else the first exceeded one, or
 * else NULL; if it is not NULL, the accounts count a denial. -ENOMEM: no memory. For a limit of a task or cgroup
 * with a known minor, the use of that minor counts plus the use whose minor is not known (VGPU_MINOR_ANY); if
 * subject->minor is VGPU_MINOR_ANY, the use of all GPUs counts. policy NULL means no limits. *charge is NULL if kind
 * is NONE. */
int ledger_charge(struct ledger *l, const struct policy_subject *s, enum rm_memory kind, u64 bytes, const struct policy *policy,
		  struct ledger_charge **charge, const struct policy_limit **over);
void ledger_cancel(struct ledger *l, struct ledger_charge *charge);	/* NULL: nothing */
/* Adds an object that the driver has made. charge NULL: it is not memory, or too little to be accounted. file is the
 * id of the open file through which the call came; a client that is added belongs to it; 0 means that the file is
 * not known. For an unknown parent or client the ledger adds a placeholder: the object may be older than this
 * module, or the call that makes it may not have returned yet, and then the later ledger_add replaces the
 * placeholder. An existing object is replaced. The ledger takes the charge over, even if it fails with -ENOMEM; then
 * it gives the charge back. */
int ledger_add(struct ledger *l, const struct policy_subject *s, u64 file, const struct rm_call *call, u32 object,
	       struct ledger_charge *charge);
/* Adds a duplicate, which shares the charge of its source. If the source is unknown, the duplicate has no charge.
 * -ENOMEM. */
int ledger_dup(struct ledger *l, const struct policy_subject *s, const struct rm_call *call, u32 object);
/* Whether the object or one below it holds a charge. Placeholders do not count. */
bool ledger_holds(const struct ledger *l, u32 client, u32 object);
/* All three return how many bytes of device memory they gave back. */
u64 ledger_free(struct ledger *l, u32 client, u32 object);	/* the object and all below it; 0 if it is unknown */
u64 ledger_close(struct ledger *l, u64 file);			/* the clients that came through the file */
/* Ends the clients that the process made, and its accounts. A charge of it that another process's
 * client holds moves to that process. */
u64 ledger_exit(struct ledger *l, u32 tgid);
/* As ledger_exit, for a process whose files may be open elsewhere: its clients stay until
 * ledger_close and are charged to its cgroups alone. Its clients without a file end. Returns the
 * bytes of device memory that were charged to it. */
u64 ledger_leave(struct ledger *l, u32 tgid);
void ledger_drop_cgroup(struct ledger *l, u64 id);		/* its accounts; what is charged stays charged above it */
void ledger_timeslice(struct ledger *l, const struct policy_subject *s, u64 us);
void ledger_denied(struct ledger *l, const struct policy_subject *s);	/* a denial that ledger_charge did not see */
/* The minor of the device that the object is or lies below; VGPU_MINOR_ANY if it is not known.
 * minors has the minor of each device instance. */
u32 ledger_minor(const struct ledger *l, u32 client, u32 object, const u32 *minors, u32 count);
/* minor VGPU_MINOR_ANY asks for the sum of all GPUs. -ENOENT: the ledger knows no use. The input fields of *out do
 * not change. */
int ledger_usage(const struct ledger *l, enum vgpu_scope scope, u64 id, u32 minor, struct vgpu_usage *out);
void ledger_clear(struct ledger *l);

#endif
