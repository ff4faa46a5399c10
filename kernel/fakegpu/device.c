// SPDX-License-Identifier: GPL-2.0-only
/* The calls on an open /dev/fakegpu; uapi/fakegpu.h says what they mean. A context belongs to an
 * open file. Mappings of its page and running calls hold the file, so the context outlives both,
 * and the file holds the module. Jobs complete in a work item, which the timer of the first running
 * job queues: a work item may take the lock and give back memory, so the memory of a job is free
 * when its completion is seen. */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../compat.h"
#include "../logic/handles.h"
#include "../uapi/fakegpu.h"
#include "fakegpu.h"

static_assert(sizeof(long) == sizeof(u64));	/* sequence numbers are read in one go */

struct job {
	struct handle *handle;
	ktime_t due;
};

struct context {
	struct mutex submitting;	/* taken before lock: guards the whole of SUBMIT, which touches user memory */
	struct mutex lock;		/* guards handles, jobs, due, and writes of completed and submitted; never held during a user copy */
	struct handles handles;
	struct job *jobs;		/* job n at n % max_jobs, for n above completed up to submitted */
	ktime_t due;			/* when the last submitted job completes */
	u64 completed, submitted;
	atomic64_t seen;		/* greatest completed that a WAIT has returned */
	struct fakegpu_page *page;
	wait_queue_head_t wait;
	struct hrtimer timer;
	struct work_struct work;
};

static bool device_take(u64 bytes)
{
	s64 used = atomic64_read(&fakegpu_stats.device_used);

	do {
		if (bytes > fakegpu_params.device_bytes - used)
			return false;
	} while (!atomic64_try_cmpxchg(&fakegpu_stats.device_used, &used, used + bytes));
	return true;
}

/* bytes: the size of one freed handle, or 0 if a job still holds it. */
static void device_give(u64 bytes)
{
	if (!bytes)
		return;
	atomic64_sub(bytes, &fakegpu_stats.device_used);
	atomic64_dec(&fakegpu_stats.handles);
}

static void job_end(struct context *c, u64 seqno)
{
	device_give(handle_put(&c->handles, c->jobs[seqno % fakegpu_params.max_jobs].handle));
	atomic64_dec(&fakegpu_stats.jobs);
}

/* Completes the jobs that are due, and sets the timer for the next one. The caller holds lock. */
static void context_advance(struct context *c)
{
	u64 done = c->completed;
	ktime_t now = ktime_get();

	while (done < c->submitted) {
		ktime_t due = c->jobs[(done + 1) % fakegpu_params.max_jobs].due;

		if (ktime_after(due, now)) {
			hrtimer_start(&c->timer, due, HRTIMER_MODE_ABS);
			break;
		}
		job_end(c, ++done);
	}
	if (done == c->completed)
		return;
	atomic64_add(done - c->completed, &fakegpu_stats.jobs_completed);
	smp_store_release(&c->completed, done);
	smp_store_release(&c->page->completed_seq, done);
	wake_up_interruptible_poll(&c->wait, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM);
}

static void context_work(struct work_struct *work)
{
	struct context *c = container_of(work, struct context, work);

	mutex_lock(&c->lock);
	context_advance(c);
	mutex_unlock(&c->lock);
}

static enum hrtimer_restart context_timer(struct hrtimer *timer)
{
	queue_work(system_highpri_wq, &container_of(timer, struct context, timer)->work);
	return HRTIMER_NORESTART;
}

static void context_free(struct context *c)
{
	free_page((unsigned long)c->page);
	kvfree(c->jobs);
	kfree(c);
}

static int fakegpu_open(struct inode *inode, struct file *file)
{
	struct context *c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);

	if (!c)
		return -ENOMEM;
	c->jobs = kvcalloc(fakegpu_params.max_jobs, sizeof(*c->jobs), GFP_KERNEL_ACCOUNT);
	c->page = (void *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!c->jobs || !c->page) {
		context_free(c);
		return -ENOMEM;
	}
	mutex_init(&c->submitting);
	mutex_init(&c->lock);
	init_waitqueue_head(&c->wait);
	INIT_WORK(&c->work, context_work);
	hrtimer_setup(&c->timer, context_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	c->handles.max = fakegpu_params.max_handles;
	c->handles.quota = fakegpu_params.context_bytes;
	c->page->abi_version = FAKEGPU_ABI_VERSION;
	file->private_data = c;
	atomic64_inc(&fakegpu_stats.contexts);
	atomic64_inc(&fakegpu_stats.contexts_opened);
	return stream_open(inode, file);
}

