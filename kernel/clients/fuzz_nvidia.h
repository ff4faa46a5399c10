/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of fuzz that calls NVIDIA's devices. */
#ifndef FUZZ_NVIDIA_H
#define FUZZ_NVIDIA_H

#include "fuzz.h"

/* One structure for all parameters of a kind, as long as the longest: the driver reads only the length for the
 * class. */
static uint64_t parameters(struct source *s, uint32_t class)
{
	union {
		uint64_t words[32];
		struct nv0080_alloc device;
		struct nv_memory_allocation memory;
		struct nv_memory_virtual_allocation range;
	} p = {};

	switch (class) {
	case NV01_DEVICE_0:
		p.device.deviceId = below(s, 3);
		break;
	case NV01_MEMORY_VIRTUAL:
		p.range.offset = below(s, 4) ? 0 : number(s);
		p.range.limit = below(s, 2) ? 0 : number(s);
		break;
	default:
		p.memory.size = below(s, 3) ? 4096 * (1 + below(s, 4096)) : number(s);
		p.memory.alignment = below(s, 3) ? 0 : number(s);
		p.memory.offset = below(s, 3) ? 0 : number(s);
		p.memory.attr = (class == NV01_MEMORY_SYSTEM ? NVOS32_ATTR_LOCATION_PCI << 25 : 0) | below(s, 4) << 23;
		p.memory.flags = class == NV50_MEMORY_VIRTUAL ? NVOS32_ALLOC_FLAGS_VIRTUAL | below(s, 2) * NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE : 0;
		break;
	case NV20_SUBDEVICE_0:
	case NV01_ROOT_CLIENT:
		break;
	}
	return put(s, &p, sizeof(p));
}

static const uint32_t classes[] = {
	NV01_ROOT_CLIENT, NV01_ROOT_CLIENT, NV01_ROOT, NV01_DEVICE_0, NV01_DEVICE_0, NV20_SUBDEVICE_0, NV01_MEMORY_SYSTEM,
	NV01_MEMORY_LOCAL_USER, NV01_MEMORY_LOCAL_USER, NV50_MEMORY_VIRTUAL, NV01_MEMORY_VIRTUAL, FERMI_VASPACE_A, KEPLER_CHANNEL_GROUP_A,
	NV01_EVENT, NV01_EVENT_OS_EVENT, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, 0x1234,
};

static const struct { uint32_t cmd, size; } controls[] = {
	{ NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, 128 }, { NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, 256 }, { NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, 384 },
	{ NV0000_CTRL_CMD_GPU_ATTACH_IDS, 132 }, { NV0000_CTRL_CMD_GPU_DETACH_IDS, 128 },
	{ NV0000_CTRL_CMD_GPU_GET_ID_INFO, sizeof(struct nv_id_info) },
	{ NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, sizeof(struct nv_id_info_v2) },
	{ NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, sizeof(struct nv_build_version) },
	{ NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2, sizeof(struct nv_build_version_v2_570) }, { NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2, 804 },
	{ NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO, sizeof(struct nv_boost_groups) }, { NV0080_CTRL_CMD_HOST_GET_CAPS_V2, 3 },
	{ NVA06C_CTRL_CMD_SET_TIMESLICE, 8 }, { NVA06C_CTRL_CMD_SET_TIMESLICE, 8 }, { NVA06C_CTRL_CMD_GET_TIMESLICE, 8 },
};

/* A plausible call: number, structure, size. */
struct rm_call {
	uint32_t nr, size;
	union rm_argument {
		uint64_t words[64];
		struct nvos00 free;
		struct nvos02_fd host;
		struct nvos21 alloc;
		struct nvos64 alloc64;
		struct nvos32 heap;
		struct nvos54 control;
		struct nvos55 dup;
		struct nvos46 map;
		struct nvos46_580 map580;
		struct nvos47 unmap;
		struct nv_register_fd fd;
		struct nv_os_event event;
		struct nv_version version;
	} arg;
};

#define IS(call, number, member) ((call)->nr = (number), (call)->size = sizeof((call)->arg.member), &(call)->arg.member)

