// SPDX-License-Identifier: GPL-2.0-only
/*
 * The resource manager of the personality: clients, the objects below them, and the memory these hold. It answers as NVIDIA's does,
 * down to the status for what is wrong, wherever a program without a GPU can tell; see src/nvidia/src/kernel/rmapi and
 * src/nvidia/src/libraries/resserv in NVIDIA's open kernel modules.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"

/* Where handles start that the driver chooses. */
#define CLIENT_BASE 0xc1d00000u
#define OBJECT_BASE 0xcaf00000u

#define OBJECTS_MAX 1000000	/* of all clients together: more is no program but a leak */

#define DEFAULT_TIMESLICE_US 2000	/* what the driver gives a channel group on chips since Turing */

/* Where ranges of addresses start that the driver chooses. */
#define FIRST_ADDRESS 0x200000000ull
#define ADDRESS_LIMIT (1ull << 47)

/* Memory, which its object and the duplicates of that share. */
struct nv_memory {
	u32 holders;
	u64 bytes;
	struct nv_gpu *gpu;	/* NULL: the host's */
};

DEFINE_MUTEX(nv_rm_lock);
static struct rm_objects objects;
static u32 next_client = CLIENT_BASE, next_object = OBJECT_BASE;

static struct nv_object *to_object(struct rm_object *o)
{
	return o ? container_of(o, struct nv_object, rm) : NULL;
}

struct nv_object *nv_object(u32 client, u32 handle)
{
	return to_object(rm_find(&objects, client, handle));
}

u32 nv_client(struct nv_file *f, u32 client, u32 error)
{
	struct nv_object *o = nv_object(client, client);
	struct file *ctl = smp_load_acquire(&f->ctl);
	struct nv_file *owner = ctl ? ctl->private_data : f;

	if (!o)
		return error;
	return o->file == owner ? NV_OK : NV_ERR_INVALID_CLIENT;
}

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

static void memory_put(struct nv_memory *m)
{
	if (!m || --m->holders)
		return;
	if (m->gpu)
		m->gpu->used -= m->bytes;
	kfree(m);
}

u64 nv_rm_memory_bytes(const struct nv_object *o)
{
	return o->memory ? o->memory->bytes : 0;
}

/* ---- Objects ----------------------------------------------------------------------------------------------------- */

static struct nv_object *object_new(void)
{
	struct nv_object *o = kzalloc(sizeof(*o), GFP_KERNEL_ACCOUNT);

	if (!o)
		return NULL;
	INIT_LIST_HEAD(&o->in_file);
	INIT_LIST_HEAD(&o->ranges);
	INIT_LIST_HEAD(&o->mapped);
	return o;
}

static void object_drop(struct nv_object *o)
{
	nv_rm_unmap_all(o);
	memory_put(o->memory);
	list_del(&o->in_file);
	kfree(o);
}

static void release(struct rm_object *rm, void *context)
{
	struct nv_object *o = to_object(rm);

	if (rm->class == NV01_DEVICE_0)
		o->gpu->devices--;
	object_drop(o);
}

/* Puts the object below parent under a handle, which is chosen if it is 0. */
static u32 object_add(struct nv_object *o, struct nv_object *parent, u32 client, u32 *handle, u32 class)
{
	u32 number = *handle;
	int err;

	if (number == client || objects.table.count >= OBJECTS_MAX)
		return number == client ? NV_ERR_INVALID_OBJECT_HANDLE : NV_ERR_INSUFFICIENT_RESOURCES;
	if (!number)
		number = rm_unused(&objects, client, &next_object);
	if (!number)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	err = rm_add(&objects, &o->rm, &parent->rm, client, number, class);
	if (err)
		return err == -EEXIST ? NV_ERR_INSERT_DUPLICATE_NAME : NV_ERR_NO_MEMORY;
	*handle = number;
	return NV_OK;
}

