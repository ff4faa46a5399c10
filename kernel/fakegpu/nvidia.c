// SPDX-License-Identifier: GPL-2.0-only
/* The NVIDIA personality: /dev/nvidiactl and /dev/nvidiaN, which answer as those of NVIDIA's driver do; see
 * kernel-open/nvidia/nv.c in NVIDIA's open kernel modules. fakegpu_nv_open, fakegpu_nv_unlocked_ioctl and
 * fakegpu_nv_close correspond to the driver's nvidia_open and so on. They are functions of their own, so that a
 * tracer can hook them. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "fakegpu.h"
#include "nvidia.h"

static bool nvidia;
module_param(nvidia, bool, 0444);
MODULE_PARM_DESC(nvidia, "be NVIDIA's driver too, with the GPUs of gpus=");

static char *driver_version = "580.105.08";
module_param(driver_version, charp, 0444);
MODULE_PARM_DESC(driver_version, "the driver's version that programs are told");

static char *gpus[GPUS_MAX];
static int gpus_count;
module_param_array(gpus, charp, &gpus_count, 0444);
MODULE_PARM_DESC(gpus, "GPUs with commas between, as nvmlfab fakegpu prints them: BUS/MINOR/VENDOR:DEVICE/MEMORY/UUID/NAME/VBIOS/DMABITS/FIRMWARE");

/* fakegpu.ko's own version. driver_version is the version of the driver that it imitates. */
MODULE_VERSION("1");

struct nv_gpu *nv_gpus;
u32 nv_gpu_count;
char *nv_driver_version;

static struct class *node_class;
static struct cdev nv_cdev;
static u64 memblock_size;	/* from SYS_PARAMS; guarded by nv_rm_lock */

struct nv_event_entry {
	struct list_head in_file;
	u32 client, fd;
};

struct nv_gpu *nv_gpu_by_id(u32 id)
{
	u32 i;

	for (i = 0; i < nv_gpu_count; i++)
		if (gpu_id(&nv_gpus[i].is) == id)
			return &nv_gpus[i];
	return NULL;
}

static struct nv_gpu *gpu_by_minor(u32 minor)
{
	u32 i;

	for (i = 0; i < nv_gpu_count; i++)
		if (nv_gpus[i].is.minor == minor)
			return &nv_gpus[i];
	return NULL;
}

/* ---- Calls outside the resource manager
 * --------------------------------------------------------------------------- */

static int card_info(void *arg, u32 size)
{
	struct nv_card_info *card = arg;
	u32 count = size / sizeof(*card), i;

	memset(card, 0, count * sizeof(*card));
	if (count < nv_gpu_count)
		return -EINVAL;
	for (i = 0; i < nv_gpu_count; i++, card++) {
		const struct gpu *gpu = &nv_gpus[i].is;

		card->valid = 1;
		card->domain = gpu->domain;
		card->bus = gpu->bus;
		card->slot = gpu->slot;
		card->function = gpu->function;
		card->vendor_id = gpu->vendor;
		card->device_id = gpu->device;
		card->gpu_id = gpu_id(gpu);
		card->fb_size = gpu->memory;
		card->minor_number = gpu->minor;
	}
	return 0;
}

/* Strict: the texts must be equal. Relaxed: equal up to the first dot. If they differ, the driver's
 * version is written back. */
static int check_version(void *arg, u32 size)
{
	struct nv_version *v = arg;
	u32 i;

	if (size != sizeof(*v))
		return -EINVAL;
	v->reply = NV_RM_API_VERSION_REPLY_RECOGNIZED;
	if (v->cmd != NV_RM_API_VERSION_CMD_QUERY) {
		for (i = 0; i < sizeof(v->versionString) && v->versionString[i] == nv_driver_version[i]; i++)
			if (!nv_driver_version[i] || (v->cmd == NV_RM_API_VERSION_CMD_RELAXED && nv_driver_version[i] == '.'))
				return 0;
	}
	memset(v->versionString, 0, sizeof(v->versionString));
	strscpy(v->versionString, nv_driver_version, sizeof(v->versionString));
	return v->cmd == NV_RM_API_VERSION_CMD_QUERY ? 0 : -EINVAL;
}

static const struct file_operations nv_fops;

