// SPDX-License-Identifier: GPL-2.0-only
/* The latest events: a ring of events, which every open file of /dev/vgpuctl reads at its own pace,
 * and a ring of timeslices. */
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "vgpu.h"

#define EVENTS 4096u		/* a power of two */

static struct vgpu_event ring[EVENTS];
static u64 written;		/* the sequence of the last event; the first event has 1 */
static DEFINE_SPINLOCK(ring_lock);
static DECLARE_WAIT_QUEUE_HEAD(readers);

struct reader {
	struct mutex lock;	/* of threads that share a descriptor */
	u64 last;		/* sequence of the last event read */
};

void vgpu_event(struct vgpu_event *e)
{
	if (!e->tgid && e->type != VGPU_EVENT_CGROUP_GONE) {
		e->tgid = current->tgid;
		e->tid = current->pid;
		get_task_comm(e->comm, current);
	}
	e->time_ns = ktime_get_boottime_ns();
	spin_lock(&ring_lock);
	e->sequence = ++written;
	ring[e->sequence % EVENTS] = *e;
	spin_unlock(&ring_lock);
	vgpu_count(events);
	wake_up_interruptible(&readers);
}

/* The event after *last, or the oldest that is left if that one is lost. *last becomes its sequence
 * number. */
static bool next_event(u64 *last, struct vgpu_event *e, u64 *lost)
{
	bool there;

	spin_lock(&ring_lock);
	there = *last < written;
	if (there) {
		u64 next = max(*last + 1, written < EVENTS ? 1 : written - EVENTS + 1);

		*lost = next - *last - 1;
		*last = next;
		*e = ring[next % EVENTS];
	}
	spin_unlock(&ring_lock);
	return there;
}

static u64 newest(void)
{
	u64 sequence;

	spin_lock(&ring_lock);
	sequence = written;
	spin_unlock(&ring_lock);
	return sequence;
}

int vgpu_events_open(struct file *file)
{
	struct reader *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return -ENOMEM;
	mutex_init(&r->lock);
	r->last = newest();
	file->private_data = r;
	return 0;
}

void vgpu_events_release(struct file *file)
{
	kfree(file->private_data);
}

ssize_t vgpu_events_read(struct file *file, char __user *buffer, size_t size, loff_t *offset)
{
	struct reader *r = file->private_data;
	ssize_t done = 0;
	int err = 0;

	if (size < sizeof(struct vgpu_event))
		return -EINVAL;
	if (mutex_lock_interruptible(&r->lock))
		return -ERESTARTSYS;
	while (size - done >= sizeof(struct vgpu_event)) {
		struct vgpu_event e;
		u64 last = r->last, lost;

		if (!next_event(&last, &e, &lost)) {
			if (done)
				break;
			if (file->f_flags & O_NONBLOCK) {
				err = -EAGAIN;
				break;
			}
			err = wait_event_interruptible(readers, newest() > r->last);
			if (err)
				break;
			continue;
		}
		if (copy_to_user(buffer + done, &e, sizeof(e))) {
			err = -EFAULT;
			break;
		}
		this_cpu_add(vgpu_counts.events_lost, lost);
		r->last = last;
		done += sizeof(e);
	}
	mutex_unlock(&r->lock);
	return done ?: err;
}

__poll_t vgpu_events_poll(struct file *file, struct poll_table_struct *wait)
{
	struct reader *r = file->private_data;

	poll_wait(file, &readers, wait);
	return newest() > READ_ONCE(r->last) ? EPOLLIN | EPOLLRDNORM : 0;
}

void vgpu_events_each(void (*visit)(const struct vgpu_event *e, void *context), void *context)
{
	struct vgpu_event e;
	u64 last = 0, lost, end = newest();

	while (last < end && next_event(&last, &e, &lost))
		visit(&e, context);
}

/* ---- Timeslices ---------------------------------------------------------------------------------------------------------------------- */

static struct vgpu_timeslice timeslices[VGPU_TIMESLICES];
static u64 timeslices_written;

void vgpu_timeslice_log(const struct vgpu_timeslice *t)
{
	timeslices[timeslices_written++ % VGPU_TIMESLICES] = *t;
}

void vgpu_timeslices_each(void (*visit)(const struct vgpu_timeslice *t, void *context), void *context)
{
	u64 i = timeslices_written > VGPU_TIMESLICES ? timeslices_written - VGPU_TIMESLICES : 0;

	for (; i < timeslices_written; i++)
		visit(&timeslices[i % VGPU_TIMESLICES], context);
}
