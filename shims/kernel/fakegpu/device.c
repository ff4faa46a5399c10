// SPDX-License-Identifier: GPL-2.0-only
/* /dev/fakegpu: the module, and the device. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "fakegpu.h"

static const struct file_operations fakegpu_fops = {
	.owner = THIS_MODULE,
};

static struct miscdevice fakegpu_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "fakegpu",
	.fops = &fakegpu_fops,
	.mode = 0666,
};

/* Until nvidia.c is there. */
int __weak fakegpu_nvidia_init(void)
{
	return 0;
}

void __weak fakegpu_nvidia_exit(void)
{
}

static int __init fakegpu_init(void)
{
	int err;

	err = fakegpu_nvidia_init();
	if (err)
		return err;
	err = misc_register(&fakegpu_misc);
	if (err) {
		pr_err("cannot register /dev/fakegpu: error %d; see whether another module has the name\n", err);
		fakegpu_nvidia_exit();
		return err;
	}
	pr_info("loaded, /dev/fakegpu ready\n");
	return 0;
}

static void __exit fakegpu_exit(void)
{
	misc_deregister(&fakegpu_misc);
	fakegpu_nvidia_exit();
}

module_init(fakegpu_init);
module_exit(fakegpu_exit);

MODULE_DESCRIPTION("A GPU-shaped character device without a GPU");
MODULE_LICENSE("GPL");
