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

/*
 * Charges bytes of that kind to the subject. DEVICE: -EDQUOT if that lifts use above one of the limits that is not dry_run, and nothing is
 * charged. *over: the limit that denies, otherwise the first that is exceeded, otherwise NULL; if there is one, the accounts count a denial.
 * -ENOMEM. Use against a limit for a task or cgroup with minor known is that of the minor plus what could not be told (VGPU_MINOR_ANY); with
 * subject->minor VGPU_MINOR_ANY it is that of all GPUs. policy NULL: without limits. *charge is NULL if kind is NONE.
 */
int ledger_charge(struct ledger *l, const struct policy_subject *s, enum rm_memory kind, u64 bytes, const struct policy *policy,
		  struct ledger_charge **charge, const struct policy_limit **over);
void ledger_cancel(struct ledger *l, struct ledger_charge *charge);	/* NULL: nothing */
/*
 * The driver has made the object; charge NULL: it is no memory, or too little to account. file: an id of the open file that the call came
 * through, which is that of a client that comes into being here; 0: of none that is known. An unknown parent or client is made up: it may be
 * older than this module, or its own call may still be on its way, and then ledger_add makes it the one that it is. An object that is there
 * already is replaced. Takes the charge over, also when it fails: -ENOMEM, and the charge is given back.
 */
int ledger_add(struct ledger *l, const struct policy_subject *s, u64 file, const struct rm_call *call, u32 object,
	       struct ledger_charge *charge);
/* Notes a duplicate, which shares the charge of its source. If the source is unknown, the object
 * has no charge. -ENOMEM. */
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
/* minor VGPU_MINOR_ANY asks for the sum of all GPUs. -ENOENT: the ledger knows nothing of it. The
 * input fields of *out stay as they are. */
int ledger_usage(const struct ledger *l, enum vgpu_scope scope, u64 id, u32 minor, struct vgpu_usage *out);
void ledger_clear(struct ledger *l);

#endif
