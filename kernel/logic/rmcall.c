// SPDX-License-Identifier: GPL-2.0-only
#include "rmcall.h"

/* The calls that the module looks at. Sizes, offsets and statements about the driver are true of
 * NVIDIA's open kernel modules 535.43, 550.40, 570.86, 580.65 and 595.45 alike. */
static const struct layout {
	u8 escape, size;
	u8 status, object;	/* offsets; object 0: none, or it depends */
	u8 kind;
} layouts[] = {
	{ NV_ESC_RM_ALLOC_MEMORY, sizeof(struct nvos02_fd), offsetof(struct nvos02, status), offsetof(struct nvos02, hObjectNew), RM_ALLOC },
	{ NV_ESC_RM_ALLOC_OBJECT, sizeof(struct nvos05), offsetof(struct nvos05, status), offsetof(struct nvos05, hObjectNew), RM_ALLOC },
	{ NV_ESC_RM_FREE, sizeof(struct nvos00), offsetof(struct nvos00, status), 0, RM_FREE },
	{ NV_ESC_RM_CONTROL, sizeof(struct nvos54), offsetof(struct nvos54, status), 0, RM_CONTROL },
	{ NV_ESC_RM_ALLOC, sizeof(struct nvos21), offsetof(struct nvos21, status), offsetof(struct nvos21, hObjectNew), RM_ALLOC },
	{ NV_ESC_RM_ALLOC, sizeof(struct nvos64), offsetof(struct nvos64, status), offsetof(struct nvos64, hObjectNew), RM_ALLOC },
	{ NV_ESC_RM_DUP_OBJECT, sizeof(struct nvos55), offsetof(struct nvos55, status), offsetof(struct nvos55, hObject), RM_DUP },
	{ NV_ESC_RM_VID_HEAP_CONTROL, sizeof(struct nvos32), offsetof(struct nvos32, status), 0, RM_OTHER },
};

static const struct layout *layout_of(u32 escape, u32 size, bool *known)
{
	u32 i;

	*known = false;
	for (i = 0; i < ARRAY_SIZE(layouts); i++) {
		if (layouts[i].escape != escape)
			continue;
		*known = true;
		if (layouts[i].size == size)
			return &layouts[i];
	}
	return NULL;
}

static u32 get32(const void *from, size_t offset)
{
	u32 value;

	memcpy(&value, (const u8 *)from + offset, sizeof(value));
	return value;
}

static u64 get64(const void *from, size_t offset)
{
	u64 value;

	memcpy(&value, (const u8 *)from + offset, sizeof(value));
	return value;
}

#define GET32(from, type, member) get32(from, offsetof(struct type, member))
#define GET64(from, type, member) get64(from, offsetof(struct type, member))

bool rm_size_valid(u32 escape, u32 size)
{
	bool known;

	if (escape == NV_ESC_IOCTL_XFER_CMD)
		return size == sizeof(struct nv_xfer);
	return layout_of(escape, size, &known) || !known;
}

bool rm_interesting(u32 escape)
{
	bool known;

	layout_of(escape, 0, &known);
	return known;
}

/* limit + 1 bytes; the driver refuses the limit that has no such number. */
static u64 limit_bytes(u64 limit)
{
	return limit == U64_MAX ? U64_MAX : limit + 1;
}

/* The driver refuses a class of host memory with attributes that place it on the GPU, and the
 * reverse. So the attributes decide here, and the class only where they leave it open. */