static int register_fd(struct nv_file *f, const struct nv_register_fd *call)
{
	struct file *ctl = fget(call->ctl_fd);
	struct nv_file *other;
	int err = -EINVAL;

	if (!ctl)
		return err;
	other = ctl->f_op == &nv_fops ? ctl->private_data : NULL;
	mutex_lock(&nv_rm_lock);
	if (other && !other->gpu && other != f && !other->ctl && !f->ctl) {
		smp_store_release(&f->ctl, ctl);
		err = 0;
	}
	mutex_unlock(&nv_rm_lock);
	if (err)
		fput(ctl);
	return err;
}

static int attach_gpus(struct nv_file *f, const u32 *ids, u32 size)
{
	u32 i;
	int err = 0;

	if (!size || size % sizeof(*ids))
		return -EINVAL;
	for (i = 0; i < size / sizeof(*ids); i++)
		if (ids[i] && !nv_gpu_by_id(ids[i]))
			return -EINVAL;
	mutex_lock(&nv_rm_lock);
	if (f->attached)
		err = -EINVAL;
	f->attached = true;
	mutex_unlock(&nv_rm_lock);
	return err;
}

static int sys_params(const u64 *size)
{
	int err = 0;

	mutex_lock(&nv_rm_lock);
	if (!memblock_size)
		memblock_size = *size;
	else if (memblock_size != *size)
		err = -EBUSY;
	mutex_unlock(&nv_rm_lock);
	return err;
}

static struct nv_event_entry *find_event(struct nv_file *f, const struct nv_os_event *call)
{
	struct nv_event_entry *e;

	list_for_each_entry(e, &f->events, in_file)
		if (e->client == call->hClient && e->fd == call->fd)
			return e;
	return NULL;
}

/* A program may ask for events, but none ever comes. */
static void os_event(struct nv_file *f, struct nv_os_event *call, bool alloc)
{
	struct nv_event_entry *e;

	mutex_lock(&nv_rm_lock);
	e = find_event(f, call);
	call->Status = NV_OK;
	if (!alloc && e) {
		list_del(&e->in_file);
		kfree(e);
	} else if (!alloc) {
		call->Status = NV_ERR_INVALID_EVENT;
	} else if (e) {
		call->Status = NV_ERR_INSUFFICIENT_RESOURCES;
	} else {
		e = kzalloc(sizeof(*e), GFP_KERNEL_ACCOUNT);
		call->Status = e ? NV_OK : NV_ERR_INSUFFICIENT_RESOURCES;
		if (e) {
			e->client = call->hClient;
			e->fd = call->fd;
			list_add(&e->in_file, &f->events);
		}
	}
	mutex_unlock(&nv_rm_lock);
}

static int status_code(struct nv_status_code *call)
{
	u32 i;

	for (i = 0; i < nv_gpu_count; i++) {
		const struct gpu *gpu = &nv_gpus[i].is;

		if (gpu->domain == call->domain && gpu->bus == call->bus && gpu->slot == call->slot) {
			call->status = NV_OK;
			return 0;
		}
	}
	return -EINVAL;
}

/* None of the GPUs is a NUMA node of the machine. */
static void numa_info(struct nv_numa_info *info)
{
	memset(info, 0, sizeof(*info));
	info->nid = -1;
	mutex_lock(&nv_rm_lock);
	info->memblock_size = memblock_size;
	mutex_unlock(&nv_rm_lock);
}

/* Handles a call whose structure of size bytes has been copied to arg. */
static int nv_call(struct nv_file *f, u32 nr, void *arg, u32 size)
{
	switch (nr) {
	case NV_ESC_CARD_INFO:
		return f->gpu ? -EINVAL : card_info(arg, size);
	case NV_ESC_REGISTER_FD:
		return size == sizeof(struct nv_register_fd) ? register_fd(f, arg) : -EINVAL;
	case NV_ESC_ALLOC_OS_EVENT:
	case NV_ESC_FREE_OS_EVENT:
		if (size != sizeof(struct nv_os_event))
			return -EINVAL;
		os_event(f, arg, nr == NV_ESC_ALLOC_OS_EVENT);
		return 0;
	case NV_ESC_STATUS_CODE:
		return !f->gpu && size == sizeof(struct nv_status_code) ? status_code(arg) : -EINVAL;
	case NV_ESC_CHECK_VERSION_STR:
		return f->gpu ? -EINVAL : check_version(arg, size);
	case NV_ESC_ATTACH_GPUS_TO_FD:
		return f->gpu ? -EINVAL : attach_gpus(f, arg, size);
	case NV_ESC_SYS_PARAMS:
		return !f->gpu && size == sizeof(u64) ? sys_params(arg) : -EINVAL;
	case NV_ESC_NUMA_INFO:
		if (!f->gpu || size != sizeof(struct nv_numa_info))
			return -EINVAL;
		numa_info(arg);
		return 0;
	case NV_ESC_WAIT_OPEN_COMPLETE:
		if (size != sizeof(struct nv_open_complete))
			return -EINVAL;
		memset(arg, 0, size);	/* when a program can ask, its open has already succeeded */
		return 0;
	}
	return nv_rm_call(f, nr, arg, size);
}

