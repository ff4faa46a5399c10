// SPDX-License-Identifier: GPL-2.0-only
#include "../rmcall.h"
#include "suite.h"

#define PCI (NVOS32_ATTR_LOCATION_PCI << 25)
#define ANY (NVOS32_ATTR_LOCATION_ANY << 25)

static struct rm_call call;

static void decode(u32 escape, u32 size, const void *arg)
{
	memset(&call, 0xa5, sizeof(call));
	rm_decode(escape, size, arg, &call);
}

/* Numbers and sizes from NVIDIA's sources (see rmcall.c), not from nvrm.h. */
static void rmcall_layouts(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos00), 16ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos02), 48ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos02, limit), 32ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos02, status), 40ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos02_fd), 56ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos05), 20ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos21), 32ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos64), 48ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos54), 32ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos55), 28ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nvos32), 184ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, status), 20ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSize.hMemory), 44ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSize.flags), 52ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSize.attr), 56ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSize.size), 88ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocTiledPitchHeight.hMemory), 44ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocTiledPitchHeight.flags), 52ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocTiledPitchHeight.height), 56ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocTiledPitchHeight.pitch), 60ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocTiledPitchHeight.attr), 64ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSizeRange.hMemory), 44ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSizeRange.flags), 52ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSizeRange.attr), 56ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocSizeRange.size), 80ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocOsDesc.hMemory), 40ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocOsDesc.flags), 48ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.AllocOsDesc.limit), 72ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.Free.hMemory), 44ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nvos32, data.HwFree.hResourceHandle), 40ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv_memory_allocation, flags), 8ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv_memory_allocation, attr), 24ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv_memory_allocation, size), 64ul);
	KUNIT_EXPECT_EQ(test, sizeof(struct nv_memory_allocation), 128ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv_os_desc_memory_allocation, limit), 24ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv_memory_virtual_allocation, limit), 8ul);
	KUNIT_EXPECT_EQ(test, offsetof(struct nv0080_alloc, deviceId), 0ul);
}

static void rmcall_sizes(struct kunit *test)
{
	static const struct { u32 escape, size, other; bool interesting; } known[] = {
		{ 0x27, 56, 56, true }, { 0x28, 20, 20, true }, { 0x29, 16, 16, true }, { 0x2a, 32, 32, true }, { 0x2b, 32, 48, true },
		{ 0x34, 28, 28, true }, { 0x4a, 184, 184, true }, { 211, 16, 16, false },
	};
	static u8 arg[RM_CALL_BYTES];
	u32 escape, size, i, wrong = 0;
	bool valid, interesting;

	for (escape = 0; escape < 300; escape++) {
		interesting = false;
		for (i = 0; i < ARRAY_SIZE(known); i++)
			if (known[i].escape == escape)
				break;
		interesting = i < ARRAY_SIZE(known) && known[i].interesting;
		KUNIT_EXPECT_EQ(test, rm_interesting(escape), interesting);
		for (size = 0; size < 0x4000; size++) {
			valid = i == ARRAY_SIZE(known) || size == known[i].size || size == known[i].other;
			wrong += rm_size_valid(escape, size) != valid;
			if (size > 256 && size % 1000)
				continue;
			decode(escape, size, arg);
			wrong += (call.kind == RM_MALFORMED) != (interesting && !valid);
			wrong += call.escape != (u8)escape;
			wrong += !interesting && call.kind != RM_OTHER;
		}
	}
	KUNIT_EXPECT_EQ(test, wrong, 0u);
}

static void rmcall_cmd(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rm_escape(0xc030462b), 0x2bu);
	KUNIT_EXPECT_EQ(test, rm_size(0xc030462b), 48u);
	KUNIT_EXPECT_EQ(test, rm_size(0xffffffff), 0x3fffu);
}

