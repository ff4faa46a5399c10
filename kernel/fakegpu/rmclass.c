// SPDX-License-Identifier: GPL-2.0-only
/* The classes of objects that the personality makes, the meaning of their parameters, and the memory that some of
 * them have. */
#include <linux/sched.h>
#include <linux/slab.h>

#include "nvidia.h"

/* NV_RAMRL_ENTRY_TSG_TIMESLICE_TIMEOUT_128 << NV_RAMRL_ENTRY_TSG_TIMESLICE_SCALE_3: kfifoChannelGroupGetDefaultTimeslice_GV100 */
#define DEFAULT_TIMESLICE_US (128 << 3)

/* The first address of ranges that the driver places. */
#define FIRST_ADDRESS 0x200000000ull
#define ADDRESS_LIMIT (1ull << 47)

/* Memory, shared by its object and that object's duplicates. */
struct nv_memory {
	u32 holders;
	u64 bytes;
	struct nv_gpu *gpu;	/* NULL: the host's */
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static u32 memory_new(struct nv_object *o, u64 bytes, struct nv_gpu *gpu)
{
	struct nv_memory *m;

	if (gpu && bytes > gpu->is.memory - gpu->used)
		return NV_ERR_NO_MEMORY;
	m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	if (!m)
		return NV_ERR_NO_MEMORY;
	m->holders = 1;
	m->bytes = bytes;
	m->gpu = gpu;
	if (gpu)
		gpu->used += bytes;
	o->memory = m;
	return NV_OK;
}

void nv_memory_put(struct nv_memory *m)
{
	if (!m || --m->holders)
		return;
	if (m->gpu)
		m->gpu->used -= m->bytes;
	kfree(m);
}

struct nv_memory *nv_memory_share(struct nv_memory *m)
{
	if (m)
		m->holders++;
	return m;
}

u64 nv_rm_memory_bytes(const struct nv_object *o)
{
	return o->memory ? o->memory->bytes : 0;
}

/* ---- Classes ----------------------------------------------------------------------------------------------------- */

static u32 make_device(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	if (p->device.deviceId >= GPUS_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->device.deviceId >= nv_gpu_count)
		return NV_ERR_INVALID_STATE;
	o->gpu = &nv_gpus[p->device.deviceId];
	o->start = FIRST_ADDRESS;
	return NV_OK;
}

static u32 make_subdevice(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	return p->subdevice.subDeviceId ? NV_ERR_INVALID_ARGUMENT : NV_OK;
}

/* The size of the pages that memory is made of. */
static u64 memory_page(const struct nv_memory_allocation *m)
{
	switch (NVOS32_ATTR_PAGE_SIZE(m->attr)) {
	case 1:
		return 1 << 12;
	case 2:
		return 1 << 16;
	case 3:
		return 1 << 21;
	}
	return m->size < 1 << 16 ? 1 << 12 : 1 << 16;
}

static u32 round_memory(struct nv_memory_allocation *m)
{
	u64 page = memory_page(m);

	if (!m->size)
		return NV_ERR_INVALID_ARGUMENT;
	if (m->size > U64_MAX - page)
		return NV_ERR_NO_MEMORY;
	m->size = (m->size + page - 1) & ~(page - 1);
	if (m->alignment < page)
		m->alignment = page;
	return NV_OK;
}

static u32 make_local(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	u32 status;

	if (NVOS32_ATTR_LOCATION(p->memory.attr) != NVOS32_ATTR_LOCATION_VIDMEM || p->memory.flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	status = round_memory(&p->memory);
	if (status != NV_OK)
		return status;
	p->memory.limit = p->memory.size - 1;
	return memory_new(o, p->memory.size, o->gpu);
}

static u32 make_system(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	u32 status;

	if (NVOS32_ATTR_LOCATION(p->memory.attr) == NVOS32_ATTR_LOCATION_VIDMEM || p->memory.flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	status = round_memory(&p->memory);
	if (status != NV_OK)
		return status;
	p->memory.limit = p->memory.size - 1;
	return memory_new(o, p->memory.size, NULL);
}

/* Finds room between the ranges below a device, from *start on, and advances *start. It gives up
 * after many occupied places. */
static bool find_room(struct nv_object *device, u64 *start, u64 bytes, u64 alignment)
{
	u32 tries;

	for (tries = 0; tries < 100; tries++) {
		struct rm_object *other;
		u64 next;

		if (*start >= ADDRESS_LIMIT)
			return false;
		*start = (*start + alignment - 1) & ~(alignment - 1);
		if (*start >= ADDRESS_LIMIT || bytes > ADDRESS_LIMIT - *start)
			return false;
		next = *start;
		for (other = device->rm.child; other; other = other->next) {
			struct nv_object *o = container_of(other, struct nv_object, rm);

			if (other->class == NV50_MEMORY_VIRTUAL && o->start < *start + bytes && *start < o->start + o->bytes)
				next = max(next, o->start + o->bytes);
		}
		if (next == *start)
			return true;
		cond_resched();
		*start = next;
	}
	return false;
}

/* Addresses are given out upwards; at the end the search starts over. */
static u64 choose_address(struct nv_object *device, u64 bytes, u64 alignment)
{
	u64 start = device->start;

	if (alignment < 1 << 21 || alignment > ADDRESS_LIMIT || alignment & (alignment - 1))
		alignment = 1 << 21;
	if (!find_room(device, &start, bytes, alignment)) {
		start = FIRST_ADDRESS;
		if (!find_room(device, &start, bytes, alignment))
			return 0;
	}
	device->start = start + bytes;
	return start;
}

static u32 make_virtual(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	struct nv_memory_allocation *m = &p->memory;
	u32 status;

	if (!(m->flags & NVOS32_ALLOC_FLAGS_VIRTUAL))
		return NV_ERR_INVALID_ARGUMENT;
	status = round_memory(m);
	if (status != NV_OK)
		return status;
	if (!(m->flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE)) {
		m->offset = choose_address(parent, m->size, m->alignment);
		if (!m->offset)
			return NV_ERR_NO_MEMORY;
	} else if (m->offset > U64_MAX - m->size) {
		return NV_ERR_INVALID_ARGUMENT;
	}
	m->limit = m->offset + m->size - 1;
	o->start = m->offset;
	o->bytes = m->size;
	return NV_OK;
}

static u32 make_range(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	if (!p->range.limit)	/* the whole of the address space */
		p->range.limit = ADDRESS_LIMIT - 1;
	if (p->range.offset > p->range.limit || p->range.limit == U64_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	o->start = p->range.offset;
	o->bytes = p->range.limit - p->range.offset + 1;
	return NV_OK;
}

static u32 make_vaspace(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	p->vaspace.vaSize = ADDRESS_LIMIT;
	p->vaspace.bigPageSize = 1 << 16;
	return NV_OK;
}

static u32 make_group(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	o->timeslice_us = DEFAULT_TIMESLICE_US;
	return NV_OK;
}

static u32 make_plain(struct nv_object *o, struct nv_object *parent, union nv_params *p)
{
	return NV_OK;
}

enum { UNDER_CLIENT = 1, UNDER_DEVICE = 2, UNDER_SUBDEVICE = 4, UNDER_ANY = 8 };

/* The known classes. The driver takes the size of the parameters from the class, and ignores what
 * the caller says. */
static const struct nv_class classes[] = {
	{ NV01_DEVICE_0, sizeof(struct nv0080_alloc), false, UNDER_CLIENT, false, make_device },
	{ NV20_SUBDEVICE_0, sizeof(struct nv2080_alloc), true, UNDER_DEVICE, false, make_subdevice },
	{ NV01_MEMORY_SYSTEM, sizeof(struct nv_memory_allocation), false, UNDER_DEVICE, true, make_system },
	{ NV01_MEMORY_LOCAL_USER, sizeof(struct nv_memory_allocation), false, UNDER_DEVICE | UNDER_SUBDEVICE, true, make_local },
	{ NV50_MEMORY_VIRTUAL, sizeof(struct nv_memory_allocation), false, UNDER_DEVICE, false, make_virtual },
	{ NV01_MEMORY_VIRTUAL, sizeof(struct nv_memory_virtual_allocation), false, UNDER_DEVICE, false, make_range },
	{ FERMI_VASPACE_A, sizeof(struct nv_vaspace), false, UNDER_DEVICE | UNDER_SUBDEVICE, true, make_vaspace },
	{ KEPLER_CHANNEL_GROUP_A, sizeof(struct nv_channel_group), false, UNDER_DEVICE, true, make_group },
	{ NV01_EVENT, sizeof(struct nv_event), false, UNDER_ANY, false, make_plain },
	{ NV01_EVENT_OS_EVENT, sizeof(struct nv_event), false, UNDER_ANY, false, make_plain },
};

/* Those of NVOS02, without parameters. */
static const struct nv_class host_classes[] = {
	{ NV01_MEMORY_SYSTEM, 0, false, UNDER_DEVICE, true, make_system },
	{ NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 0, false, UNDER_DEVICE, true, make_system },
};

static const struct nv_class *find(const struct nv_class *list, u32 count, u32 class)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (list[i].class == class)
			return &list[i];
	return NULL;
}

const struct nv_class *nv_host_class(u32 class)
{
	return find(host_classes, ARRAY_SIZE(host_classes), class);
}

const struct nv_class *nv_class_find(u32 class)
{
	return find(classes, ARRAY_SIZE(classes), class);
}

u32 nv_rm_classes(u32 *list, u32 max)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(classes) && i < max; i++)
		list[i] = classes[i].class;
	return ARRAY_SIZE(classes);
}

bool nv_class_may_be_under(const struct nv_class *class, const struct nv_object *parent)
{
	switch (parent->rm.class) {
	case NV01_ROOT_CLIENT:
		return class->under & (UNDER_CLIENT | UNDER_ANY);
	case NV01_DEVICE_0:
		return class->under & (UNDER_DEVICE | UNDER_ANY);
	case NV20_SUBDEVICE_0:
		return class->under & (UNDER_SUBDEVICE | UNDER_ANY);
	}
	return class->under & UNDER_ANY;
}
