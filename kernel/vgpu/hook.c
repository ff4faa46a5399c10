// SPDX-License-Identifier: GPL-2.0-only
/* Detours of the driver's own open, release and ioctl functions, by ftrace. A detour sees
 * descriptors that were open before, may fault in user pages, and can refuse a call. It lets calls
 * from this module pass. */
#define pr_fmt(fmt) "vgpu: " fmt

#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "../compat.h"
#include "vgpu.h"

#define VARIANTS 2

struct vgpu_driver {
	const char *name;
	/* In the order in which they are tried. Some releases have both open functions, of which
	 * one calls the other. */
	const char *symbols[VARIANTS][VGPU_HOOKS];
	bool (*known)(const char *version);

	bool attached;
	unsigned int variant;
	unsigned long address[VGPU_HOOKS];
	char version[32], srcversion[32];
	const char *failed;		/* why it is loaded and not hooked, or NULL */
	struct ftrace_ops ops;
};

static bool nvidia_known(const char *version)
{
	return !strncmp(version, "570.", 4) || !strncmp(version, "580.", 4);
}

static bool always_known(const char *version)
{
	return true;
}

static struct vgpu_driver drivers[] = {
	{
		.name = "nvidia",
		.symbols = {
			/* 535 and older. They also have the functions of later releases, and call them. */
			{ "nvidia_frontend_open", "nvidia_frontend_close", "nvidia_frontend_unlocked_ioctl", "nvidia_frontend_compat_ioctl" },
			{ "nvidia_open", "nvidia_close", "nvidia_unlocked_ioctl" },
		},
		.known = nvidia_known,
	},
	{
		.name = "fakegpu",
		.symbols = { { "fakegpu_nv_open", "fakegpu_nv_close", "fakegpu_nv_unlocked_ioctl" } },
		.known = always_known,
	},
};

static DEFINE_MUTEX(hook_lock);			/* attaching and detaching; vgpu_lock may be taken inside */
static DEFINE_PER_CPU(long, in_flight);		/* calls that are in this module; the sum over all processors counts */
static DEFINE_PER_CPU(u64 [ARRAY_SIZE(drivers)][VGPU_HOOKS], hits);

/* ---- Detours ------------------------------------------------------------------------------------------------------------------------- */

/* The barrier keeps the compiler from turning the call into a jump. After a jump, the return address would be that
 * of this module's caller, which the function graph tracer and kretprobes replace. The detour could then not
 * recognise the call as the module's own, and would call itself without end. */
#define REAL(d, hook, prototype, ...) ({ typeof(((prototype)0)(__VA_ARGS__)) r = ((prototype)(d)->address[hook])(__VA_ARGS__); barrier(); r; })

int vgpu_real_open(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	return REAL(d, VGPU_HOOK_OPEN, int (*)(struct inode *, struct file *), inode, file);
}

int vgpu_real_close(const struct vgpu_driver *d, struct inode *inode, struct file *file)
{
	return REAL(d, VGPU_HOOK_CLOSE, int (*)(struct inode *, struct file *), inode, file);
}

long vgpu_real_ioctl(const struct vgpu_driver *d, struct file *file, unsigned int cmd, unsigned long arg)
{
	return REAL(d, VGPU_HOOK_IOCTL, long (*)(struct file *, unsigned int, unsigned long), file, cmd, arg);
}

#define ENTER(i, hook) do { this_cpu_inc(in_flight); this_cpu_inc(hits[i][hook]); } while (0)
#define LEAVE() this_cpu_dec(in_flight)

#define DETOURS(i)									\
static int open_##i(struct inode *inode, struct file *file)				\
{											\
	int result;									\
											\
	ENTER(i, VGPU_HOOK_OPEN);							\
	result = vgpu_open(&drivers[i], inode, file);					\
	LEAVE();									\
	return result;									\
}											\
											\
static int close_##i(struct inode *inode, struct file *file)				\
{											\
	int result;									\
											\
	ENTER(i, VGPU_HOOK_CLOSE);							\
	result = vgpu_close(&drivers[i], inode, file);					\
	LEAVE();									\
	return result;									\
}											\
											\
static long ioctl_##i(struct file *file, unsigned int cmd, unsigned long arg)		\
{											\
	long result;									\
											\
	ENTER(i, VGPU_HOOK_IOCTL);							\
	result = vgpu_ioctl(&drivers[i], file, cmd, arg);				\
	LEAVE();									\
	return result;									\
}