static void rmcall_alloc(struct kunit *test)
{
	struct nvos21 a = { 1, 2, 3, 0x1234, 0x7000, 9, 77 };
	struct nvos64 b = { 1, 2, 3, 0x1234, 0x7000, 0x8000, 9, 0, 78, 0 };
	struct nvos05 c = { 1, 2, 3, 0x1234, 79 };
	const struct { u32 escape, size; const void *arg; u32 status; u32 status_offset; } calls[] = {
		{ NV_ESC_RM_ALLOC, sizeof(a), &a, 77, 28 }, { NV_ESC_RM_ALLOC, sizeof(b), &b, 78, 40 }, { NV_ESC_RM_ALLOC_OBJECT, sizeof(c), &c, 79, 16 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		decode(calls[i].escape, calls[i].size, calls[i].arg);
		KUNIT_EXPECT_EQ(test, call.kind, RM_ALLOC);
		KUNIT_EXPECT_EQ(test, call.client, 1u);
		KUNIT_EXPECT_EQ(test, call.parent, 2u);
		KUNIT_EXPECT_EQ(test, call.object, 3u);
		KUNIT_EXPECT_EQ(test, call.code, 0x1234u);
		KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_NONE);
		KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
		KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);	/* of a class without memory */
		KUNIT_EXPECT_FALSE(test, call.serialized);
		KUNIT_EXPECT_EQ(test, call.status_offset, calls[i].status_offset);
		KUNIT_EXPECT_EQ(test, rm_result(calls[i].escape, calls[i].size, calls[i].arg).status, calls[i].status);
		KUNIT_EXPECT_EQ(test, rm_result(calls[i].escape, calls[i].size, calls[i].arg).object, 3u);
	}
	b.flags = NVOS64_FLAGS_FINN_SERIALIZED;
	decode(NV_ESC_RM_ALLOC, sizeof(b), &b);
	KUNIT_EXPECT_TRUE(test, call.serialized);
	b.flags = ~NVOS64_FLAGS_FINN_SERIALIZED;
	decode(NV_ESC_RM_ALLOC, sizeof(b), &b);
	KUNIT_EXPECT_FALSE(test, call.serialized);
}

/* How much of the parameters the driver reads depends on the class, not on the size in the call. */
static void rmcall_params_wanted(struct kunit *test)
{
	static const struct { u32 class, bytes; } wanted[] = {
		{ 0x40, 72 }, { 0x3e, 72 }, { 0x90ce, 72 }, { 0x50a0, 72 }, { 0x71, 32 }, { 0x70, 16 }, { 0x80, 4 }, { 0x2080, 0 }, { 0x41, 0 },
		{ 0x3f, 0 }, { 0xc2, 0 }, { 0x90f1, 0 }, { 0xa06c, 0 },
	};
	u32 i, size, sizes[] = { 0, 1, 4, 128, U32_MAX };
	struct nvos64 b = { 0 };

	for (i = 0; i < ARRAY_SIZE(wanted); i++) {
		for (size = 0; size < ARRAY_SIZE(sizes); size++) {
			b = (struct nvos64){ 1, 2, 3, wanted[i].class, 0x7000, 0, sizes[size], 0, 0, 0 };
			decode(NV_ESC_RM_ALLOC, sizeof(struct nvos64), &b);
			KUNIT_EXPECT_EQ(test, call.params.address, 0x7000ull);
			KUNIT_EXPECT_EQ(test, call.params.bytes, wanted[i].bytes);
			decode(NV_ESC_RM_ALLOC, sizeof(struct nvos21), &b);
			KUNIT_EXPECT_EQ(test, call.params.bytes, wanted[i].bytes);
		}
		KUNIT_EXPECT_TRUE(test, wanted[i].bytes <= rm_params_whole(wanted[i].class));
		KUNIT_EXPECT_TRUE(test, rm_params_whole(wanted[i].class) <= RM_PARAMS_BYTES);
		b.flags = NVOS64_FLAGS_FINN_SERIALIZED;
		decode(NV_ESC_RM_ALLOC, sizeof(struct nvos64), &b);
		KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);
		b.flags = 0;
		b.pAllocParms = 0;
		decode(NV_ESC_RM_ALLOC, sizeof(struct nvos64), &b);
		KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);
	}
}

static void alloc(u32 class, const void *params, u32 bytes)
{
	struct nvos21 a = { .hRoot = 1, .hObjectParent = 2, .hObjectNew = 3, .hClass = class, .pAllocParms = 0x7000 };

	decode(NV_ESC_RM_ALLOC, sizeof(a), &a);
	rm_decode_params(&call, params, bytes);
}