static void make_call(struct source *s, struct rm_call *c)
{
	uint32_t from = client(s), n;

	memset(c, 0, sizeof(*c));
	switch (below(s, 28)) {
	default: {	/* 12 of 28 calls */
		uint32_t class = PICK(s, classes);
		bool root = class == NV01_ROOT || class == NV01_ROOT_CLIENT;
		uint64_t p = root && below(s, 4) ? 0 : parameters(s, class);
		uint32_t above = class == NV01_DEVICE_0 ? from : object(s, DEVICES), new = root ? from : object(s, kind_of(class));

		if (below(s, 2))
			*IS(c, NV_ESC_RM_ALLOC, alloc) = (struct nvos21){
				.hRoot = from, .hObjectParent = above, .hObjectNew = new, .hClass = class, .pAllocParms = p,
			};
		else
			*IS(c, NV_ESC_RM_ALLOC, alloc64) = (struct nvos64){
				.hRoot = from, .hObjectParent = above, .hObjectNew = new, .hClass = class, .pAllocParms = p,
			};
		break;
	}
	case 0 ... 3:
		*IS(c, NV_ESC_RM_FREE, free) = (struct nvos00){ .hRoot = from, .hObjectOld = below(s, 30) ? object(s, PICK(s, kinds)) : from };
		break;
	case 17:
	case 18:
		*IS(c, NV_ESC_RM_DUP_OBJECT, dup) = (struct nvos55){
			.hClient = from, .hParent = object(s, DEVICES), .hObject = object(s, MEMORIES),
			.hClientSrc = client(s), .hObjectSrc = object(s, MEMORIES),
		};
		break;
	case 4:
	case 5:
	case 6:
		n = below(s, sizeof(controls) / sizeof(controls[0]));
		*IS(c, NV_ESC_RM_CONTROL, control) = (struct nvos54){
			.hClient = from, .hObject = below(s, 2) ? from : object(s, OTHERS), .cmd = controls[n].cmd,
			.paramsSize = below(s, 10) ? controls[n].size : number(s), .params = parameters(s, 0),
		};
		break;
	case 7:
		*IS(c, NV_ESC_RM_ALLOC_MEMORY, host.params) = (struct nvos02){
			.hRoot = from, .hObjectParent = object(s, DEVICES), .hObjectNew = object(s, MEMORIES),
			.hClass = below(s, 2) ? NV01_MEMORY_SYSTEM : NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
			.limit = number(s),
		};
		c->size = sizeof(c->arg.host);
		break;
	case 8:
		*IS(c, NV_ESC_RM_VID_HEAP_CONTROL, heap) = (struct nvos32){
			.hRoot = from, .hObjectParent = object(s, DEVICES), .function = below(s, 4) ? NVOS32_FUNCTION_ALLOC_SIZE : NVOS32_FUNCTION_FREE,
			.data.AllocSize = { .hMemory = object(s, MEMORIES), .flags = number(s), .attr = number(s), .size = number(s),
					    .alignment = number(s), .offset = number(s) },
		};
		break;
	case 9:
	case 10:
	case 11:
		*IS(c, NV_ESC_RM_MAP_MEMORY_DMA, map) = (struct nvos46){
			.hClient = from, .hDevice = object(s, DEVICES), .hDma = object(s, RANGES), .hMemory = object(s, MEMORIES),
			.offset = below(s, 2) ? 0 : number(s), .length = below(s, 2) ? 4096 : number(s), .flags = below(s, 3) ? 0 : NVOS46_FLAGS_DMA_OFFSET_FIXED, .dmaOffset = number(s),
		};
		if (below(s, 2))
			c->size = sizeof(c->arg.map580);
		break;
	case 12:
		*IS(c, NV_ESC_RM_UNMAP_MEMORY_DMA, unmap) = (struct nvos47){
			.hClient = from, .hDevice = object(s, DEVICES), .hDma = object(s, RANGES), .hMemory = object(s, MEMORIES),
			.dmaOffset = (below(s, 2) ? 0x200000000ull : 0) + PAGE * below(s, 4),
		};
		break;
	case 13:
		/* Rarely, since a registered descriptor has no clients of its own any more. */
		IS(c, NV_ESC_REGISTER_FD, fd)->ctl_fd = below(s, 40) ? -1 : PICK(s, slots);
		break;
	case 14:
		*IS(c, below(s, 2) ? NV_ESC_ALLOC_OS_EVENT : NV_ESC_FREE_OS_EVENT, event) = (struct nv_os_event){ .hClient = from, .fd = below(s, 8) };
		break;
	case 15:
		memcpy(IS(c, NV_ESC_CHECK_VERSION_STR, version)->versionString, "580.105.08", 10);
		break;
	case 16:
		c->nr = NV_ESC_CARD_INFO + below(s, 20);
		c->size = number(s) % sizeof(c->arg);
	}
}