enum rm_memory rm_memory_of(u32 class, u32 attr, u32 flags)
{
	switch (class) {
	case NV01_MEMORY_LOCAL_USER:
	case NV01_MEMORY_SYSTEM:
		if (flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
			return RM_MEMORY_VIRTUAL;
		if (NVOS32_ATTR_LOCATION(attr) == NVOS32_ATTR_LOCATION_VIDMEM)
			return RM_MEMORY_DEVICE;
		if (NVOS32_ATTR_LOCATION(attr) == NVOS32_ATTR_LOCATION_PCI)
			return RM_MEMORY_SYSTEM;
		return class == NV01_MEMORY_SYSTEM ? RM_MEMORY_SYSTEM : RM_MEMORY_DEVICE;
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
	case NV01_MEMORY_DEVICELESS:
		return RM_MEMORY_SYSTEM;
	case NV01_MEMORY_VIRTUAL:
	case NV50_MEMORY_VIRTUAL:
		return RM_MEMORY_VIRTUAL;
	default:
		/* These include views of memory that exists already: NV01_MEMORY_LOCAL_PRIVILEGED (registers),
		 * _LOCAL_PHYSICAL, lists, imports. */
		return RM_MEMORY_NONE;
	}
}

/* How many bytes of a class's parameters the module needs. */
static u32 params_wanted(u32 class)
{
	switch (class) {
	case NV01_MEMORY_LOCAL_USER:
	case NV01_MEMORY_SYSTEM:
	case NV01_MEMORY_DEVICELESS:
	case NV50_MEMORY_VIRTUAL:
		return offsetof(struct nv_memory_allocation, alignment);
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		return offsetof(struct nv_os_desc_memory_allocation, descriptorType);
	case NV01_MEMORY_VIRTUAL:
		return offsetof(struct nv_memory_virtual_allocation, hVASpace);
	case NV01_DEVICE_0:
		return offsetof(struct nv0080_alloc, hClientShare);
	default:
		return 0;
	}
}

u32 rm_params_whole(u32 class)
{
	switch (params_wanted(class)) {
	case offsetof(struct nv_memory_allocation, alignment):
		return sizeof(struct nv_memory_allocation);
	case offsetof(struct nv_os_desc_memory_allocation, descriptorType):
		return sizeof(struct nv_os_desc_memory_allocation);
	case offsetof(struct nv_memory_virtual_allocation, hVASpace):
		return sizeof(struct nv_memory_virtual_allocation);
	case offsetof(struct nv0080_alloc, hClientShare):
		return sizeof(struct nv0080_alloc);
	default:
		return 0;
	}
}

/* The values before the parameters are read. They stay if the parameters cannot be read. */
static void assume(struct rm_call *call)
{
	call->memory = rm_memory_of(call->code, NVOS32_ATTR_LOCATION_ANY << 25, 0);
	if (call->memory != RM_MEMORY_NONE)
		call->bytes = U64_MAX;
	if (call->code == NV01_DEVICE_0)
		call->device = U32_MAX;
}

static void decode_alloc(const void *arg, u32 size, struct rm_call *call)
{
	call->client = GET32(arg, nvos21, hRoot);
	call->parent = GET32(arg, nvos21, hObjectParent);
	call->object = GET32(arg, nvos21, hObjectNew);
	call->code = GET32(arg, nvos21, hClass);
	if (call->escape == NV_ESC_RM_ALLOC_OBJECT)
		return;		/* without parameters the driver takes the first device, and makes no memory */
	call->params.address = GET64(arg, nvos21, pAllocParms);
	if (size == sizeof(struct nvos64))
		call->serialized = GET32(arg, nvos64, flags) & NVOS64_FLAGS_FINN_SERIALIZED;
	if (!call->params.address)
		call->params.bytes = 0;
	else if (!call->serialized)
		call->params.bytes = params_wanted(call->code);
	if (call->params.address || call->code != NV01_DEVICE_0)
		assume(call);
}

/* The driver allocates no GPU memory in this way: NV01_MEMORY_LOCAL_USER is here a view of all memory, or a handle
 * without memory. */
static void decode_alloc_memory(const void *arg, struct rm_call *call)
{
	call->client = GET32(arg, nvos02, hRoot);
	call->parent = GET32(arg, nvos02, hObjectParent);
	call->object = GET32(arg, nvos02, hObjectNew);
	call->code = GET32(arg, nvos02, hClass);
	if (call->code == NV01_MEMORY_SYSTEM || call->code == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR) {
		call->memory = RM_MEMORY_SYSTEM;
		call->bytes = limit_bytes(GET64(arg, nvos02, limit));
	} else if (call->code == NV01_MEMORY_VIRTUAL) {
		call->memory = RM_MEMORY_VIRTUAL;
	}
}

/* The class of the object that the driver makes for an nvos32. */
static u32 heap_class(u32 attr, u32 flags)
{
	if (flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV50_MEMORY_VIRTUAL;
	return NVOS32_ATTR_LOCATION(attr) == NVOS32_ATTR_LOCATION_VIDMEM ? NV01_MEMORY_LOCAL_USER : NV01_MEMORY_SYSTEM;
}

static void decode_heap_alloc(struct rm_call *call, u32 object, u32 flags, u32 attr, u64 bytes)
{
	call->kind = RM_ALLOC;
	call->object = flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED ? object : 0;
	call->code = heap_class(attr, flags);
	call->memory = rm_memory_of(call->code, attr, flags);
	call->bytes = bytes;
}

static void decode_heap(const void *arg, struct rm_call *call)
{
	u32 flags, height, pitch;

	call->client = GET32(arg, nvos32, hRoot);
	call->parent = GET32(arg, nvos32, hObjectParent);
	switch (GET32(arg, nvos32, function)) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		decode_heap_alloc(call, GET32(arg, nvos32, data.AllocSize.hMemory), GET32(arg, nvos32, data.AllocSize.flags),
				  GET32(arg, nvos32, data.AllocSize.attr), GET64(arg, nvos32, data.AllocSize.size));
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		decode_heap_alloc(call, GET32(arg, nvos32, data.AllocSizeRange.hMemory), GET32(arg, nvos32, data.AllocSizeRange.flags),
				  GET32(arg, nvos32, data.AllocSizeRange.attr), GET64(arg, nvos32, data.AllocSizeRange.size));
		break;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		height = GET32(arg, nvos32, data.AllocTiledPitchHeight.height);
		pitch = GET32(arg, nvos32, data.AllocTiledPitchHeight.pitch);
		/* With a negative pitch the driver's product wraps around, so the size is not known. */
		decode_heap_alloc(call, GET32(arg, nvos32, data.AllocTiledPitchHeight.hMemory),
				  GET32(arg, nvos32, data.AllocTiledPitchHeight.flags), GET32(arg, nvos32, data.AllocTiledPitchHeight.attr),
				  pitch >> 31 ? U64_MAX : (u64)height * pitch);
		break;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		flags = GET32(arg, nvos32, data.AllocOsDesc.flags);
		decode_heap_alloc(call, GET32(arg, nvos32, data.AllocOsDesc.hMemory), flags, GET32(arg, nvos32, data.AllocOsDesc.attr),
				  limit_bytes(GET64(arg, nvos32, data.AllocOsDesc.limit)));
		call->code = NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
		call->memory = RM_MEMORY_SYSTEM;
		break;
	case NVOS32_FUNCTION_HW_ALLOC:
		flags = GET32(arg, nvos32, data.HwAlloc.flags);
		call->kind = RM_ALLOC;
		call->object = flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED ? GET32(arg, nvos32, data.HwAlloc.hMemory) : 0;
		call->code = NV01_MEMORY_HW_RESOURCES;	/* what a surface uses in addition to its memory */
		break;
	case NVOS32_FUNCTION_FREE:
		call->kind = RM_FREE;
		call->object = GET32(arg, nvos32, data.Free.hMemory);
		break;
	case NVOS32_FUNCTION_HW_FREE:
		call->kind = RM_FREE;
		call->object = GET32(arg, nvos32, data.HwFree.hResourceHandle);
		break;
	}
}

static void decode_control(const void *arg, struct rm_call *call)
{
	call->client = GET32(arg, nvos54, hClient);
	call->object = GET32(arg, nvos54, hObject);
	call->code = GET32(arg, nvos54, cmd);
	call->serialized = GET32(arg, nvos54, flags) & NVOS54_FLAGS_FINN_SERIALIZED;
	call->params.address = GET64(arg, nvos54, params);
	call->params.bytes = call->params.address ? GET32(arg, nvos54, paramsSize) : 0;
}

static void decode_dup(const void *arg, struct rm_call *call)
{
	call->client = GET32(arg, nvos55, hClient);
	call->parent = GET32(arg, nvos55, hParent);
	call->object = GET32(arg, nvos55, hObject);
	call->source_client = GET32(arg, nvos55, hClientSrc);
	call->source_object = GET32(arg, nvos55, hObjectSrc);
}

void rm_decode(u32 escape, u32 size, const void *arg, struct rm_call *call)
{
	const struct layout *l;
	bool known;

	memset(call, 0, sizeof(*call));
	call->escape = escape;
	l = layout_of(escape, size, &known);
	if (!l) {
		call->kind = known ? RM_MALFORMED : RM_OTHER;
		return;
	}
	call->kind = l->kind;
	call->status_offset = l->status;
	switch (escape) {
	case NV_ESC_RM_ALLOC_MEMORY:
		decode_alloc_memory(arg, call);
		break;
	case NV_ESC_RM_FREE:
		call->client = GET32(arg, nvos00, hRoot);
		call->object = GET32(arg, nvos00, hObjectOld);
		break;
	case NV_ESC_RM_CONTROL:
		decode_control(arg, call);
		break;
	case NV_ESC_RM_DUP_OBJECT:
		decode_dup(arg, call);
		break;
	case NV_ESC_RM_VID_HEAP_CONTROL:
		decode_heap(arg, call);
		break;
	default:
		decode_alloc(arg, size, call);
	}
}

void rm_decode_params(struct rm_call *call, const void *params, u32 bytes)
{
	u64 offset, limit;

	if (call->kind != RM_ALLOC || !call->params.bytes || bytes < call->params.bytes)
		return;
	switch (call->code) {
	case NV01_DEVICE_0:
		call->device = GET32(params, nv0080_alloc, deviceId);
		break;
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		call->bytes = limit_bytes(GET64(params, nv_os_desc_memory_allocation, limit));
		break;
	case NV01_MEMORY_VIRTUAL:
		/* Without a limit it means the whole address space, and reserves none of it. */
		offset = GET64(params, nv_memory_virtual_allocation, offset);
		limit = GET64(params, nv_memory_virtual_allocation, limit);
		call->bytes = limit && limit >= offset ? limit_bytes(limit - offset) : 0;
		break;
	default:
		call->memory = rm_memory_of(call->code, GET32(params, nv_memory_allocation, attr), GET32(params, nv_memory_allocation, flags));
		call->bytes = GET64(params, nv_memory_allocation, size);
	}
}

struct rm_result rm_result(u32 escape, u32 size, const void *arg)
{
	struct rm_result result = { 0, 0 };
	const struct layout *l;
	bool known;

	l = layout_of(escape, size, &known);
	if (!l)
		return result;
	result.status = get32(arg, l->status);
	if (l->object)
		result.object = get32(arg, l->object);
	else if (escape == NV_ESC_RM_VID_HEAP_CONTROL && GET32(arg, nvos32, function) == NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR)
		result.object = GET32(arg, nvos32, data.AllocOsDesc.hMemory);
	else if (escape == NV_ESC_RM_VID_HEAP_CONTROL)
		result.object = GET32(arg, nvos32, data.AllocSize.hMemory);	/* at the same offset for every function */
	return result;
}