static u32 client_new(struct nv_file *f, u32 *handle)
{
	struct nv_object *o;
	u32 number = *handle, status = NV_ERR_INSUFFICIENT_RESOURCES;
	int err;

	if (objects.table.count >= OBJECTS_MAX)
		return status;
	if (!number)
		number = rm_unused(&objects, 0, &next_client);
	o = number ? object_new() : NULL;
	if (!o)
		return status;
	err = rm_add(&objects, &o->rm, NULL, number, number, NV01_ROOT_CLIENT);
	if (err) {
		kfree(o);
		return err == -EEXIST ? NV_ERR_INSERT_DUPLICATE_NAME : status;
	}
	o->file = f;
	o->tgid = current->tgid;
	list_add(&o->in_file, &f->clients);
	*handle = number;
	return NV_OK;
}

/* ---- RM_ALLOC ---------------------------------------------------------------------------------------------------- */

union params {
	u32 client;
	struct nv0080_alloc device;
	struct nv2080_alloc subdevice;
	struct nv_memory_allocation memory;
	struct nv_memory_virtual_allocation range;
	struct nv_vaspace vaspace;
	struct nv_channel_group group;
	struct nv_event event;
};

static u32 make_device(struct nv_object *o, struct nv_object *parent, union params *p)
{
	if (p->device.deviceId >= GPUS_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->device.deviceId >= nv_gpu_count)
		return NV_ERR_INVALID_STATE;
	o->gpu = &nv_gpus[p->device.deviceId];
	o->start = FIRST_ADDRESS;
	return NV_OK;
}

static u32 make_subdevice(struct nv_object *o, struct nv_object *parent, union params *p)
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

static u32 make_local(struct nv_object *o, struct nv_object *parent, union params *p)
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

static u32 make_system(struct nv_object *o, struct nv_object *parent, union params *p)
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

/* Where the ranges below a device leave room from *start on, which moves on. The search gives up where many are in the way. */
static bool find_room(struct nv_object *device, u64 *start, u64 bytes, u64 alignment)
{
	u32 tries;

	for (tries = 0; tries < 100; tries++) {
		struct rm_object *other;
		u64 next;

		*start = (*start + alignment - 1) & ~(alignment - 1);
		if (*start >= ADDRESS_LIMIT || bytes > ADDRESS_LIMIT - *start)
			return false;
		next = *start;
		for (other = device->rm.child; other; other = other->next) {
			struct nv_object *o = to_object(other);

			if (other->class == NV50_MEMORY_VIRTUAL && o->start < *start + bytes && *start < o->start + o->bytes)
				next = max(next, o->start + o->bytes);
		}
		if (next == *start)
			return true;
		*start = next;
	}
	return false;
}

/* Addresses are given out upwards, and from the start again at their end. */
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

static u32 make_virtual(struct nv_object *o, struct nv_object *parent, union params *p)
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

static u32 make_range(struct nv_object *o, struct nv_object *parent, union params *p)
{
	if (!p->range.limit)	/* the whole of the address space */
		p->range.limit = ADDRESS_LIMIT - 1;
	if (p->range.offset > p->range.limit || p->range.limit == U64_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	o->start = p->range.offset;
	o->bytes = p->range.limit - p->range.offset + 1;
	return NV_OK;
}

static u32 make_vaspace(struct nv_object *o, struct nv_object *parent, union params *p)
{
	p->vaspace.vaSize = ADDRESS_LIMIT;
	p->vaspace.bigPageSize = 1 << 16;
	return NV_OK;
}

static u32 make_group(struct nv_object *o, struct nv_object *parent, union params *p)
{
	o->timeslice_us = DEFAULT_TIMESLICE_US;
	return NV_OK;
}

static u32 make_plain(struct nv_object *o, struct nv_object *parent, union params *p)
{
	return NV_OK;
}

enum { UNDER_CLIENT = 1, UNDER_DEVICE = 2, UNDER_SUBDEVICE = 4, UNDER_ANY = 8 };

/* The classes that there are. The driver takes the size of the parameters from the class, whatever the caller says. */
static const struct nv_class {
	u32 class, bytes;
	bool optional;		/* the parameters */
	u8 under;
	bool shared;		/* may be duplicated */
	u32 (*make)(struct nv_object *o, struct nv_object *parent, union params *p);
} classes[] = {
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

static const struct nv_class *find_class(u32 class)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(classes); i++)
		if (classes[i].class == class)
			return &classes[i];
	return NULL;
}