DETOURS(0)
DETOURS(1)

/* The driver's compat_ioctl does the same as its unlocked_ioctl, so both detours call the
 * latter. */
static const unsigned long detours[][VGPU_HOOKS] = {
	{ (unsigned long)open_0, (unsigned long)close_0, (unsigned long)ioctl_0, (unsigned long)ioctl_0 },
	{ (unsigned long)open_1, (unsigned long)close_1, (unsigned long)ioctl_1, (unsigned long)ioctl_1 },
};

/* A function's call of ftrace is within its first bytes: after an endbr64, if there is one. */
#define FTRACE_REACH 16

static void notrace detour(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	const struct vgpu_driver *d = container_of(ops, struct vgpu_driver, ops);
	unsigned int i;

	if (within_module(parent_ip, THIS_MODULE))
		return;
	for (i = 0; i < VGPU_HOOKS; i++)
		if (d->address[i] && ip - d->address[i] < FTRACE_REACH)
			ftrace_regs_set_instruction_pointer(fregs, detours[d - drivers][i]);
}

/* ---- Attaching ----------------------------------------------------------------------------------------------------------------------- */

/* kallsyms_lookup_name is not exported, but registering a kprobe for a symbol gives its address. */
static unsigned long address_of(const char *module, const char *symbol)
{
	char name[64];
	struct kprobe probe = { .symbol_name = name, .flags = KPROBE_FLAG_DISABLED };
	unsigned long address;

	snprintf(name, sizeof(name), "%s:%s", module, symbol);
	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return address;
}

static bool find_functions(struct vgpu_driver *d)
{
	unsigned int v, i;

	for (v = 0; v < VARIANTS; v++) {
		for (i = 0; i < VGPU_HOOKS; i++) {
			d->address[i] = d->symbols[v][i] ? address_of(d->name, d->symbols[v][i]) : 0;
			if (!d->symbols[v][i] != !d->address[i])
				break;
		}
		d->variant = v;
		if (i == VGPU_HOOKS && d->address[VGPU_HOOK_IOCTL])
			return true;
	}
	return false;
}

static int hook_functions(struct vgpu_driver *d)
{
	unsigned int i;
	int err = 0;

	/* PERMANENT: while policies exist, kernel.ftrace_enabled cannot be set to 0. */
	d->ops = (struct ftrace_ops){
		.func = detour,
		.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
	};
	for (i = 0; !err && i < VGPU_HOOKS; i++)
		if (d->address[i])
			err = ftrace_set_filter_ip(&d->ops, d->address[i], 0, 0);
	if (!err)
		err = register_ftrace_function(&d->ops);
	if (err)
		ftrace_free_filter(&d->ops);
	return err;
}

static void attach(struct vgpu_driver *d, struct module *m)
{
	int err;

	if (d->attached)
		return;
	strscpy(d->version, m->version ?: "", sizeof(d->version));
	strscpy(d->srcversion, m->srcversion ?: "", sizeof(d->srcversion));
	d->failed = NULL;
	if (!find_functions(d)) {
		d->failed = "its functions are not among those known";
		pr_err("%s %s is not hooked: %s; see docs/vgpu.md for the releases that are\n", d->name, d->version, d->failed);
		return;
	}
	err = hook_functions(d);
	if (err) {
		d->failed = err == -EBUSY ? "ftrace is off or another module modifies its functions" : "ftrace refuses its functions";
		pr_err("%s %s is not hooked: %s (error %d)\n", d->name, d->version, d->failed, err);
		return;
	}
	d->attached = true;
	pr_info("hooked %s %s\n", d->name, d->version);
}

/* When the driver's module is removed, no call is in it. When this module is removed, calls may be,
 * and vgpu_hooks_stop waits for them. */
static void detach(struct vgpu_driver *d)
{
	d->failed = NULL;
	d->version[0] = '\0';
	if (!d->attached)
		return;
	unregister_ftrace_function(&d->ops);
	ftrace_free_filter(&d->ops);
	d->attached = false;
}

static int module_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct module *m = data;
	unsigned int i;

	if (event != MODULE_STATE_COMING && event != MODULE_STATE_GOING)
		return NOTIFY_OK;
	for (i = 0; i < ARRAY_SIZE(drivers); i++) {
		if (strcmp(m->name, drivers[i].name))
			continue;
		mutex_lock(&hook_lock);
		if (event == MODULE_STATE_COMING) {
			attach(&drivers[i], m);
		} else {
			detach(&drivers[i]);
			vgpu_state_drop();
			pr_info("%s is gone\n", drivers[i].name);
		}
		mutex_unlock(&hook_lock);
		vgpu_mode_update();
	}
	return NOTIFY_OK;
}

