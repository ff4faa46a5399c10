/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who holds how much memory of which GPU. An allocation is charged before the driver sees it and given back if the driver refuses it,
 * so that two at a time cannot both take the last of a limit. It is charged once, however many duplicates there are, and until the
 * last of them is freed; if the process that made it goes while another holds a duplicate, the charge moves there.
 * Every charge counts for the process and for its cgroups, all levels.
 */
#ifndef LOGIC_LEDGER_H
#define LOGIC_LEDGER_H

#include "objects.h"
#include "policy.h"
#include "rmcall.h"

/* Use by a process or a cgroup of one GPU; minor VGPU_MINOR_ANY: of a GPU that could not be told. */
struct ledger_account {
	struct table_node node;		/* a: tgid or cgroup id, b: minor */
	u64 bytes[RM_MEMORY_KINDS];
	u64 peak_device_bytes;
	u64 allocations;		/* of memory, now */
	u64 denied;
	u64 timeslices, timeslice_us;
};

struct ledger {
	struct rm_objects objects;
	struct table tasks;		/* of ledger_account, by tgid */
	struct table cgroups;		/* of ledger_account, by cgroup id */
};

struct ledger_charge;			/* an allocation of memory; opaque */

/* Charges bytes of that kind to the subject. DEVICE: -EDQUOT if that lifts use above one of the limits that is not dry_run, and nothing is charged; the account
 * counts it as denied. *over: the first limit that is exceeded, dry_run or not, NULL if none. -ENOMEM. Use against a limit for a task or cgroup with
 * minor known is that of the minor plus what could not be told (VGPU_MINOR_ANY); with subject->minor VGPU_MINOR_ANY it is that of all GPUs. */
int ledger_charge(struct ledger *l, const struct policy_subject *s, enum rm_memory kind, u64 bytes, const struct policy *policy,
		  struct ledger_charge **charge, const struct policy_limit **over);
void ledger_cancel(struct ledger *l, struct ledger_charge *charge);
/* The driver has made the object; charge NULL: it is no memory, or too little to account. file: of whom, an id of the open file that its client came through, which is
 * used for a client alone (class NV01_ROOT*). An unknown parent or client is made up, since it may be older than this module; an object that is
 * there already is replaced. Takes the charge over, also when it fails: -ENOMEM, and the charge then stays with the client, or is given back if there is none. */
int ledger_add(struct ledger *l, const struct policy_subject *s, u64 file, const struct rm_call *call, u32 object, struct ledger_charge *charge);
/* A duplicate: shares the charge of its source. An unknown source makes an object without one. */
int ledger_dup(struct ledger *l, const struct policy_subject *s, const struct rm_call *call, u32 object);
/* All three return the bytes of device memory that were given back. */
u64 ledger_free(struct ledger *l, u32 client, u32 object);	/* and what is below it; an unknown one: 0 */
u64 ledger_close(struct ledger *l, u64 file);			/* the clients that came through the file */
u64 ledger_exit(struct ledger *l, u32 tgid);			/* what the process made and nobody else holds, and its accounts */
void ledger_drop_cgroup(struct ledger *l, u64 id);		/* its accounts; what is charged stays charged above it */
void ledger_timeslice(struct ledger *l, const struct policy_subject *s, u64 us);
void ledger_denied(struct ledger *l, const struct policy_subject *s);
/* The minor of the device that the object is or lies below, by the instance it was made with; VGPU_MINOR_ANY if there is none. minors: of each instance. */
u32 ledger_minor(const struct ledger *l, u32 client, u32 object, const u32 *minors, u32 count);
/* Sums over minors where minor is VGPU_MINOR_ANY. -ENOENT: nothing is known of it. */
int ledger_usage(const struct ledger *l, enum vgpu_scope scope, u64 id, u32 minor, struct vgpu_usage *out);
void ledger_clear(struct ledger *l);

#endif
