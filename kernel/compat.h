/* SPDX-License-Identifier: GPL-2.0-only */
/* What differs between the kernels that the modules are built for. Kbuild looks into the kernel's
 * headers and defines HAVE_… for each function that it finds there. So a kernel counts by what it
 * has, and not by its version: distributions bring functions of later kernels into older ones. */
#ifndef COMPAT_H
#define COMPAT_H

#include <linux/ftrace.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>

/* Since 6.3 vm_flags is changed only by functions. */
#ifndef HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* Since 6.15 a timer gets its function when it is set up; 6.13 to 6.14 have both ways. */
#ifndef HAVE_HRTIMER_SETUP
static inline void hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

/* Its name before 6.3. */
#ifndef ftrace_regs_set_instruction_pointer
#define ftrace_regs_set_instruction_pointer ftrace_instruction_pointer_set
#endif

#endif
