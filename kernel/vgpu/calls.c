// SPDX-License-Identifier: GPL-2.0-only
/* What a call of the driver means, before and after the driver handles it. The arguments lie in
 * user space, where other threads may change them at any time. So the module compares what it
 * decided with what is there when the driver returns (docs/vgpu.md says what that leaves open). */
#include <linux/compat.h>
#include <linux/uaccess.h>

#include "calls.h"

/* ---- A call -------------------------------------------------------------------------------------------------------------------------- */

long vgpu_call_driver(const struct call *c)
{
	return vgpu_real_ioctl(c->driver, c->file, c->cmd, c->arg);
}

u32 vgpu_head_bytes(const struct call *c)
{
	return min_t(u32, c->size, RM_CALL_BYTES);
}

int vgpu_read_user(void *to, u64 address, u32 bytes)
{
	if (!copy_from_user(to, u64_to_user_ptr(address), bytes))
		return 0;
	vgpu_count(faults);
	return -EFAULT;
}

/* Reads the structure and the parameters that matter, and writes how many bytes of parameters into
 * *bytes. */
static int decode_to(const struct call *c, u8 *head, u8 *params, u32 *bytes, struct rm_call *rm)
{
	*bytes = 0;
	if (vgpu_read_user(head, (unsigned long)c->user, vgpu_head_bytes(c)))
		return -EFAULT;
	rm_decode(c->escape, c->size, head, rm);
	if (rm->kind == RM_ALLOC && rm->params.bytes)
		*bytes = rm_params_whole(rm->code);
	else if (vgpu_is_timeslice(rm) && rm->params.bytes == sizeof(u64))
		*bytes = sizeof(u64);
	if (*bytes && vgpu_read_user(params, rm->params.address, *bytes))
		return -EFAULT;
	rm_decode_params(rm, params, min(*bytes, rm->params.bytes));
	return 0;
}

int vgpu_decode(const struct call *c, u8 *head, struct rm_call *rm)
{
	u8 params[RM_PARAMS_BYTES];
	u32 bytes;

	return decode_to(c, head, params, &bytes, rm);
}

/* Answers in the driver's place. */
long vgpu_answer(const struct call *c, u32 status)
{
	return put_user(status, (u32 __user *)(c->user + c->rm.status_offset)) ? -EFAULT : 0;
}

bool vgpu_writable(const struct call *c)
{
	u32 status;

	memcpy(&status, c->head + c->rm.status_offset, sizeof(status));
	return !vgpu_answer(c, status);
}

struct vgpu_event vgpu_event_of(const struct call *c, enum vgpu_event_type type)
{
	return (struct vgpu_event){ .type = type, .flags = c->flags, .minor = c->subject.minor, .cgroup_id = vgpu_cgroup_current(),
				    .client = c->rm.client, .object = c->rm.object, .code = c->rm.code };
}

struct vgpu_task *vgpu_begin(struct call *c, u32 near)
{
	struct vgpu_task *task;
	u32 count, minor = vgpu_file_minor(c->file);
	const u32 *minors = vgpu_minors(&count);
	struct policy_defaults defaults;

	vgpu_reap();
	task = vgpu_task_current();
	vgpu_file_use(c->file, task);
	if (minor == VGPU_MINOR_ANY)
		minor = ledger_minor(&vgpu_ledger, c->rm.client, near, minors, count);
	vgpu_subject_current(&c->subject, minor);
	vgpu_defaults(&defaults);
	defaults.dry_run = !c->enforce;
	policy_resolve(&vgpu_policies, &c->subject, &defaults, &c->policy);
	if (task)
		task->calls++;
	return task;
}

void vgpu_end(struct vgpu_task *task)
{
	if (task && !--task->calls && !task->files)
		vgpu_task_idle(task);
}

void vgpu_race(const struct call *c, u64 checked, u64 there)
{
	struct vgpu_event e = vgpu_event_of(c, VGPU_EVENT_RACE);

	e.value = checked;
	e.detail = there;
	vgpu_count(races);
	vgpu_event(&e);
}

/* ---- ioctl --------------------------------------------------------------------------------------------------------------------------- */

