// SPDX-License-Identifier: GPL-2.0-only
/* Control commands. The module rewrites a timeslice in the caller's memory before the driver reads
 * it, and checks it again after the driver returns. */
#include <linux/ktime.h>
#include <linux/uaccess.h>

#include "calls.h"

bool vgpu_is_timeslice(const struct rm_call *rm)
{
	return vgpu_compute_trace && rm->kind == RM_CONTROL && rm->code == NVA06C_CTRL_CMD_SET_TIMESLICE && !rm->serialized;
}

static void log_timeslice(const struct call *c, u64 asked, u64 given, bool applied, u32 status)
{
	struct vgpu_timeslice t = {
		.time_ns = ktime_get_boottime_ns(), .asked_us = asked, .given_us = given, .weight = c->policy.timeslice.weight,
		.cgroup_id = c->policy.scope == VGPU_SCOPE_CGROUP ? c->policy.cgroup_id : vgpu_cgroup_current(), .tgid = current->tgid,
		.minor = c->subject.minor, .client = c->rm.client, .object = c->rm.object, .status = status, .scope = c->policy.scope,
		.dry_run = !applied,
	};

	get_task_comm(t.comm, current);
	vgpu_timeslice_log(&t);
}

/* Writing the parameters must not change the head: they may be the same memory. */
static int write_timeslice(const struct call *c, u64 us)
{
	u8 head[RM_CALL_BYTES];

	if (put_user(us, (u64 __user *)u64_to_user_ptr(c->rm.params.address)))
		return -EFAULT;
	/* The caller gets the value in any case. */
	if (c->page && put_user(us, (u64 __user *)u64_to_user_ptr(c->callers_params)))
		return -EFAULT;
	if (vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)))
		return -EFAULT;
	if (!memcmp(head, c->head, vgpu_head_bytes(c)))
		return 0;
	vgpu_race(c, c->rm.params.address, us);
	return -EFAULT;
}

/* Calls that set a timeslice and cannot be rewritten: those whose parameters cannot be read, and
 * the control for a single channel. */
static bool refused(const struct call *c)
{
	if (!c->enforce || !vgpu_compute_trace)
		return false;
	return c->rm.code == NVA06C_CTRL_CMD_SET_TIMESLICE ? c->rm.serialized :
	       c->rm.code == NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES && vgpu_bound(c);
}

static long refuse(struct call *c)
{
	struct vgpu_event e = vgpu_event_of(c, VGPU_EVENT_TIMESLICE);

	e.scope = VGPU_SCOPE_MODULE;
	e.minor = VGPU_MINOR_ANY;
	e.status = NV_ERR_NOT_SUPPORTED;
	vgpu_event(&e);
	return vgpu_answer(c, NV_ERR_NOT_SUPPORTED);
}

static long set_timeslice(struct call *c)
{
	u64 asked, given, there, got;
	struct vgpu_task *task;
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	u32 status = 0;
	bool act;
	long result;

	if (c->rm.params.bytes != sizeof(asked))
		return vgpu_call_driver(c);		/* the driver refuses it */
	if (vgpu_read_user(&asked, c->rm.params.address, sizeof(asked)))
		return c->enforce ? -EFAULT : vgpu_call_driver(c);

	vgpu_count(timeslices_seen);
	mutex_lock(&vgpu_lock);
	task = vgpu_begin(c, c->rm.object);
	mutex_unlock(&vgpu_lock);
	given = timeslice_rewrite(asked, &c->policy.timeslice);
	act = c->enforce && !c->policy.dry_run;
	got = act ? given : asked;

	result = act && given != asked ? write_timeslice(c, given) : 0;
	if (!result)
		result = vgpu_call_driver(c);
	if (!vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)))
		status = rm_result(c->escape, c->size, head).status;
	if (act && !result && (vgpu_read_user(&there, c->rm.params.address, sizeof(there)) || there != given))
		vgpu_race(c, given, there);

	if (given != asked && !act)
		vgpu_count(timeslices_would_rewrite);
	else if (given != asked && !result)
		vgpu_count(timeslices_rewritten);
	e = vgpu_event_of(c, VGPU_EVENT_TIMESLICE);
	e.value = asked;
	e.detail = given;
	e.scope = c->policy.scope;
	e.status = result ? (u32)result : status;
	if (!act)
		e.flags |= VGPU_EVENT_DRY_RUN;
	mutex_lock(&vgpu_lock);
	if (!result && !status)
		ledger_timeslice(&vgpu_ledger, &c->subject, got);
	log_timeslice(c, asked, given, act, e.status);
	vgpu_end(task);
	mutex_unlock(&vgpu_lock);
	vgpu_event(&e);
	return result;
}

long vgpu_control(struct call *c)
{
	struct vgpu_event e;
	u8 head[RM_CALL_BYTES];
	u32 status = 0;
	long result;

	vgpu_count(controls);
	vgpu_count_control(c->rm.code);
	if (vgpu_is_timeslice(&c->rm))
		result = set_timeslice(c);
	else if (refused(c))
		result = refuse(c);
	else
		result = vgpu_call_driver(c);
	if (!result && !c->rm.serialized &&
	    (c->rm.code == NV0000_CTRL_CMD_GPU_GET_ID_INFO || c->rm.code == NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2)) {
		if (!vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)) && !rm_result(c->escape, c->size, head).status)
			vgpu_learn_id(u64_to_user_ptr(c->rm.params.address));
	}
	if (vgpu_control_events) {
		if (!vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)))
			status = rm_result(c->escape, c->size, head).status;
		c->subject.minor = vgpu_file_minor(c->file);
		e = vgpu_event_of(c, VGPU_EVENT_CONTROL);
		e.status = result ? (u32)result : status;
		vgpu_event(&e);
	}
	return result;
}