static int fakegpu_release(struct inode *inode, struct file *file)
{
	struct context *c = file->private_data;
	u64 seqno;

	mutex_lock(&c->lock);
	for (seqno = c->completed + 1; seqno <= c->submitted; seqno++) {
		job_end(c, seqno);
		atomic64_inc(&fakegpu_stats.jobs_dropped);
	}
	c->submitted = c->completed;
	mutex_unlock(&c->lock);
	/* Without jobs the work sets no timer, so neither runs again. */
	hrtimer_cancel(&c->timer);
	cancel_work_sync(&c->work);
	if (xchg(&fakegpu_params.leak, false))
		return 0;

	atomic64_sub(c->handles.count, &fakegpu_stats.handles);
	atomic64_sub(handles_clear(&c->handles), &fakegpu_stats.device_used);
	context_free(c);
	atomic64_dec(&fakegpu_stats.contexts);
	return 0;
}

static int fakegpu_info(struct context *c, void __user *user)
{
	struct fakegpu_info arg = {
		.abi_version = FAKEGPU_ABI_VERSION,
		.max_handles = fakegpu_params.max_handles,
		.device_bytes = fakegpu_params.device_bytes,
		.device_used = atomic64_read(&fakegpu_stats.device_used),
		.context_bytes = fakegpu_params.context_bytes,
		.job_latency_us = fakegpu_params.job_latency_us,
		.name = "fakegpu",
	};

	mutex_lock(&c->lock);
	arg.context_used = c->handles.used;
	arg.context_handles = c->handles.count;
	mutex_unlock(&c->lock);
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : 0;
}

static int fakegpu_alloc(struct context *c, void __user *user)
{
	struct fakegpu_alloc arg;
	u64 bytes;
	int err;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (!arg.size || arg.flags)
		return -EINVAL;
	bytes = handle_bytes(arg.size);
	if (!bytes)
		return -ENOSPC;		/* more than any quota */

	mutex_lock(&c->lock);
	err = handles_alloc(&c->handles, bytes, &arg.handle);
	if (!err && !device_take(bytes)) {
		handles_free(&c->handles, arg.handle, &err);
		err = -ENOMEM;
	} else if (!err) {
		atomic64_inc(&fakegpu_stats.handles);
	}
	mutex_unlock(&c->lock);
	if (err || !copy_to_user(user, &arg, sizeof(arg)))
		return err;

	/* The caller never learned the number. A thread that guessed it loses the handle. */
	mutex_lock(&c->lock);
	device_give(handles_free(&c->handles, arg.handle, &err));
	mutex_unlock(&c->lock);
	return -EFAULT;
}

static int fakegpu_free(struct context *c, void __user *user)
{
	struct fakegpu_free arg;
	int err = 0;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.reserved)
		return -EINVAL;
	mutex_lock(&c->lock);
	device_give(handles_free(&c->handles, arg.handle, &err));
	mutex_unlock(&c->lock);
	return err;
}

static int fakegpu_submit(struct context *c, void __user *user)
{
	struct fakegpu_submit arg;
	struct handle *handle;
	int err = 0;

	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.flags)
		return -EINVAL;
	if (mutex_lock_interruptible(&c->submitting))
		return -ERESTARTSYS;

	mutex_lock(&c->lock);
	handle = handles_find(&c->handles, arg.handle);
	if (!handle)
		err = -EINVAL;
	else if (c->submitted - c->completed >= fakegpu_params.max_jobs)
		err = -EAGAIN;
	else
		handle_hold(handle);
	mutex_unlock(&c->lock);
	if (err)
		goto out;

	/* The number is written to the caller first: a job cannot be taken back if that fails
	 * afterwards. */
	arg.seqno = c->submitted + 1;
	if (copy_to_user(user, &arg, sizeof(arg)))
		err = -EFAULT;

	mutex_lock(&c->lock);
	if (err) {
		device_give(handle_put(&c->handles, handle));
	} else {
		struct job *job = &c->jobs[arg.seqno % fakegpu_params.max_jobs];
		ktime_t now = ktime_get();

		c->due = ktime_add_us(ktime_after(c->due, now) ? c->due : now, fakegpu_params.job_latency_us);
		job->handle = handle;
		job->due = c->due;
		atomic64_inc(&fakegpu_stats.jobs);
		atomic64_inc(&fakegpu_stats.jobs_submitted);
		WRITE_ONCE(c->submitted, arg.seqno);
		smp_store_release(&c->page->submitted_seq, arg.seqno);
		if (c->completed + 1 == arg.seqno)
			context_advance(c);	/* otherwise the timer is set */
	}
	mutex_unlock(&c->lock);
out:
	mutex_unlock(&c->submitting);
	return err;
}