static void rmcall_memory(struct kunit *test)
{
	static const struct { u32 class, attr, flags; enum rm_memory memory; } of[] = {
		{ 0x40, 0, 0, RM_MEMORY_DEVICE }, { 0x40, PCI, 0, RM_MEMORY_SYSTEM }, { 0x40, ANY, 0, RM_MEMORY_DEVICE },
		{ 0x40, 2u << 25, 0, RM_MEMORY_DEVICE }, { 0x40, 0, 0x80000, RM_MEMORY_VIRTUAL }, { 0x40, ~(3u << 25), 0, RM_MEMORY_DEVICE },
		{ 0x40, 0, ~0x80000u, RM_MEMORY_DEVICE },
		{ 0x3e, 0, 0, RM_MEMORY_DEVICE }, { 0x3e, PCI, 0, RM_MEMORY_SYSTEM }, { 0x3e, ANY, 0, RM_MEMORY_SYSTEM },
		{ 0x3e, 2u << 25, 0, RM_MEMORY_SYSTEM }, { 0x3e, PCI, 0x80000, RM_MEMORY_VIRTUAL }, { 0x3e, ~(2u << 25), 0, RM_MEMORY_SYSTEM },
		{ 0x50a0, 0, 0, RM_MEMORY_VIRTUAL }, { 0x50a0, PCI, 0x80000, RM_MEMORY_VIRTUAL }, { 0x90ce, 0, 0, RM_MEMORY_SYSTEM },
	};
	struct nv_memory_allocation p;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		memset(&p, 0xff, sizeof(p));
		p.attr = of[i].attr;
		p.flags = of[i].flags;
		p.size = 0x1234567890 + i;
		alloc(of[i].class, &p, offsetof(struct nv_memory_allocation, alignment));
		KUNIT_EXPECT_EQ(test, call.memory, of[i].memory);
		KUNIT_EXPECT_EQ(test, call.bytes, 0x1234567890ull + i);
		KUNIT_EXPECT_EQ(test, rm_memory_of(of[i].class, of[i].attr, of[i].flags), of[i].memory);
		alloc(of[i].class, &p, sizeof(p));
		KUNIT_EXPECT_EQ(test, call.bytes, 0x1234567890ull + i);
	}
	KUNIT_EXPECT_EQ(test, rm_memory_of(0x71, 0, 0), RM_MEMORY_SYSTEM);
	KUNIT_EXPECT_EQ(test, rm_memory_of(0x71, PCI, 0x80000), RM_MEMORY_SYSTEM);
	KUNIT_EXPECT_EQ(test, rm_memory_of(0x70, 0, 0), RM_MEMORY_VIRTUAL);
	KUNIT_EXPECT_EQ(test, rm_memory_of(0x3f, 0, 0), RM_MEMORY_NONE);
	KUNIT_EXPECT_EQ(test, rm_memory_of(0x80, 0, 0), RM_MEMORY_NONE);
	KUNIT_EXPECT_EQ(test, rm_memory_of(0xa06c, 0, 0), RM_MEMORY_NONE);
}

/* For parameters that cannot be read, the largest size is assumed. */
static void rmcall_memory_unread(struct kunit *test)
{
	static const struct { u32 class; enum rm_memory memory; } of[] = {
		{ 0x40, RM_MEMORY_DEVICE }, { 0x3e, RM_MEMORY_SYSTEM }, { 0x50a0, RM_MEMORY_VIRTUAL }, { 0x70, RM_MEMORY_VIRTUAL },
		{ 0x71, RM_MEMORY_SYSTEM }, { 0x90ce, RM_MEMORY_SYSTEM },
	};
	struct nv_memory_allocation p = { .size = 5 };
	struct nvos64 b;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		alloc(of[i].class, &p, 0);
		KUNIT_EXPECT_EQ(test, call.memory, of[i].memory);
		KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
		alloc(of[i].class, &p, call.params.bytes - 1);
		KUNIT_EXPECT_EQ(test, call.memory, of[i].memory);
		KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
		b = (struct nvos64){ .hClass = of[i].class, .pAllocParms = 0x7000, .flags = NVOS64_FLAGS_FINN_SERIALIZED };
		decode(NV_ESC_RM_ALLOC, sizeof(b), &b);
		rm_decode_params(&call, &p, sizeof(p));		/* says nothing */
		KUNIT_EXPECT_EQ(test, call.memory, of[i].memory);
		KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
		b.pAllocParms = 0;
		b.flags = 0;
		decode(NV_ESC_RM_ALLOC, sizeof(b), &b);
		KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
	}
}

