// SPDX-License-Identifier: GPL-2.0-only
/* The module fakegpu: its parameters, the registration of /dev/fakegpu, its statistics, and the report of leaks. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/sysfs.h>

#include "../logic/handles.h"
#include "fakegpu.h"

struct fakegpu_params fakegpu_params = {
	.device_bytes = 1ull << 30,
	.context_bytes = 1ull << 28,
	.max_handles = 1024,
	.max_jobs = 256,
	.job_latency_us = 1000,
};

#define PARAM(name, type, text) \
	module_param_named(name, fakegpu_params.name, type, 0444); \
	MODULE_PARM_DESC(name, text)

PARAM(device_bytes, ullong, "memory of the device, in bytes (default 1 GiB)");
PARAM(context_bytes, ullong, "memory that one context may hold, in bytes (default 256 MiB)");
PARAM(max_handles, uint, "allocations that one context may hold (default 1024)");
PARAM(max_jobs, uint, "jobs that one context may have under way (default 256)");
PARAM(job_latency_us, uint, "microseconds that a job takes (default 1000)");
PARAM(leak, bool, "forget what the first closed context held, to see the report of leaks (default N)");

struct fakegpu_stats fakegpu_stats;

static ssize_t stat_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	atomic64_t *value = container_of(attr, struct dev_ext_attribute, attr)->var;

	return sysfs_emit(buf, "%lld\n", atomic64_read(value));
}

#define X(name) static struct dev_ext_attribute stat_##name = { __ATTR(name, 0444, stat_show, NULL), &fakegpu_stats.name };
FAKEGPU_STATS(X)
#undef X

#define X(name) &stat_##name.attr.attr,
static struct attribute *stat_attrs[] = { FAKEGPU_STATS(X) NULL };
#undef X

static const struct attribute_group stat_group = { .name = "stats", .attrs = stat_attrs };
static const struct attribute_group *fakegpu_groups[] = { &stat_group, NULL };

static struct miscdevice fakegpu_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "fakegpu",
	.fops = &fakegpu_fops,
	.groups = fakegpu_groups,
	.mode = 0666,		/* open to all like a GPU's nodes; the administrator of /dev may narrow that */
};

static bool __init param_within(const char *name, u64 value, u64 least, u64 most)
{
	if (value >= least && value <= most)
		return true;
	pr_err("%s=%llu: give a number from %llu to %llu\n", name, value, least, most);
	return false;
}

static bool __init params_valid(const struct fakegpu_params *p)
{
	return param_within("device_bytes", p->device_bytes, HANDLE_PAGE, 1ull << 50) &&
	       param_within("context_bytes", p->context_bytes, HANDLE_PAGE, p->device_bytes) &&
	       param_within("max_handles", p->max_handles, 1, 1 << 20) &&
	       param_within("max_jobs", p->max_jobs, 1, 1 << 16) &&
	       param_within("job_latency_us", p->job_latency_us, 0, 10 * USEC_PER_SEC);
}

static int __init fakegpu_init(void)
{
	int err;

	if (!params_valid(&fakegpu_params))
		return -EINVAL;
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
	s64 contexts, handles, bytes, jobs;
	bool leaked;

	misc_deregister(&fakegpu_misc);
	leaked = fakegpu_nvidia_exit();
	contexts = atomic64_read(&fakegpu_stats.contexts);
	handles = atomic64_read(&fakegpu_stats.handles);
	bytes = atomic64_read(&fakegpu_stats.device_used);
	jobs = atomic64_read(&fakegpu_stats.jobs);
	if (contexts || handles || bytes || jobs)
		pr_err("LEAK: %lld contexts, %lld handles, %lld bytes, %lld jobs\n", contexts, handles, bytes, jobs);
	else if (!leaked)
		pr_info("unloaded, nothing leaked\n");
}

module_init(fakegpu_init);
module_exit(fakegpu_exit);

MODULE_DESCRIPTION("A GPU-shaped character device without a GPU");
MODULE_LICENSE("GPL");
