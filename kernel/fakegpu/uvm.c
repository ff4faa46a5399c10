// SPDX-License-Identifier: GPL-2.0-only
/* /dev/nvidia-uvm, as far as libcuda uses it before it looks for GPUs; see kernel-open/nvidia-uvm in NVIDIA's open
 * kernel modules. There is no managed memory, and no GPU can be registered. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"

static int major;

/* How a descriptor has been initialised. */
enum { UNINITIALIZED, VA_SPACE };

struct uvm_file {
	struct mutex lock;
	int state;
	u64 flags;
};

static int uvm_open(struct inode *inode, struct file *file)
{
	struct uvm_file *f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	file->private_data = f;
	return 0;
}

static int uvm_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static u32 initialize(struct uvm_file *f, u64 flags)
{
	u32 status = NV_OK;

	if (flags & ~UVM_INIT_FLAGS_MASK)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&f->lock);
	if (f->state == VA_SPACE && f->flags != flags)
		status = NV_ERR_INVALID_ARGUMENT;
	f->state = VA_SPACE;
	if (status == NV_OK)
		f->flags = flags;
	mutex_unlock(&f->lock);
	return status;
}

static bool initialized(struct uvm_file *f)
{
	bool yes;

	mutex_lock(&f->lock);
	yes = f->state == VA_SPACE;
	mutex_unlock(&f->lock);
	return yes;
}

static const struct file_operations uvm_fops;

/* The second descriptor keeps the memory of the process that owns the first. Nothing here uses that, so it is not needed. */
static u32 mm_initialize(s32 fd)
{
	struct file *other = fget(fd);
	u32 status = NV_ERR_INVALID_ARGUMENT;

	if (!other)
		return status;
	if (other->f_op == &uvm_fops && initialized(other->private_data))
		status = NV_WARN_NOTHING_TO_DO;
	fput(other);
	return status;
}

/* Commands are plain numbers. The number determines the structure's size. */
static long uvm_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct uvm_file *f = file->private_data;
	void __user *arg = (void __user *)user;
	union {
		struct uvm_initialize initialize;
		struct uvm_mm_initialize mm;
		struct uvm_pageable_mem_access pageable;
		struct uvm_register_gpu gpu;
	} p;
	u32 size;

	switch (cmd) {
	case UVM_DEINITIALIZE:
		return 0;
	case UVM_INITIALIZE:
		size = sizeof(p.initialize);
		break;
	case UVM_MM_INITIALIZE:
		size = sizeof(p.mm);
		break;
	case UVM_PAGEABLE_MEM_ACCESS:
		size = sizeof(p.pageable);
		break;
	case UVM_REGISTER_GPU:
		size = sizeof(p.gpu);
		break;
	default:
		return -EINVAL;
	}
	if (copy_from_user(&p, arg, size))
		return -EFAULT;
	switch (cmd) {
	case UVM_INITIALIZE:
		p.initialize.rmStatus = initialize(f, p.initialize.flags);
		break;
	case UVM_MM_INITIALIZE:
		p.mm.rmStatus = mm_initialize(p.mm.uvmFd);
		break;
	case UVM_PAGEABLE_MEM_ACCESS:
		p.pageable.pageableMemAccess = 0;
		p.pageable.rmStatus = initialized(f) ? NV_OK : NV_ERR_ILLEGAL_ACTION;
		break;
	case UVM_REGISTER_GPU:
		p.gpu.rmStatus = initialized(f) ? NV_ERR_NOT_SUPPORTED : NV_ERR_ILLEGAL_ACTION;
		break;
	}
	return copy_to_user(arg, &p, size) ? -EFAULT : 0;
}

static const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open,
	.release = uvm_release,
	.unlocked_ioctl = uvm_ioctl,
	.compat_ioctl = uvm_ioctl,
};

int nv_uvm_init(struct class *class)
{
	struct device *d;

	major = register_chrdev(0, "nvidia-uvm", &uvm_fops);
	if (major < 0)
		return major;
	d = device_create(class, NULL, MKDEV(major, 0), NULL, "nvidia-uvm");
	if (IS_ERR(d))
		unregister_chrdev(major, "nvidia-uvm");
	return PTR_ERR_OR_ZERO(d);
}

void nv_uvm_exit(struct class *class)
{
	device_destroy(class, MKDEV(major, 0));
	unregister_chrdev(major, "nvidia-uvm");
}