static void rmcall_descriptor_and_range(struct kunit *test)
{
	struct nv_os_desc_memory_allocation d = { .limit = 0xfff };
	struct nv_memory_virtual_allocation v = { .offset = 0x1000, .limit = 0x2fff };

	alloc(0x71, &d, 32);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_SYSTEM);
	KUNIT_EXPECT_EQ(test, call.bytes, 0x1000ull);
	d.limit = U64_MAX;
	alloc(0x71, &d, 32);
	KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);

	alloc(0x70, &v, 16);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_VIRTUAL);
	KUNIT_EXPECT_EQ(test, call.bytes, 0x2000ull);
	v.limit = 0x1000;
	alloc(0x70, &v, 16);
	KUNIT_EXPECT_EQ(test, call.bytes, 1ull);
	v.limit = 0xfff;		/* the end is before the start: the driver refuses that */
	alloc(0x70, &v, 16);
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
	v.limit = 0;			/* a whole address space, of which nothing is reserved */
	v.offset = 0;
	alloc(0x70, &v, 16);
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
	v.limit = U64_MAX;
	alloc(0x70, &v, 16);
	KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
}

static void rmcall_device(struct kunit *test)
{
	struct nv0080_alloc p = { .deviceId = 5, .hClientShare = 9 };
	struct nvos64 b = { .hRoot = 1, .hObjectParent = 1, .hObjectNew = 2, .hClass = NV01_DEVICE_0 };
	struct nvos05 c = { 1, 1, 2, NV01_DEVICE_0, 0 };

	alloc(0x80, &p, 4);
	KUNIT_EXPECT_EQ(test, call.device, 5u);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_NONE);
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
	alloc(0x80, &p, 3);
	KUNIT_EXPECT_EQ(test, call.device, U32_MAX);
	decode(NV_ESC_RM_ALLOC, sizeof(b), &b);		/* without parameters: the first */
	KUNIT_EXPECT_EQ(test, call.device, 0u);
	decode(NV_ESC_RM_ALLOC_OBJECT, sizeof(c), &c);
	KUNIT_EXPECT_EQ(test, call.device, 0u);
	b.pAllocParms = 0x7000;
	b.flags = NVOS64_FLAGS_FINN_SERIALIZED;
	decode(NV_ESC_RM_ALLOC, sizeof(b), &b);
	KUNIT_EXPECT_EQ(test, call.device, U32_MAX);
}

static void rmcall_alloc_memory(struct kunit *test)
{
	struct nvos02_fd a = { .params = { .hRoot = 1, .hObjectParent = 2, .hObjectNew = 3, .hClass = 0x3e, .limit = 0xffff, .status = 5 } };

	decode(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a);
	KUNIT_EXPECT_EQ(test, call.kind, RM_ALLOC);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.parent, 2u);
	KUNIT_EXPECT_EQ(test, call.object, 3u);
	KUNIT_EXPECT_EQ(test, call.code, 0x3eu);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_SYSTEM);
	KUNIT_EXPECT_EQ(test, call.bytes, 0x10000ull);
	KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);
	KUNIT_EXPECT_EQ(test, call.status_offset, 40u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a).status, 5u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a).object, 3u);
	a.params.limit = U64_MAX;
	decode(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a);
	KUNIT_EXPECT_EQ(test, call.bytes, U64_MAX);
	a.params.hClass = 0x71;
	a.params.limit = 0;
	decode(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_SYSTEM);
	KUNIT_EXPECT_EQ(test, call.bytes, 1ull);
	a.params.hClass = 0x70;
	decode(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_VIRTUAL);
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
	a.params.hClass = 0x40;
	decode(NV_ESC_RM_ALLOC_MEMORY, sizeof(a), &a);
	KUNIT_EXPECT_EQ(test, call.memory, RM_MEMORY_NONE);
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
}

static struct nvos32 heap;

static void decode_heap(u32 function)
{
	heap.hRoot = 1;
	heap.hObjectParent = 2;
	heap.function = function;
	heap.status = 6;
	decode(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap);
}

