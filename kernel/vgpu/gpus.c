// SPDX-License-Identifier: GPL-2.0-only
/* What the module learns of the GPUs from calls: the minor number of each device instance. It also
 * counts each call. */
#include <linux/uaccess.h>

#include "vgpu.h"

/* ---- Minor numbers ------------------------------------------------------------------------------------------------------------------- */

static struct gpu {
	u32 id, minor, instance;
	bool has_minor, has_instance;
} gpus[NV_GPU_IDS];
static u32 minors[NV_GPU_IDS];

void vgpu_gpus_reset(void)
{
	u32 i;

	memset(gpus, 0, sizeof(gpus));
	for (i = 0; i < NV_GPU_IDS; i++)
		minors[i] = i;
}

const u32 *vgpu_minors(u32 *count)
{
	*count = NV_GPU_IDS;
	return minors;
}

u32 vgpu_instance_minor(u32 instance)
{
	return instance < NV_GPU_IDS ? minors[instance] : VGPU_MINOR_ANY;
}

/* The answers lie in the caller's memory, where its other threads can change them before the module
 * reads them. What it learns holds for all processes, so it learns only from callers who may set
 * policies. */
static bool trusted(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

static struct gpu *gpu_of(u32 id)
{
	struct gpu *free = NULL;
	u32 i;

	for (i = 0; i < NV_GPU_IDS; i++) {
		if ((gpus[i].has_minor || gpus[i].has_instance) && gpus[i].id == id)
			return &gpus[i];
		if (!free && !gpus[i].has_minor && !gpus[i].has_instance)
			free = &gpus[i];
	}
	if (free)
		free->id = id;
	return free;
}

static void settle(const struct gpu *g)
{
	if (g->has_minor && g->has_instance)
		minors[g->instance] = g->minor;
}

void vgpu_learn_cards(const void __user *cards, u32 bytes)
{
	struct nv_card_info card;
	struct gpu *g;
	u32 i;

	if (!trusted())
		return;
	for (i = 0; i < bytes / sizeof(card); i++) {
		if (copy_from_user(&card, cards + i * sizeof(card), sizeof(card)))
			return;
		if (!card.valid || card.minor_number > NV_MINOR_GPU_MAX)
			continue;
		mutex_lock(&vgpu_lock);
		g = gpu_of(card.gpu_id);
		if (g) {
			g->minor = card.minor_number;
			g->has_minor = true;
			settle(g);
		}
		mutex_unlock(&vgpu_lock);
	}
}

void vgpu_learn_id(const void __user *info)
{
	struct { __u32 id, flags, instance; } head;	/* of both versions of the structure */
	struct gpu *g;

	if (!trusted() || copy_from_user(&head, info, sizeof(head)) || head.instance >= NV_GPU_IDS)
		return;
	mutex_lock(&vgpu_lock);
	g = gpu_of(head.id);
	if (g) {
		g->instance = head.instance;
		g->has_instance = true;
		settle(g);
	}
	mutex_unlock(&vgpu_lock);
}

/* ---- Counts -------------------------------------------------------------------------------------------------------------------------- */

static DEFINE_PER_CPU(u64 [256], escapes);

/* Control commands, in a table with open addressing. The driver knows about a thousand, and
 * programs use about a hundred. 0 marks a free entry. */
#define CONTROLS 1024u
static struct { atomic_t command; atomic64_t count; } controls[CONTROLS];

void vgpu_count_escape(u32 escape)
{
	this_cpu_inc(escapes[escape & 0xff]);
}

void vgpu_count_control(u32 command)
{
	u32 i, at;

	for (i = 0; i < 16; i++) {
		int there;

		at = (command * 2654435761u + i) % CONTROLS;
		there = atomic_read(&controls[at].command);
		if (!there)
			there = atomic_cmpxchg(&controls[at].command, 0, command) ?: command;
		if (there == command) {
			atomic64_inc(&controls[at].count);
			return;
		}
	}
}

void vgpu_counts_each(void (*visit)(bool control, u32 number, u64 count, void *context), void *context)
{
	u32 i;

	for (i = 0; i < 256; i++) {
		u64 sum = 0;
		int cpu;

		for_each_possible_cpu(cpu)
			sum += per_cpu(escapes[i], cpu);
		if (sum)
			visit(false, i, sum, context);
	}
	for (i = 0; i < CONTROLS; i++)
		if (atomic_read(&controls[i].command))
			visit(true, atomic_read(&controls[i].command), atomic64_read(&controls[i].count), context);
}