static void call_nvidia(struct source *s, int fd)
{
	const union rm_argument *call;
	struct rm_call c;
	struct nv_xfer xfer;
	uint64_t at;

	make_call(s, &c);
	if (!below(s, 30))
		c.size = number(s) % sizeof(c.arg);
	at = put(s, &c.arg, c.size);
	if (below(s, 4)) {
		if (!done(ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, c.nr, c.size), at), NULL))
			return;
	} else {
		xfer = (struct nv_xfer){ .cmd = c.nr, .size = c.size, .ptr = at };
		if (!done(ioctl(fd, _IOWR(NV_IOCTL_MAGIC, NV_ESC_IOCTL_XFER_CMD, struct nv_xfer), put(s, &xfer, sizeof(xfer))), NULL))
			return;
	}
	if (at < (uintptr_t)s->buffer || at >= (uintptr_t)s->buffer + BUFFER)
		return;
	call = (const void *)at;
	if (c.nr == NV_ESC_RM_ALLOC && !(c.size == sizeof(call->alloc) ? call->alloc.status : call->alloc64.status))
		__atomic_add_fetch(&counts->made, 1, __ATOMIC_RELAXED);
	if (c.nr == NV_ESC_RM_MAP_MEMORY_DMA && !(c.size == sizeof(call->map) ? call->map.status : call->map580.status))
		__atomic_add_fetch(&counts->mapped, 1, __ATOMIC_RELAXED);
}

/* Makes what random calls rarely reach: a client with a device, memory, and a range into which the memory is mapped. */
static void settle(int fd, uint32_t of)
{
	struct nv0080_alloc device = {};
	struct nv_memory_allocation memory = { .size = 1 << 20 };
	struct nv_memory_virtual_allocation range = {};
	struct nvos21 steps[] = {
		{ of, 0, of, NV01_ROOT_CLIENT, 0, 0, 0 }, { of, of, DEVICES, NV01_DEVICE_0, (uintptr_t)&device, 0, 0 },
		{ of, DEVICES, MEMORIES, NV01_MEMORY_LOCAL_USER, (uintptr_t)&memory, 0, 0 },
		{ of, DEVICES, RANGES, NV01_MEMORY_VIRTUAL, (uintptr_t)&range, 0, 0 },
		{ of, DEVICES, OTHERS, KEPLER_CHANNEL_GROUP_A, (uintptr_t)&memory, 0, 0 },
	};
	struct nvos46 map = { .hClient = of, .hDevice = DEVICES, .hDma = RANGES, .hMemory = MEMORIES, .length = 4096 };
	size_t n;

	for (n = 0; n < sizeof(steps) / sizeof(steps[0]); n++)
		ioctl(fd, _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_ALLOC, struct nvos21), &steps[n]);
	for (n = 0; n < 20; n++)
		if (!ioctl(fd, _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_MAP_MEMORY_DMA, struct nvos46), &map) && !map.status)
			__atomic_add_fetch(&counts->mapped, 1, __ATOMIC_RELAXED);
}

static void call_uvm(struct source *s, int fd)
{
	static const uint32_t commands[] = { UVM_INITIALIZE, UVM_DEINITIALIZE, UVM_REGISTER_GPU, UVM_PAGEABLE_MEM_ACCESS, UVM_MM_INITIALIZE };
	uint64_t words[8] = { below(s, 2) ? below(s, 4) : (uint64_t)PICK(s, slots), number(s) };

	done(ioctl(fd, PICK(s, commands), put(s, words, sizeof(words))), NULL);
}

#endif