static int fakegpu_wait(struct context *c, void __user *user)
{
	struct fakegpu_wait arg;
	s64 seen;
	int err = 0;

	atomic64_inc(&fakegpu_stats.waits);
	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	if (arg.timeout_ns < FAKEGPU_WAIT_FOREVER || !arg.seqno || arg.seqno > READ_ONCE(c->submitted))
		return -EINVAL;

#define COMPLETED (smp_load_acquire(&c->completed) >= arg.seqno)
	if (arg.timeout_ns == FAKEGPU_WAIT_FOREVER) {
		err = wait_event_interruptible(c->wait, COMPLETED);
	} else if (!COMPLETED) {
		err = -ETIME;
		if (arg.timeout_ns)
			err = wait_event_interruptible_hrtimeout(c->wait, COMPLETED, ns_to_ktime(arg.timeout_ns));
		if (err == -ETIME)
			err = -ETIMEDOUT;
		else if (err)
			err = -EINTR;	/* a restart would wait the whole time again */
	}
#undef COMPLETED

	arg.completed_seq = READ_ONCE(c->completed);
	if (copy_to_user(user, &arg, sizeof(arg)))
		return -EFAULT;
	seen = atomic64_read(&c->seen);
	while (arg.completed_seq > seen && !atomic64_try_cmpxchg(&c->seen, &seen, arg.completed_seq))
		;
	return err;
}

static long fakegpu_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	void __user *arg = (void __user *)user;
	struct context *c = file->private_data;
	int err;

	switch (cmd) {
	case FAKEGPU_IOCTL_INFO:
		err = fakegpu_info(c, arg);
		break;
	case FAKEGPU_IOCTL_ALLOC:
		err = fakegpu_alloc(c, arg);
		break;
	case FAKEGPU_IOCTL_FREE:
		err = fakegpu_free(c, arg);
		break;
	case FAKEGPU_IOCTL_SUBMIT:
		err = fakegpu_submit(c, arg);
		break;
	case FAKEGPU_IOCTL_WAIT:
		err = fakegpu_wait(c, arg);
		break;
	default:
		return -ENOTTY;
	}

	switch (err) {
	case -EINVAL:
		atomic64_inc(&fakegpu_stats.einval);
		break;
	case -EFAULT:
		atomic64_inc(&fakegpu_stats.efault);
		break;
	case -ENOSPC:
		atomic64_inc(&fakegpu_stats.enospc);
		break;
	case -ENOMEM:
		atomic64_inc(&fakegpu_stats.enomem);
		break;
	case -EAGAIN:
		atomic64_inc(&fakegpu_stats.eagain);
		break;
	case -ETIMEDOUT:
		atomic64_inc(&fakegpu_stats.etimedout);
		break;
	case -EINTR:
	case -ERESTARTSYS:
		atomic64_inc(&fakegpu_stats.eintr);
		break;
	}
	return err;
}

static __poll_t fakegpu_poll(struct file *file, poll_table *table)
{
	struct context *c = file->private_data;
	u64 completed, submitted;
	__poll_t ready = 0;

	poll_wait(file, &c->wait, table);
	completed = smp_load_acquire(&c->completed);	/* before submitted, which is never below it */
	submitted = READ_ONCE(c->submitted);
	if (completed > atomic64_read(&c->seen))
		ready |= EPOLLIN | EPOLLRDNORM;
	if (submitted - completed < fakegpu_params.max_jobs)
		ready |= EPOLLOUT | EPOLLWRNORM;
	return ready;
}

static vm_fault_t fakegpu_fault(struct vm_fault *vmf)
{
	struct context *c = vmf->vma->vm_private_data;

	if (vmf->pgoff)
		return VM_FAULT_SIGBUS;
	vmf->page = virt_to_page(c->page);
	get_page(vmf->page);
	return 0;
}

static const struct vm_operations_struct fakegpu_vm_ops = {
	.fault = fakegpu_fault,
};

static int fakegpu_mmap(struct file *file, struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	/* VM_MAYSHARE, since the kernel clears VM_SHARED if the file is open for reading alone. */
	if (!(vma->vm_flags & VM_MAYSHARE) || !(vma->vm_flags & VM_READ) || vma->vm_flags & VM_EXEC ||
	    vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	vm_flags_set(vma, VM_DONTEXPAND);
	vma->vm_private_data = file->private_data;
	vma->vm_ops = &fakegpu_vm_ops;
	return 0;
}

const struct file_operations fakegpu_fops = {
	.owner = THIS_MODULE,
	.open = fakegpu_open,
	.release = fakegpu_release,
	.unlocked_ioctl = fakegpu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = fakegpu_poll,
	.mmap = fakegpu_mmap,
};
