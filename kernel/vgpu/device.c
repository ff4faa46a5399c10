// SPDX-License-Identifier: GPL-2.0-only
/* /dev/vgpuctl */
#define pr_fmt(fmt) "vgpu: " fmt

#include <linux/capability.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "vgpu.h"

static long get_info(void __user *arg)
{
	struct vgpu_info info = { .abi_version = VGPU_ABI_VERSION, .mode = vgpu_mode() };
	struct vgpu_fingerprint f;

	vgpu_fingerprint_get(&f);
	info.may_enforce = vgpu_allow_enforce && f.known;
	info.hooked = f.hooked;
	strscpy(info.driver, f.driver, sizeof(info.driver));
	strscpy(info.driver_version, f.version, sizeof(info.driver_version));
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long set_mode(void __user *arg)
{
	struct vgpu_fingerprint f;
	u32 mode;
	int err;

	if (get_user(mode, (u32 __user *)arg))
		return -EFAULT;
	err = vgpu_set_mode(mode);
	if (err == -EPERM) {
		vgpu_fingerprint_get(&f);
		pr_notice_ratelimited("not enforcing: %s\n", vgpu_allow_enforce ? f.reason : "load the module with allow_enforce=1 for that");
	}
	return err;
}

static long get_stats(void __user *arg)
{
	struct vgpu_stats stats;

	vgpu_stats_get(&stats);
	return copy_to_user(arg, &stats, sizeof(stats)) ? -EFAULT : 0;
}

static long get_usage(void __user *arg)
{
	struct vgpu_usage u, result = {};
	struct vgpu_task *task;
	u32 tgid;
	int err;

	if (copy_from_user(&u, arg, sizeof(u)))
		return -EFAULT;
	if (u.tgid && u.cgroup_id)
		return -EINVAL;
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	if (u.tgid) {
		err = vgpu_task_get(u.tgid, false, &task, &tgid);
		if (!err)
			err = ledger_usage(&vgpu_ledger, VGPU_SCOPE_TGID, tgid, u.minor, &result);
	} else {
		err = ledger_usage(&vgpu_ledger, VGPU_SCOPE_CGROUP, u.cgroup_id, u.minor, &result);
	}
	mutex_unlock(&vgpu_lock);
	if (err)
		return err;
	result.cgroup_id = u.cgroup_id;
	result.tgid = u.tgid;
	result.minor = u.minor;
	return copy_to_user(arg, &result, sizeof(result)) ? -EFAULT : 0;
}

static bool minor_valid(u32 minor)
{
	return minor <= NV_MINOR_GPU_MAX || minor == VGPU_MINOR_ANY;
}

static long tgid_policy(unsigned int cmd, void __user *arg)
{
	struct vgpu_policy p;
	struct vgpu_task *task;
	u32 tgid;
	int err;

	if (copy_from_user(&p, arg, sizeof(p)))
		return -EFAULT;
	if (!minor_valid(p.minor))
		return -EINVAL;
	err = cmd == VGPU_IOCTL_SET_POLICY ? policy_check(&p.limits) : 0;
	if (err)
		return err;
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	err = vgpu_task_get(p.tgid, cmd == VGPU_IOCTL_SET_POLICY, &task, &tgid);
	if (!err) {
		if (cmd == VGPU_IOCTL_SET_POLICY)
			err = policy_set_tgid(&vgpu_policies, tgid, p.minor, &p.limits);
		else if (cmd == VGPU_IOCTL_GET_POLICY)
			err = policy_get_tgid(&vgpu_policies, tgid, p.minor, &p.limits);
		else
			err = policy_clear_tgid(&vgpu_policies, tgid, p.minor);
	}
	mutex_unlock(&vgpu_lock);
	if (!err && cmd == VGPU_IOCTL_GET_POLICY && copy_to_user(arg, &p, sizeof(p)))
		return -EFAULT;
	return err;
}

static long cgroup_policy(unsigned int cmd, void __user *arg)
{
	struct vgpu_cgroup_policy p;
	int err;

	if (copy_from_user(&p, arg, sizeof(p)))
		return -EFAULT;
	if (!minor_valid(p.minor) || p.reserved)
		return -EINVAL;
	err = cmd == VGPU_IOCTL_SET_CGROUP_POLICY ? policy_check(&p.limits) : 0;
	if (err)
		return err;
	/* If the cgroup is removed after this check, the reaper finds it once the mutex is free. */
	mutex_lock(&vgpu_lock);
	vgpu_reap();
	if (cmd == VGPU_IOCTL_SET_CGROUP_POLICY)
		err = vgpu_cgroup_alive(p.cgroup_id) ?: policy_set_cgroup(&vgpu_policies, p.cgroup_id, p.minor, &p.limits);
	else if (cmd == VGPU_IOCTL_GET_CGROUP_POLICY)
		err = policy_get_cgroup(&vgpu_policies, p.cgroup_id, p.minor, &p.limits);
	else
		err = policy_clear_cgroup(&vgpu_policies, p.cgroup_id, p.minor);
	mutex_unlock(&vgpu_lock);
	if (!err && cmd == VGPU_IOCTL_GET_CGROUP_POLICY && copy_to_user(arg, &p, sizeof(p)))
		return -EFAULT;
	return err;
}

static long control_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *p = (void __user *)arg;

	switch (cmd) {
	case VGPU_IOCTL_GET_INFO:
		return get_info(p);
	case VGPU_IOCTL_GET_STATS:
		return get_stats(p);
	case VGPU_IOCTL_GET_USAGE:
		return get_usage(p);
	case VGPU_IOCTL_GET_POLICY:
		return tgid_policy(cmd, p);
	case VGPU_IOCTL_GET_CGROUP_POLICY:
		return cgroup_policy(cmd, p);
	/* The descriptor may have been passed on to a process with fewer rights. */
	case VGPU_IOCTL_SET_MODE:
		return capable(CAP_SYS_ADMIN) ? set_mode(p) : -EPERM;
	case VGPU_IOCTL_SET_POLICY:
	case VGPU_IOCTL_CLEAR_POLICY:
		return capable(CAP_SYS_ADMIN) ? tgid_policy(cmd, p) : -EPERM;
	case VGPU_IOCTL_SET_CGROUP_POLICY:
	case VGPU_IOCTL_CLEAR_CGROUP_POLICY:
		return capable(CAP_SYS_ADMIN) ? cgroup_policy(cmd, p) : -EPERM;
	}
	return -ENOTTY;
}

static int control_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return vgpu_events_open(file);
}

static int control_release(struct inode *inode, struct file *file)
{
	vgpu_events_release(file);
	return 0;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.unlocked_ioctl = control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read = vgpu_events_read,
	.poll = vgpu_events_poll,
};

static struct miscdevice control = { .minor = MISC_DYNAMIC_MINOR, .name = "vgpuctl", .fops = &control_fops, .mode = 0600 };

int vgpu_control_start(void)
{
	return misc_register(&control);
}

void vgpu_control_stop(void)
{
	misc_deregister(&control);
}