u32 nv_rm_classes(u32 *list, u32 max)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(classes) && i < max; i++)
		list[i] = classes[i].class;
	return ARRAY_SIZE(classes);
}

static bool may_be_under(const struct nv_class *class, const struct nv_object *parent)
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

/* Makes an object of a class with parameters that have been copied; they come back changed. */
static u32 make(struct nv_file *f, const struct nv_class *class, u32 client, u32 parent, u32 *handle, union params *p)
{
	struct nv_object *o, *above;
	u32 status;

	status = nv_client(f, client, NV_ERR_INVALID_OBJECT_HANDLE);
	if (status != NV_OK)
		return status;
	above = nv_object(client, parent);
	if (!above)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!may_be_under(class, above))
		return NV_ERR_INVALID_OBJECT_PARENT;
	o = object_new();
	if (!o)
		return NV_ERR_NO_MEMORY;
	o->gpu = above->gpu;
	status = class->make(o, above, p);
	if (status == NV_OK)
		status = object_add(o, above, client, handle, class->class);
	if (status != NV_OK)
		object_drop(o);
	else if (class->class == NV01_DEVICE_0)
		o->gpu->devices++;
	return status;
}

static u32 alloc_client(struct nv_file *f, u32 *handle, u64 user)
{
	u32 status = client_new(f, handle);

	if (status == NV_OK && user && put_user(*handle, (u32 __user *)u64_to_user_ptr(user))) {
		rm_remove(&objects, rm_find(&objects, *handle, *handle), release, NULL);
		return NV_ERR_INVALID_ADDRESS;
	}
	return status;
}

/* hRoot is a client's number if it is one that is to be made. */
static u32 alloc_object(struct nv_file *f, u32 client, u32 parent, u32 *handle, u32 number, u64 user)
{
	const struct nv_class *class = find_class(number);
	void __user *from = u64_to_user_ptr(user);
	union params params = {};
	u32 status;

	if (number == NV01_ROOT || number == NV01_ROOT_NON_PRIV || number == NV01_ROOT_CLIENT) {
		*handle = client;
		return alloc_client(f, handle, user);
	}
	if (!class)
		return NV_ERR_INVALID_CLASS;
	if (!user && !class->optional)
		return NV_ERR_INVALID_ARGUMENT;
	if (user && copy_from_user(&params, from, class->bytes))
		return NV_ERR_INVALID_ADDRESS;
	status = make(f, class, client, parent, handle, &params);
	if (status == NV_OK && user && copy_to_user(from, &params, class->bytes)) {
		rm_remove(&objects, rm_find(&objects, client, *handle), release, NULL);
		return NV_ERR_INVALID_ADDRESS;
	}
	return status;
}

static u32 alloc(struct nv_file *f, u32 client, u32 parent, u32 *handle, u32 class, u64 user)
{
	u32 status = alloc_object(f, client, parent, handle, class, user);

	pr_debug("alloc of class %#x: %#x\n", class, status);
	return status;
}

/* ---- The other calls --------------------------------------------------------------------------------------------- */

/* Freeing what is not there is no error, as in the driver. */
static u32 free_object(struct nv_file *f, u32 client, u32 handle)
{
	struct rm_object *o;
	u32 status = nv_client(f, client, NV_ERR_INVALID_OBJECT_HANDLE);

	if (status != NV_OK)
		return status;
	o = rm_find(&objects, client, handle);
	if (o)
		rm_remove(&objects, o, release, NULL);
	return NV_OK;
}

