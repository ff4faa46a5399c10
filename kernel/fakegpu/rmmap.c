// SPDX-License-Identifier: GPL-2.0-only
/* Memory that is mapped into ranges of a GPU's addresses. Only the bookkeeping exists: nothing ever
 * uses such an address. */
#include <linux/slab.h>

#include "nvidia.h"

struct nv_mapping {
	struct list_head in_range;	/* of the range, by address */
	struct list_head in_memory;
	struct nv_object *memory;
	u64 address, bytes;
};

static void forget(struct nv_mapping *m)
{
	list_del(&m->in_range);
	list_del(&m->in_memory);
	kfree(m);
	cond_resched();		/* an object may have as many as memory holds */
}

void nv_rm_unmap_all(struct nv_object *o)
{
	struct nv_mapping *m, *next;

	list_for_each_entry_safe(m, next, &o->mapped, in_range)
		forget(m);
	list_for_each_entry_safe(m, next, &o->ranges, in_memory)
		forget(m);
}

/* Client, device and range of a call. */
static u32 look_up(struct nv_file *f, u32 client, u32 device, u32 dma, struct nv_object **range)
{
	struct nv_object *d, *r;
	u32 status = nv_client(f, client, NV_ERR_INVALID_OBJECT_HANDLE);

	if (status != NV_OK)
		return status;
	d = nv_object(client, device);
	r = nv_object(client, dma);
	if (!d || !r)
		return NV_ERR_OBJECT_NOT_FOUND;
	if ((d->rm.class != NV01_DEVICE_0 && d->rm.class != NV20_SUBDEVICE_0) || !r->bytes)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	*range = r;
	return NV_OK;
}

/* Finds room in the range, at *address if fixed is set, and the mapping after which the new one
 * belongs. */
static u32 place(struct nv_object *range, bool fixed, u64 bytes, u64 *address, struct list_head **after)
{
	u64 end = range->start + range->bytes, at = fixed ? *address : range->start;
	struct nv_mapping *m;

	*after = &range->mapped;
	if (at < range->start || at > end || bytes > end - at)
		return fixed ? NV_ERR_INVALID_OFFSET : NV_ERR_NO_MEMORY;
	list_for_each_entry(m, &range->mapped, in_range) {
		if (at + bytes <= m->address)
			break;
		if (fixed && m->address + m->bytes > at)
			return NV_ERR_INVALID_ARGUMENT;
		if (!fixed)
			at = m->address + m->bytes;
		*after = &m->in_range;
	}
	if (bytes > end - at)
		return NV_ERR_NO_MEMORY;
	*address = at;
	return NV_OK;
}

static u32 map(struct nv_file *f, const struct nvos46 *call, u64 *address)
{
	struct nv_object *range, *memory;
	struct list_head *after;
	struct nv_mapping *m;
	u64 held;
	u32 status = look_up(f, call->hClient, call->hDevice, call->hDma, &range);

	if (status != NV_OK)
		return status;
	memory = nv_object(call->hClient, call->hMemory);
	if (!memory)
		return NV_ERR_OBJECT_NOT_FOUND;
	held = nv_rm_memory_bytes(memory);
	if (!held)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (!call->length || call->offset > held || call->length > held - call->offset)
		return NV_ERR_INVALID_LIMIT;
	status = place(range, call->flags & NVOS46_FLAGS_DMA_OFFSET_FIXED, call->length, address, &after);
	if (status != NV_OK)
		return status;
	m = kmalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	if (!m)
		return NV_ERR_NO_MEMORY;
	m->memory = memory;
	m->address = *address;
	m->bytes = call->length;
	list_add(&m->in_range, after);
	list_add(&m->in_memory, &memory->ranges);
	return NV_OK;
}

int nv_rm_map_dma(struct nv_file *f, void *arg, u32 size)
{
	struct nvos46 *call = arg;	/* as far as it goes, the longer one is the same up to flags */
	struct nvos46_580 *longer = arg;
	u64 *address = &call->dmaOffset;
	u32 *status = &call->status;

	if (size == sizeof(*longer)) {
		address = &longer->dmaOffset;
		status = &longer->status;
	} else if (size != sizeof(*call)) {
		return -EINVAL;
	}
	mutex_lock(&nv_rm_lock);
	*status = map(f, call, address);
	mutex_unlock(&nv_rm_lock);
	return 0;
}

/* size 0: the whole mapping. A part of a mapping cannot be unmapped. */
static u32 unmap(struct nv_file *f, const struct nvos47 *call, u64 size)
{
	struct nv_object *range, *memory;
	struct nv_mapping *m;
	u32 status = look_up(f, call->hClient, call->hDevice, call->hDma, &range);

	if (status != NV_OK)
		return status;
	memory = nv_object(call->hClient, call->hMemory);
	list_for_each_entry(m, &range->mapped, in_range) {
		if (m->address != call->dmaOffset || m->memory != memory)
			continue;
		if (size && size != m->bytes)
			return NV_ERR_NOT_SUPPORTED;
		forget(m);
		return NV_OK;
	}
	return NV_ERR_OBJECT_NOT_FOUND;
}

int nv_rm_unmap_dma(struct nv_file *f, void *arg, u32 size)
{
	struct nvos47 *call = arg;
	struct nvos47_535 *shorter = arg;
	u32 status;

	if (size != sizeof(*call) && size != sizeof(*shorter))
		return -EINVAL;
	mutex_lock(&nv_rm_lock);
	status = unmap(f, call, size == sizeof(*call) ? call->size : 0);
	mutex_unlock(&nv_rm_lock);
	if (size == sizeof(*call))
		call->status = status;
	else
		shorter->status = status;
	return 0;
}