/* ---- File operations --------------------------------------------------------------------------------------------- */

static noinline int fakegpu_nv_open(struct inode *inode, struct file *file)
{
	u32 minor = iminor(inode);
	struct nv_gpu *gpu = minor == NV_MINOR_CONTROL ? NULL : gpu_by_minor(minor);
	struct nv_file *f;

	if (!gpu && minor != NV_MINOR_CONTROL)
		return -ENODEV;
	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->gpu = gpu;
	INIT_LIST_HEAD(&f->clients);
	INIT_LIST_HEAD(&f->events);
	file->private_data = f;
	return 0;
}

static noinline int fakegpu_nv_close(struct inode *inode, struct file *file)
{
	struct nv_file *f = file->private_data;
	struct nv_event_entry *e, *next;

	nv_rm_close(f);
	list_for_each_entry_safe(e, next, &f->events, in_file)
		kfree(e);
	if (f->ctl)
		fput(f->ctl);
	kfree(f);
	return 0;
}

/* Only the number and the size of a command count. A structure that is too large for a command
 * comes wrapped: NV_ESC_IOCTL_XFER_CMD then says where it is. The call works on a copy, which is
 * written back whether the call succeeds or not, so it never sees what another thread writes
 * meanwhile. */
static noinline long fakegpu_nv_unlocked_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	struct nv_file *f = file->private_data;
	u32 nr = _IOC_NR(cmd), size = _IOC_SIZE(cmd);
	void __user *from = (void __user *)user;
	struct nv_xfer xfer;
	void *arg;
	int ret;

	if (nr == NV_ESC_IOCTL_XFER_CMD) {
		if (size != sizeof(xfer))
			return -EINVAL;
		if (copy_from_user(&xfer, from, sizeof(xfer)))
			return -EFAULT;
		nr = xfer.cmd;
		size = xfer.size;
		from = u64_to_user_ptr(xfer.ptr);
		if (nr == NV_ESC_IOCTL_XFER_CMD || size > NV_XFER_MAX_SIZE)
			return -EINVAL;
	}
	arg = kmalloc(size, GFP_KERNEL);
	if (!arg)
		return -ENOMEM;
	ret = copy_from_user(arg, from, size) ? -EFAULT : nv_call(f, nr, arg, size);
	if (ret != -EFAULT && copy_to_user(from, arg, size))
		ret = -EFAULT;
	kfree(arg);
	return ret;
}

/* Nothing ever happens on these devices. */
static __poll_t fakegpu_nv_poll(struct file *file, struct poll_table_struct *wait)
{
	return 0;
}

static const struct file_operations nv_fops = {
	.owner = THIS_MODULE,
	.open = fakegpu_nv_open,
	.release = fakegpu_nv_close,
	.unlocked_ioctl = fakegpu_nv_unlocked_ioctl,
	.compat_ioctl = fakegpu_nv_unlocked_ioctl,
	.poll = fakegpu_nv_poll,
};

/* ---- Setting up -------------------------------------------------------------------------------------------------- */