static long dispatch(struct call *c, bool off)
{
	switch (c->rm.kind) {
	case RM_FREE:
		return vgpu_free(c, off);
	case RM_ALLOC:
		return off ? vgpu_call_driver(c) : vgpu_allocate(c);
	case RM_DUP:
		return off ? vgpu_call_driver(c) : vgpu_duplicate(c);
	case RM_CONTROL:
		return off ? vgpu_call_driver(c) : vgpu_control(c);
	default:
		return vgpu_call_driver(c);
	}
}

bool vgpu_bound(const struct call *c)
{
	bool timeslices = c->rm.kind == RM_CONTROL, binds;
	struct policy_defaults defaults;
	struct policy_subject s;

	if (timeslices ? !vgpu_compute_trace : !vgpu_memory_trace)
		return false;
	if (!timeslices && vgpu_alloc_max_bytes)
		return true;
	vgpu_defaults(&defaults);
	vgpu_subject_current(&s, VGPU_MINOR_ANY);
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	binds = policy_binds(&vgpu_policies, &s, &defaults, timeslices);
	mutex_unlock(&vgpu_lock);
	return binds;
}

static noinline_for_stack long watched(struct call *c, bool off)
{
	int err;

	if (decode_to(c, c->head, c->params, &c->params_bytes, &c->rm))
		return c->enforce ? -EFAULT : vgpu_call_driver(c);	/* the driver itself returns the error */
	if (!c->enforce || !vgpu_private_arguments || !vgpu_bound(c))
		return dispatch(c, off);
	err = vgpu_private_begin(c);
	return err ?: vgpu_private_end(c, dispatch(c, off));
}

/* While the module is off it still notes what is freed. Otherwise freed memory would count for ever
 * once the module is on again. */
static bool interesting(u32 escape, u32 size, bool off)
{
	if (off)
		return escape == NV_ESC_RM_FREE || escape == NV_ESC_RM_VID_HEAP_CONTROL;
	return rm_interesting(escape) && rm_size_valid(escape, size);
}

long vgpu_ioctl(const struct vgpu_driver *d, struct file *file, unsigned int cmd, unsigned long arg)
{
	enum vgpu_mode mode = vgpu_mode();
	u32 escape = rm_escape(cmd), size = rm_size(cmd), flags = 0;
	void __user *user = (void __user *)arg;
	bool off = mode == VGPU_MODE_OFF, enforce = mode == VGPU_MODE_ENFORCE;
	struct nv_xfer xfer;
	long result;

	if (!off)
		vgpu_count(ioctls);
	if (in_compat_syscall()) {
		flags |= VGPU_EVENT_COMPAT;
		if (!off)
			vgpu_count(compat_calls);
	}
	if (escape == NV_ESC_IOCTL_XFER_CMD && size == sizeof(xfer)) {
		if (vgpu_read_user(&xfer, arg, sizeof(xfer)))
			return enforce ? -EFAULT : vgpu_real_ioctl(d, file, cmd, arg);
		flags |= VGPU_EVENT_XFER;
		escape = xfer.cmd;
		size = xfer.size;
		user = u64_to_user_ptr(xfer.ptr);
		if (!off)
			vgpu_count(xfer_unwrapped);
		/* The driver would read the nv_xfer again and find what another thread wrote there
		 * meanwhile. Unwrapped it is the same call. If a call cannot be made unwrapped, the
		 * driver has no such command. */
		if (enforce) {
			if (escape > 0xff || escape == NV_ESC_IOCTL_XFER_CMD || size >= 1u << _IOC_SIZEBITS)
				return -EINVAL;
			cmd = _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, escape, size);
			arg = xfer.ptr;
		}
	}
	if (!off)
		vgpu_count_escape(escape > 0xff ? NV_ESC_IOCTL_XFER_CMD : escape);
	if (escape <= 0xff && interesting(escape, size, off)) {
		struct call c = { .driver = d, .file = file, .cmd = cmd, .arg = arg, .escape = escape, .size = size, .user = user,
				  .flags = flags, .enforce = enforce };

		return watched(&c, off);
	}
	result = vgpu_real_ioctl(d, file, cmd, arg);
	if (!off && !result && escape == NV_ESC_CARD_INFO)
		vgpu_learn_cards(user, size);
	return result;
}
