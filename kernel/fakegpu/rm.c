// SPDX-License-Identifier: GPL-2.0-only
/* The resource manager of the personality: clients, the objects below them, and the calls that make and free
 * objects. It answers as NVIDIA's does, down to the status of each error, wherever a program without a GPU can see
 * the difference; see src/nvidia/src/kernel/rmapi and src/nvidia/src/libraries/resserv in NVIDIA's open kernel
 * modules. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvidia.h"

/* The first handle that the driver chooses. */
#define CLIENT_BASE 0xc1d00000u
#define OBJECT_BASE 0xcaf00000u

#define OBJECTS_MAX 1000000	/* for all clients together; more is a leak, not a real program */

/* One lock for all objects: no call is frequent enough to need finer locks. It is never held during
 * a copy from or to the caller, since a page fault there can take arbitrarily long. */
DEFINE_MUTEX(nv_rm_lock);
#define LOCKED(call) ({ u32 status_; mutex_lock(&nv_rm_lock); status_ = (call); mutex_unlock(&nv_rm_lock); status_; })

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
	nv_memory_put(o->memory);
	list_del(&o->in_file);
	kfree(o);
	cond_resched();		/* a client may have a million */
}

static void release(struct rm_object *rm, void *context)
{
	struct nv_object *o = to_object(rm);

	if (rm->class == NV01_DEVICE_0)
		o->gpu->devices--;
	object_drop(o);
}

/* Puts the object below parent, under the given handle or, if that is 0, under a free one. */
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

/* Makes an object of a class. The parameters are a copy, which it changes for the caller. The
 * caller holds the lock. */
static u32 make(struct nv_file *f, const struct nv_class *class, u32 client, u32 parent, u32 *handle, union nv_params *p)
{
	struct nv_object *o, *above;
	u32 status;

	status = nv_client(f, client, NV_ERR_INVALID_OBJECT_HANDLE);
	if (status != NV_OK)
		return status;
	above = nv_object(client, parent);
	if (!above)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!nv_class_may_be_under(class, above))
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

/* Freeing an object that does not exist is no error, as in the driver. */
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

/* The caller cannot be told of the new object, so it is freed. A thread that guessed its handle
 * loses it. */
static u32 take_back(struct nv_file *f, u32 client, u32 handle)
{
	LOCKED(free_object(f, client, handle));
	return NV_ERR_INVALID_ADDRESS;
}

static u32 alloc_client(struct nv_file *f, u32 *handle, u64 user)
{
	u32 status = LOCKED(client_new(f, handle));

	if (status == NV_OK && user && put_user(*handle, (u32 __user *)u64_to_user_ptr(user)))
		return take_back(f, *handle, *handle);
	return status;
}

/* If the object is a client, hRoot is its number. */
static u32 alloc_object(struct nv_file *f, u32 client, u32 parent, u32 *handle, u32 number, u64 user)
{
	const struct nv_class *class = nv_class_find(number);
	void __user *from = u64_to_user_ptr(user);
	union nv_params params = {};
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
	status = LOCKED(make(f, class, client, parent, handle, &params));
	if (status == NV_OK && user && copy_to_user(from, &params, class->bytes))
		return take_back(f, client, *handle);
	return status;
}

static u32 alloc(struct nv_file *f, u32 client, u32 parent, u32 *handle, u32 class, u64 user)
{
	u32 status = alloc_object(f, client, parent, handle, class, user);

	pr_debug("alloc of class %#x: %#x\n", class, status);
	return status;
}

/* ---- The other calls --------------------------------------------------------------------------------------------- */

/* A client may duplicate its own objects and those of other clients that the same process made. */
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
	class = nv_class_find(from->rm.class) ?: nv_host_class(from->rm.class);
	if (!class || !class->shared)
		return NV_ERR_INVALID_ARGUMENT;
	if (!nv_class_may_be_under(class, parent))
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (nv_object(call->hClientSrc, call->hClientSrc)->tgid != nv_object(call->hClient, call->hClient)->tgid)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	o = object_new();
	if (!o)
		return NV_ERR_NO_MEMORY;
	o->gpu = parent->gpu;
	o->timeslice_us = from->timeslice_us;
	o->memory = nv_memory_share(from->memory);
	status = object_add(o, parent, call->hClient, &call->hObject, class->class);
	if (status != NV_OK)
		object_drop(o);
	return status;
}

/* NVOS02 allocates host memory (NV01_MEMORY_SYSTEM), or makes an object for memory that the caller has
 * (NV01_MEMORY_SYSTEM_OS_DESCRIPTOR). */
static u32 alloc_memory(struct nv_file *f, struct nvos02 *call)
{
	const struct nv_class *class = nv_host_class(call->hClass);
	union nv_params p = { .memory = { .attr = NVOS32_ATTR_LOCATION_PCI << 25, .size = call->limit + 1 } };
	u32 handle = call->hObjectNew;	/* the caller must choose it: a handle chosen here could not be returned */

	if (!class)
		return NV_ERR_INVALID_CLASS;
	if (!p.memory.size)
		return NV_ERR_INVALID_LIMIT;
	return make(f, class, call->hRoot, call->hObjectParent, &handle, &p);
}

static u32 heap_alloc(struct nv_file *f, struct nvos32 *call)
{
	typeof(call->data.AllocSize) *a = &call->data.AllocSize;
	union nv_params p = { .memory = {
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
	status = make(f, nv_class_find(class), call->hRoot, call->hObjectParent, &a->hMemory, &p);
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

/* Returns -EINVAL unless the size is right and the descriptor is of the right kind. */
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
	if (old->hClass == NV01_ROOT || old->hClass == NV01_ROOT_NON_PRIV)
		old->hClass = NV01_ROOT_CLIENT;		/* as in the driver: all clients of user space have that class */
	if (size == sizeof(*old))
		old->status = alloc(f, old->hRoot, old->hObjectParent, &old->hObjectNew, old->hClass, old->pAllocParms);
	else if (new->flags & NVOS64_FLAGS_FINN_SERIALIZED)
		new->status = NV_ERR_NOT_SUPPORTED;
	else
		new->status = alloc(f, new->hRoot, new->hObjectParent, &new->hObjectNew, new->hClass, new->pAllocParms);
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