static struct notifier_block modules = { .notifier_call = module_event };

/* find_module is not exported, but the folder of a module in sysfs leads to it. */
static void attach_loaded(struct vgpu_driver *d)
{
	struct kobject *kobj = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, d->name);
	struct module *m = kobj ? container_of(kobj, struct module_kobject, kobj)->mod : NULL;

	if (m && try_module_get(m)) {
		mutex_lock(&hook_lock);
		attach(d, m);
		mutex_unlock(&hook_lock);
		module_put(m);
	}
	kobject_put(kobj);
}

int vgpu_hooks_start(void)
{
	unsigned int i;
	int err = register_module_notifier(&modules);

	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		attach_loaded(&drivers[i]);
	vgpu_mode_update();
	return 0;
}

static long calls_in_flight(void)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(&in_flight, cpu));
	return sum;
}

void vgpu_hooks_stop(void)
{
	unsigned long say = jiffies + 5 * HZ;
	unsigned int i;

	unregister_module_notifier(&modules);
	mutex_lock(&hook_lock);
	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		detach(&drivers[i]);
	mutex_unlock(&hook_lock);
	/* Each thread that was about to enter a detour has entered it or never will:
	 * unregister_ftrace_function waited for that. */
	while (calls_in_flight()) {
		if (time_after(jiffies, say)) {
			pr_info("waiting for %ld calls of the driver to end; end the processes that make them\n", calls_in_flight());
			say = jiffies + 5 * HZ;
		}
		msleep(10);
	}
	/* The last threads may still be leaving a detour. */
	synchronize_rcu_tasks();
}

/* ---- What is hooked ------------------------------------------------------------------------------------------------------------------ */

void vgpu_hooks_each(void (*visit)(const struct vgpu_hook_info *h, void *context), void *context)
{
	unsigned int d, i;
	int cpu;

	mutex_lock(&hook_lock);
	for (d = 0; d < ARRAY_SIZE(drivers); d++)
		for (i = 0; drivers[d].attached && i < VGPU_HOOKS; i++) {
			struct vgpu_hook_info info = { drivers[d].name, drivers[d].symbols[drivers[d].variant][i], drivers[d].address[i] };

			if (!info.address)
				continue;
			for_each_possible_cpu(cpu)
				info.calls += per_cpu(hits[d][i], cpu);
			visit(&info, context);
		}
	mutex_unlock(&hook_lock);
}

/* The driver that is shown if both are loaded: NVIDIA's own. hook_lock is held. */
static const struct vgpu_driver *hooked(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i].attached)
			return &drivers[i];
	return NULL;
}

/* Every hooked driver must be a known one, since each of them may be called. hook_lock is held. */
static const struct vgpu_driver *unknown(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i].attached && !drivers[i].known(drivers[i].version))
			return &drivers[i];
	return NULL;
}

void vgpu_fingerprint_get(struct vgpu_fingerprint *out)
{
	const struct vgpu_driver *d, *u;
	unsigned int i;

	memset(out, 0, sizeof(*out));
	strscpy(out->reason, "-", sizeof(out->reason));
	mutex_lock(&hook_lock);
	d = hooked();
	u = unknown();
	if (d) {
		out->hooked = true;
		out->known = !u;
		strscpy(out->driver, d->name, sizeof(out->driver));
		strscpy(out->version, d->version, sizeof(out->version));
		strscpy(out->srcversion, d->srcversion, sizeof(out->srcversion));
		if (u)
			snprintf(out->reason, sizeof(out->reason), "%s %s was never tried, only 570 and 580: dry run only", u->name, u->version);
	} else {
		strscpy(out->reason, "no driver is loaded", sizeof(out->reason));
		for (i = 0; i < ARRAY_SIZE(drivers); i++)
			if (drivers[i].failed)
				snprintf(out->reason, sizeof(out->reason), "%s %s: %s", drivers[i].name, drivers[i].version, drivers[i].failed);
	}
	mutex_unlock(&hook_lock);
}

bool vgpu_driver_known(void)
{
	bool known;

	mutex_lock(&hook_lock);
	known = hooked() && !unknown();
	mutex_unlock(&hook_lock);
	return known;
}