static int parse_parameters(void)
{
	struct gpu *parsed;
	const char *wrong;
	u32 i;
	int err = -EINVAL;

	if (!driver_version_valid(driver_version)) {
		pr_err("driver_version=%.40s: give two to four numbers with dots between, such as 580.105.08\n", driver_version);
		return err;
	}
	nv_driver_version = driver_version;
	nv_gpu_count = gpus_count;
	nv_gpus = kcalloc(nv_gpu_count + 1, sizeof(*nv_gpus), GFP_KERNEL);
	parsed = kcalloc(nv_gpu_count + 1, sizeof(*parsed), GFP_KERNEL);
	if (!nv_gpus || !parsed) {
		kfree(parsed);
		return -ENOMEM;
	}
	for (i = 0; i < nv_gpu_count; i++) {
		wrong = gpu_parse(gpus[i], &parsed[i]);
		if (wrong) {
			pr_err("gpus: entry %u, %.160s: cannot read %s; take what nvmlfab fakegpu prints\n", i, gpus[i], wrong);
			goto out;
		}
		wrong = gpu_clash(parsed, i + 1);
		if (wrong) {
			pr_err("gpus: entry %u, %.160s: an earlier entry has %s already; give every GPU its own\n", i, gpus[i], wrong);
			goto out;
		}
		nv_gpus[i].is = parsed[i];
		nv_gpus[i].instance = i;
	}
	err = 0;
out:
	kfree(parsed);
	return err;
}

static char *nv_devnode(
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	const struct device *device,
#else
	struct device *device,
#endif
	umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static void destroy_nodes(void)
{
	u32 i;

	for (i = 0; i < nv_gpu_count; i++)
		device_destroy(node_class, MKDEV(NV_MAJOR, nv_gpus[i].is.minor));
	device_destroy(node_class, MKDEV(NV_MAJOR, NV_MINOR_CONTROL));
}

static int create_nodes(void)
{
	struct device *d = device_create(node_class, NULL, MKDEV(NV_MAJOR, NV_MINOR_CONTROL), NULL, "nvidiactl");
	u32 i;

	for (i = 0; !IS_ERR(d) && i < nv_gpu_count; i++)
		d = device_create(node_class, NULL, MKDEV(NV_MAJOR, nv_gpus[i].is.minor), NULL, "nvidia%u", nv_gpus[i].is.minor);
	if (IS_ERR(d))
		destroy_nodes();
	return PTR_ERR_OR_ZERO(d);
}

int fakegpu_nvidia_init(void)
{
	int err;

	if (!nvidia) {
		if (gpus_count)
			pr_notice("gpus= does nothing without nvidia=1\n");
		return 0;
	}
	err = parse_parameters();
	if (err)
		goto no_parameters;
	err = register_chrdev_region(MKDEV(NV_MAJOR, 0), NV_MINOR_CONTROL + 1, "nvidia-frontend");
	if (err) {
		pr_err("major number %d is taken: unload the driver that has it\n", NV_MAJOR);
		goto no_parameters;
	}
	cdev_init(&nv_cdev, &nv_fops);
	nv_cdev.owner = THIS_MODULE;
	err = cdev_add(&nv_cdev, MKDEV(NV_MAJOR, 0), NV_MINOR_CONTROL + 1);
	if (err)
		goto no_cdev;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	node_class = class_create("fakegpu-nvidia");
#else
	node_class = class_create(THIS_MODULE, "fakegpu-nvidia");
#endif
	err = PTR_ERR_OR_ZERO(node_class);
	if (err)
		goto no_class;
	node_class->devnode = nv_devnode;
	err = create_nodes();
	if (err)
		goto no_nodes;
	err = nv_uvm_init(node_class);
	if (err)
		goto no_uvm;
	err = nv_proc_init();
	if (err)
		goto no_proc;
	pr_info("NVIDIA driver %s with %u GPUs\n", nv_driver_version, nv_gpu_count);
	return 0;

no_proc:
	nv_uvm_exit(node_class);
no_uvm:
	destroy_nodes();
no_nodes:
	class_destroy(node_class);
no_class:
	cdev_del(&nv_cdev);
no_cdev:
	unregister_chrdev_region(MKDEV(NV_MAJOR, 0), NV_MINOR_CONTROL + 1);
no_parameters:
	kfree(nv_gpus);
	return err;
}

bool fakegpu_nvidia_exit(void)
{
	bool leaked;

	if (!nvidia)
		return false;
	nv_proc_exit();
	nv_uvm_exit(node_class);
	destroy_nodes();
	class_destroy(node_class);
	cdev_del(&nv_cdev);
	unregister_chrdev_region(MKDEV(NV_MAJOR, 0), NV_MINOR_CONTROL + 1);
	leaked = nv_rm_exit();
	kfree(nv_gpus);
	return leaked;
}