static void expect_heap(struct kunit *test, u32 object, u32 class, enum rm_memory memory, u64 bytes)
{
	KUNIT_EXPECT_EQ(test, call.kind, RM_ALLOC);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.parent, 2u);
	KUNIT_EXPECT_EQ(test, call.object, object);
	KUNIT_EXPECT_EQ(test, call.code, class);
	KUNIT_EXPECT_EQ(test, call.memory, memory);
	KUNIT_EXPECT_EQ(test, call.bytes, bytes);
	KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);
	KUNIT_EXPECT_EQ(test, call.status_offset, 20u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap).status, 6u);
}

static void rmcall_heap(struct kunit *test)
{
	static const struct { u32 attr, flags, class; enum rm_memory memory; } of[] = {
		{ 0, 0, 0x40, RM_MEMORY_DEVICE }, { PCI, 0, 0x3e, RM_MEMORY_SYSTEM }, { ANY, 0, 0x3e, RM_MEMORY_SYSTEM },
		{ 2u << 25, 0, 0x3e, RM_MEMORY_SYSTEM }, { 0, 0x80000, 0x50a0, RM_MEMORY_VIRTUAL }, { PCI, 0x80000, 0x50a0, RM_MEMORY_VIRTUAL },
	};
	u32 i, given;

	for (i = 0; i < ARRAY_SIZE(of); i++)
		for (given = 0; given < 2; given++) {
			u32 flags = of[i].flags | (given ? 0x4000 : 0);

			memset(&heap, 0xff, sizeof(heap));
			heap.data.AllocSize.hMemory = 33;
			heap.data.AllocSize.flags = flags;
			heap.data.AllocSize.attr = of[i].attr;
			heap.data.AllocSize.size = 0x1000000001;
			decode_heap(2);
			expect_heap(test, given ? 33 : 0, of[i].class, of[i].memory, 0x1000000001);
			KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap).object, 33u);

			memset(&heap, 0xff, sizeof(heap));
			heap.data.AllocSizeRange.hMemory = 33;
			heap.data.AllocSizeRange.flags = flags;
			heap.data.AllocSizeRange.attr = of[i].attr;
			heap.data.AllocSizeRange.size = 0x1000000002;
			decode_heap(14);
			expect_heap(test, given ? 33 : 0, of[i].class, of[i].memory, 0x1000000002);
			KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap).object, 33u);

			memset(&heap, 0xff, sizeof(heap));
			heap.data.AllocTiledPitchHeight.hMemory = 33;
			heap.data.AllocTiledPitchHeight.flags = flags;
			heap.data.AllocTiledPitchHeight.attr = of[i].attr;
			heap.data.AllocTiledPitchHeight.height = 0x80000000;
			heap.data.AllocTiledPitchHeight.pitch = 0x7fffffff;
			decode_heap(6);
			expect_heap(test, given ? 33 : 0, of[i].class, of[i].memory, 0x80000000ull * 0x7fffffff);
			heap.data.AllocTiledPitchHeight.pitch = -1;
			decode_heap(6);
			expect_heap(test, given ? 33 : 0, of[i].class, of[i].memory, U64_MAX);

			memset(&heap, 0xff, sizeof(heap));
			heap.data.AllocOsDesc.hMemory = 33;
			heap.data.AllocOsDesc.flags = flags;
			heap.data.AllocOsDesc.limit = 0xfff;
			decode_heap(27);
			expect_heap(test, given ? 33 : 0, 0x71, RM_MEMORY_SYSTEM, 0x1000);
			KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap).object, 33u);
			heap.data.AllocOsDesc.limit = U64_MAX;
			decode_heap(27);
			expect_heap(test, given ? 33 : 0, 0x71, RM_MEMORY_SYSTEM, U64_MAX);

			memset(&heap, 0xff, sizeof(heap));
			heap.data.HwAlloc.hMemory = 33;
			heap.data.HwAlloc.flags = flags;
			decode_heap(19);
			expect_heap(test, given ? 33 : 0, 0xb1, RM_MEMORY_NONE, 0);
			KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_VID_HEAP_CONTROL, sizeof(heap), &heap).object, 33u);
		}
}

