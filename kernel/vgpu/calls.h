/* SPDX-License-Identifier: GPL-2.0-only */
/* A call that the module examines, and the open files through which calls come. */
#ifndef VGPU_CALLS_H
#define VGPU_CALLS_H

#include "vgpu.h"

struct call {
	const struct vgpu_driver *driver;
	struct file *file;
	unsigned int cmd;		/* as the driver gets it */
	unsigned long arg;
	u32 escape, size;		/* of the call itself, unwrapped if it came in an nv_xfer */
	void __user *user;
	u32 flags;			/* VGPU_EVENT_XFER, VGPU_EVENT_COMPAT */
	bool enforce;
	struct rm_call rm;
	struct policy_subject subject;
	struct policy policy;
	u8 head[RM_CALL_BYTES];
	u8 params[RM_PARAMS_BYTES];
	u32 params_bytes;		/* how many of their bytes were read */

	/* While the driver works on a copy: see private.c. */
	unsigned long page;
	void __user *callers;
	u64 callers_params;
};

#define NVOS_PARAMS_OFFSET 16		/* of the pointer in nvos21, nvos54 and nvos64 */

/* ---- calls.c ------------------------------------------------------------------------------------------------------------------------- */

long vgpu_call_driver(const struct call *c);
u32 vgpu_head_bytes(const struct call *c);
int vgpu_read_user(void *to, u64 address, u32 bytes);	/* -EFAULT, which is counted */
long vgpu_answer(const struct call *c, u32 status);	/* in the driver's place */
/* Whether the driver can write its answer. If it cannot, it makes the object all the same and
 * answers EFAULT. */
bool vgpu_writable(const struct call *c);
struct vgpu_event vgpu_event_of(const struct call *c, enum vgpu_event_type type);
/* Whether the caller is under a limit (or, for a control, a rule) that it could try to evade. */
bool vgpu_bound(const struct call *c);
/* Before and after the driver, with vgpu_lock held: finds out who calls, which GPU the object near
 * belongs to, and which policy holds. */
struct vgpu_task *vgpu_begin(struct call *c, u32 near);
void vgpu_end(struct vgpu_task *task);
/* Reports that the arguments differ from those that were checked. */
void vgpu_race(const struct call *c, u64 checked, u64 there);

/* Reads the structure and the parameters that matter again. */
int vgpu_decode(const struct call *c, u8 *head, struct rm_call *rm);

/* ---- objects.c ----------------------------------------------------------------------------------------------------------------------- */

long vgpu_allocate(struct call *c);
long vgpu_free(struct call *c, bool quiet);		/* quiet: neither counted nor an event */
long vgpu_duplicate(struct call *c);

/* ---- private.c ----------------------------------------------------------------------------------------------------------------------- */

/* Gives the driver a copy of the caller's structure and parameters, at an address that no other
 * thread knows. Returns an error if it cannot. */
int vgpu_private_begin(struct call *c);
/* Copies what the driver wrote to the caller, and returns the result of the call. */
long vgpu_private_end(struct call *c, long result);

/* ---- controls.c ---------------------------------------------------------------------------------------------------------------------- */

long vgpu_control(struct call *c);
bool vgpu_is_timeslice(const struct rm_call *rm);	/* that can be looked at, and is to be */

/* ---- files.c: all with vgpu_lock held but the first two ------------------------------------------------------------------------------ */

u64 vgpu_file_id(const struct file *file);
u32 vgpu_file_minor(const struct file *file);
void vgpu_file_use(struct file *file, struct vgpu_task *task);
/* If the process has no open file and no running call any more, forgets what it still seems to
 * hold. Returns the bytes of device memory. */
u64 vgpu_task_idle(struct vgpu_task *task);
extern u32 vgpu_closing;	/* files that the driver is closing now */

#endif
