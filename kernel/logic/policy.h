/* SPDX-License-Identifier: GPL-2.0-only */
/* The policies, and which of them applies to a task: that of its tgid, else that of its cgroup, else the module's
 * parameters. */
#ifndef LOGIC_POLICY_H
#define LOGIC_POLICY_H

#include "table.h"
#include "timeslice.h"
#include "../uapi/vgpuctl.h"

#define POLICY_CGROUP_DEPTH 16

/* What policies need to know of a task. cgroups has its own cgroup first, then those above it. If there are more
 * than fit, the lower ones are left out, so that a task cannot escape a limit by making cgroups inside its own. */
struct policy_subject {
	u32 tgid;		/* in the initial namespace */
	u32 minor;		/* VGPU_MINOR_ANY: not known; see policy_resolve */
	u32 cgroups;
	u64 cgroup[POLICY_CGROUP_DEPTH];
};

struct policies {
	struct table tgid;	/* a: tgid, b: minor */
	struct table cgroup;	/* a: cgroup id, b: minor */
	u32 max;		/* of each; 0: POLICIES_MAX */
};
#define POLICIES_MAX 65536u

/* The module's parameters, which apply where no policy decides. */
struct policy_defaults {
	u64 memory_limit_bytes;	/* of a task that no policy covers */
	u64 timeslice_min_us, timeslice_max_us;
	bool dry_run;		/* the module only looks */
};

struct policy_limit { u64 bytes; u64 cgroup; bool dry_run; };	/* cgroup 0: of the task */

/* The policy that applies to a subject. */
struct policy {
	enum vgpu_scope scope;		/* the scope of the timeslice policy; NONE and MODULE: there is no policy */
	u64 cgroup_id;			/* of the cgroup whose policy that is */
	struct timeslice_rule timeslice;
	bool dry_run;			/* of timeslices */
	/* Limits of memory that all hold at once: the task's alone if its tgid has a policy, otherwise that of every cgroup above it that has
	 * one, nearest first. */
	u32 limits;
	struct policy_limit limit[POLICY_CGROUP_DEPTH + 2];
};

int policy_check(const struct vgpu_limits *limits);	/* -EINVAL: weight, flags, or min above max */
/* These replace an existing policy. -EINVAL; -ENOSPC: POLICIES_MAX; -ENOMEM. */
int policy_set_tgid(struct policies *p, u32 tgid, u32 minor, const struct vgpu_limits *limits);
int policy_set_cgroup(struct policies *p, u64 id, u32 minor, const struct vgpu_limits *limits);
int policy_get_tgid(const struct policies *p, u32 tgid, u32 minor, struct vgpu_limits *limits);	/* -ENOENT, also below */
int policy_get_cgroup(const struct policies *p, u64 id, u32 minor, struct vgpu_limits *limits);
int policy_clear_tgid(struct policies *p, u32 tgid, u32 minor);
int policy_clear_cgroup(struct policies *p, u64 id, u32 minor);
/* Removes all policies of a process or cgroup that is gone, for every minor; returns how many. */
u32 policy_drop_tgid(struct policies *p, u32 tgid);
u32 policy_drop_cgroup(struct policies *p, u64 id);
/* At each level the policy for the minor itself wins over the one for any. If the minor is not
 * known, the tightest policy of a level holds; if no policy of the level is for any minor, the
 * limits of the next levels hold as well. */
void policy_resolve(const struct policies *p, const struct policy_subject *s, const struct policy_defaults *d, struct policy *out);
/* Whether a memory limit or a timeslice rule may apply to the subject on some GPU, other than in a dry run. It may
 * return true without need. */
bool policy_binds(const struct policies *p, const struct policy_subject *s, const struct policy_defaults *d, bool timeslices);
/* Calls visit for each policy, in no particular order. id: tgid or cgroup id. */
void policy_each(struct policies *p, enum vgpu_scope scope, void (*visit)(u64 id, u32 minor, const struct vgpu_limits *l, void *context), void *context);
void policies_clear(struct policies *p);

#endif