/* A client may take from itself, and from the other clients of the process that made it. */
static u32 dup_object(struct nv_file *f, struct nvos55 *call)
{
	struct nv_object *from, *parent, *o;
	const struct nv_class *class;
	u32 status;

	status = nv_client(f, call->hClient, NV_ERR_INVALID_OBJECT_HANDLE);
	if (status != NV_OK)
		return status;
	if (!nv_object(call->hClientSrc, call->hClientSrc))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	from = nv_object(call->hClientSrc, call->hObjectSrc);
	parent = nv_object(call->hClient, call->hParent);
	if (!from || !parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	class = find_class(from->rm.class);
	if (!class || !class->shared)
		return NV_ERR_INVALID_ARGUMENT;
	if (!may_be_under(class, parent))
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (nv_object(call->hClientSrc, call->hClientSrc)->tgid != nv_object(call->hClient, call->hClient)->tgid)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	o = object_new();
	if (!o)
		return NV_ERR_NO_MEMORY;
	o->gpu = parent->gpu;
	o->timeslice_us = from->timeslice_us;
	o->memory = from->memory;
	status = object_add(o, parent, call->hClient, &call->hObject, class->class);
	if (status == NV_OK && o->memory)
		o->memory->holders++;
	if (status != NV_OK)
		kfree(o);
	return status;
}

/* NVOS02 makes memory of the host: NV01_MEMORY_SYSTEM, or NV01_MEMORY_SYSTEM_OS_DESCRIPTOR of what the caller has already. */
static u32 alloc_memory(struct nv_file *f, struct nvos02 *call)
{
	static const struct nv_class system = { NV01_MEMORY_SYSTEM, 0, false, UNDER_DEVICE, true, make_system };
	static const struct nv_class descriptor = { NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 0, false, UNDER_DEVICE, true, make_system };
	union params p = { .memory = { .attr = NVOS32_ATTR_LOCATION_PCI << 25, .size = call->limit + 1 } };
	u32 handle = call->hObjectNew;	/* a chosen one is not told */

	if (call->hClass != system.class && call->hClass != descriptor.class)
		return NV_ERR_INVALID_CLASS;
	if (!p.memory.size)
		return NV_ERR_INVALID_LIMIT;
	return make(f, call->hClass == system.class ? &system : &descriptor, call->hRoot, call->hObjectParent, &handle, &p);
}

static u32 heap_alloc(struct nv_file *f, struct nvos32 *call)
{
	typeof(call->data.AllocSize) *a = &call->data.AllocSize;
	union params p = { .memory = {
		.owner = a->owner, .type = a->type, .flags = a->flags, .width = a->width, .height = a->height, .attr = a->attr, .attr2 = a->attr2,
		.size = a->size, .alignment = a->alignment, .offset = a->offset, .hVASpace = call->hVASpace,
	} };
	u32 class = NV01_MEMORY_SYSTEM, status;

	if (a->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		class = NV50_MEMORY_VIRTUAL;
	else if (NVOS32_ATTR_LOCATION(a->attr) == NVOS32_ATTR_LOCATION_VIDMEM)
		class = NV01_MEMORY_LOCAL_USER;
	if (!(a->flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
		a->hMemory = 0;
	status = make(f, find_class(class), call->hRoot, call->hObjectParent, &a->hMemory, &p);
	a->size = p.memory.size;
	a->offset = p.memory.offset;
	a->limit = p.memory.limit;
	return status;
}

static u32 heap(struct nv_file *f, struct nvos32 *call)
{
	call->total = 0;
	call->free = 0;
	switch (call->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		return heap_alloc(f, call);
	case NVOS32_FUNCTION_FREE:
		if (!(call->data.Free.flags & NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED))
			return NV_ERR_INVALID_ARGUMENT;
		return free_object(f, call->hRoot, call->data.Free.hMemory);
	}
	return NV_ERR_NOT_SUPPORTED;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Calls that change objects hold the lock from one end to the other: none of them is so frequent that finer locks would pay. */
#define LOCKED(call) ({ u32 status_; mutex_lock(&nv_rm_lock); status_ = (call); mutex_unlock(&nv_rm_lock); status_; })

/* Whether the size is right and the descriptor of the right kind: -EINVAL otherwise. */
static bool fits(const struct nv_file *f, bool control, u32 size, u32 want)
{
	return size == want && control == !f->gpu;
}

static int rm_alloc_call(struct nv_file *f, void *arg, u32 size)
{
	struct nvos21 *old = arg;
	struct nvos64 *new = arg;
	bool event = size >= sizeof(*old) && (old->hClass == NV01_EVENT || old->hClass == NV01_EVENT_OS_EVENT);

	if ((size != sizeof(*old) && size != sizeof(*new)) || (f->gpu && !event))
		return -EINVAL;
	if (size == sizeof(*old))
		old->status = LOCKED(alloc(f, old->hRoot, old->hObjectParent, &old->hObjectNew, old->hClass, old->pAllocParms));
	else if (new->flags & NVOS64_FLAGS_FINN_SERIALIZED)
		new->status = NV_ERR_NOT_SUPPORTED;
	else
		new->status = LOCKED(alloc(f, new->hRoot, new->hObjectParent, &new->hObjectNew, new->hClass, new->pAllocParms));
	return 0;
}

int nv_rm_call(struct nv_file *f, u32 escape, void *arg, u32 size)
{
	switch (escape) {
	case NV_ESC_RM_ALLOC:
		return rm_alloc_call(f, arg, size);
	case NV_ESC_RM_FREE: {
		struct nvos00 *call = arg;

		if (!fits(f, true, size, sizeof(*call)))
			return -EINVAL;
		call->status = LOCKED(free_object(f, call->hRoot, call->hObjectOld));
		return 0;
	}
	case NV_ESC_RM_CONTROL: {
		struct nvos54 *call = arg;

		if (!fits(f, true, size, sizeof(*call)))
			return -EINVAL;
		call->status = nv_rm_control(f, call);
		return 0;
	}
	case NV_ESC_RM_DUP_OBJECT: {
		struct nvos55 *call = arg;

		if (!fits(f, true, size, sizeof(*call)))
			return -EINVAL;
		call->status = LOCKED(dup_object(f, call));
		return 0;
	}
	case NV_ESC_RM_ALLOC_MEMORY: {
		struct nvos02_fd *call = arg;

		if (!fits(f, false, size, sizeof(*call)))
			return -EINVAL;
		call->params.status = LOCKED(alloc_memory(f, &call->params));
		return 0;
	}
	case NV_ESC_RM_VID_HEAP_CONTROL: {
		struct nvos32 *call = arg;

		if (!fits(f, true, size, sizeof(*call)))
			return -EINVAL;
		call->status = LOCKED(heap(f, call));
		return 0;
	}
	case NV_ESC_RM_MAP_MEMORY_DMA:
		return f->gpu ? -EINVAL : nv_rm_map_dma(f, arg, size);
	case NV_ESC_RM_UNMAP_MEMORY_DMA:
		return f->gpu ? -EINVAL : nv_rm_unmap_dma(f, arg, size);
	}
	return -EINVAL;
}

void nv_rm_close(struct nv_file *f)
{
	mutex_lock(&nv_rm_lock);
	while (!list_empty(&f->clients))
		rm_remove(&objects, &list_first_entry(&f->clients, struct nv_object, in_file)->rm, release, NULL);
	mutex_unlock(&nv_rm_lock);
}

bool nv_rm_exit(void)
{
	bool leaked = objects.table.count;
	u32 i;

	if (leaked)
		pr_err("LEAK: %llu objects of the resource manager were left\n", objects.table.count);
	for (i = 0; i < nv_gpu_count; i++) {
		if (!nv_gpus[i].used && !nv_gpus[i].devices)
			continue;
		leaked = true;
		pr_err("LEAK: %llu bytes and %u devices of GPU %u were left\n", nv_gpus[i].used, nv_gpus[i].devices, i);
	}
	rm_clear(&objects, release, NULL);
	return leaked;
}