static void rmcall_heap_free(struct kunit *test)
{
	u32 function;

	memset(&heap, 0xff, sizeof(heap));
	heap.data.Free.hMemory = 44;
	decode_heap(3);
	KUNIT_EXPECT_EQ(test, call.kind, RM_FREE);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.object, 44u);
	memset(&heap, 0xff, sizeof(heap));
	heap.data.HwFree.hResourceHandle = 45;
	decode_heap(20);
	KUNIT_EXPECT_EQ(test, call.kind, RM_FREE);
	KUNIT_EXPECT_EQ(test, call.object, 45u);
	for (function = 0; function < 40; function++) {
		if (function == 2 || function == 3 || function == 6 || function == 14 || function == 19 || function == 20 || function == 27)
			continue;
		decode_heap(function);
		KUNIT_EXPECT_EQ(test, call.kind, RM_OTHER);
	}
}

static void rmcall_others(struct kunit *test)
{
	struct nvos00 f = { 1, 2, 3, 4 };
	struct nvos54 c = { 1, 2, NVA06C_CTRL_CMD_SET_TIMESLICE, 0, 0x7000, 8, 4 };
	struct nvos55 d = { 1, 2, 3, 4, 5, 0, 6 };

	decode(NV_ESC_RM_FREE, sizeof(f), &f);
	KUNIT_EXPECT_EQ(test, call.kind, RM_FREE);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.object, 3u);
	KUNIT_EXPECT_EQ(test, call.status_offset, 12u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_FREE, sizeof(f), &f).status, 4u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_FREE, sizeof(f), &f).object, 0u);

	decode(NV_ESC_RM_CONTROL, sizeof(c), &c);
	KUNIT_EXPECT_EQ(test, call.kind, RM_CONTROL);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.object, 2u);
	KUNIT_EXPECT_EQ(test, call.code, 0xa06c0103u);
	KUNIT_EXPECT_EQ(test, call.params.address, 0x7000ull);
	KUNIT_EXPECT_EQ(test, call.params.bytes, 8u);
	KUNIT_EXPECT_FALSE(test, call.serialized);
	KUNIT_EXPECT_EQ(test, call.status_offset, 28u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_CONTROL, sizeof(c), &c).status, 4u);
	rm_decode_params(&call, &f, sizeof(f));		/* only for allocations */
	KUNIT_EXPECT_EQ(test, call.bytes, 0ull);
	c.flags = 4;
	decode(NV_ESC_RM_CONTROL, sizeof(c), &c);
	KUNIT_EXPECT_TRUE(test, call.serialized);
	c.flags = ~4u;
	c.params = 0;
	decode(NV_ESC_RM_CONTROL, sizeof(c), &c);
	KUNIT_EXPECT_FALSE(test, call.serialized);
	KUNIT_EXPECT_EQ(test, call.params.bytes, 0u);

	decode(NV_ESC_RM_DUP_OBJECT, sizeof(d), &d);
	KUNIT_EXPECT_EQ(test, call.kind, RM_DUP);
	KUNIT_EXPECT_EQ(test, call.client, 1u);
	KUNIT_EXPECT_EQ(test, call.parent, 2u);
	KUNIT_EXPECT_EQ(test, call.object, 3u);
	KUNIT_EXPECT_EQ(test, call.source_client, 4u);
	KUNIT_EXPECT_EQ(test, call.source_object, 5u);
	KUNIT_EXPECT_EQ(test, call.status_offset, 24u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_DUP_OBJECT, sizeof(d), &d).status, 6u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_DUP_OBJECT, sizeof(d), &d).object, 3u);

	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_RM_DUP_OBJECT, 27, &d).object, 0u);
	KUNIT_EXPECT_EQ(test, rm_result(NV_ESC_CARD_INFO, sizeof(d), &d).status, 0u);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(rmcall_layouts), KUNIT_CASE(rmcall_sizes), KUNIT_CASE(rmcall_cmd), KUNIT_CASE(rmcall_alloc),
	KUNIT_CASE(rmcall_params_wanted), KUNIT_CASE(rmcall_memory), KUNIT_CASE(rmcall_memory_unread),
	KUNIT_CASE(rmcall_descriptor_and_range), KUNIT_CASE(rmcall_device), KUNIT_CASE(rmcall_alloc_memory), KUNIT_CASE(rmcall_heap),
	KUNIT_CASE(rmcall_heap_free), KUNIT_CASE(rmcall_others), {}
};
SUITE(rmcall, cases);
