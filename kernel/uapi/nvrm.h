/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/* The part of the interface of NVIDIA's kernel driver (the resource manager, RM) that the modules and their tests
 * need: numbers and layouts as in its open kernel modules of releases 535 to 595. Names are NVIDIA's; a structure
 * without a good name is called by its number, with a prefix. Pointers have 64 bits for every caller. */
#ifndef NVRM_H
#define NVRM_H

#include <linux/types.h>

#define NV_MAJOR 195
#define NV_MINOR_CONTROL 255
#define NV_MINOR_GPU_MAX 247

/* The driver looks only at the number and the size of a command, and ignores the letter and the
 * direction. */
#define NV_IOCTL_MAGIC 'F'

#define NV_ESC_RM_ALLOC_MEMORY 0x27	/* nvos02_fd */
#define NV_ESC_RM_ALLOC_OBJECT 0x28	/* nvos05 */
#define NV_ESC_RM_FREE 0x29		/* nvos00 */
#define NV_ESC_RM_CONTROL 0x2a		/* nvos54 */
#define NV_ESC_RM_ALLOC 0x2b		/* nvos21 or nvos64, told apart by size */
#define NV_ESC_RM_DUP_OBJECT 0x34	/* nvos55 */
#define NV_ESC_RM_SHARE 0x35
#define NV_ESC_RM_VID_HEAP_CONTROL 0x4a	/* nvos32 */
#define NV_ESC_RM_MAP_MEMORY 0x4e
#define NV_ESC_RM_UNMAP_MEMORY 0x4f
#define NV_ESC_RM_MAP_MEMORY_DMA 0x57
#define NV_ESC_RM_UNMAP_MEMORY_DMA 0x58
#define NV_ESC_CARD_INFO 200		/* array of nv_card_info */
#define NV_ESC_REGISTER_FD 201		/* nv_register_fd */
#define NV_ESC_ALLOC_OS_EVENT 206
#define NV_ESC_FREE_OS_EVENT 207
#define NV_ESC_STATUS_CODE 209
#define NV_ESC_CHECK_VERSION_STR 210	/* nv_version */
#define NV_ESC_IOCTL_XFER_CMD 211	/* nv_xfer */
#define NV_ESC_ATTACH_GPUS_TO_FD 212	/* array of __u32 */
#define NV_ESC_QUERY_DEVICE_INTR 213
#define NV_ESC_SYS_PARAMS 214		/* __u64: memblock size */
#define NV_ESC_NUMA_INFO 215		/* nv_numa_info */
#define NV_ESC_WAIT_OPEN_COMPLETE 218	/* __s32 rc, __u32 status */

#define NV_XFER_MAX_SIZE 16384		/* longest structure that an nv_xfer points to */

struct nv_xfer { __u32 cmd; __u32 size; __u64 ptr; };	/* cmd: the number alone */

struct nvos00 { __u32 hRoot, hObjectParent, hObjectOld, status; };
struct nvos02 {
	__u32 hRoot, hObjectParent, hObjectNew, hClass, flags, pad0;
	__u64 pMemory, limit;		/* limit: size - 1 */
	__u32 status, pad1;
};
struct nvos02_fd { struct nvos02 params; __s32 fd; __u32 pad; };	/* what NV_ESC_RM_ALLOC_MEMORY takes */
struct nvos05 { __u32 hRoot, hObjectParent, hObjectNew, hClass, status; };
struct nvos21 { __u32 hRoot, hObjectParent, hObjectNew, hClass; __u64 pAllocParms; __u32 paramsSize, status; };
struct nvos64 {
	__u32 hRoot, hObjectParent, hObjectNew, hClass;
	__u64 pAllocParms, pRightsRequested;
	__u32 paramsSize, flags, status, pad0;
};
struct nvos54 { __u32 hClient, hObject, cmd, flags; __u64 params; __u32 paramsSize, status; };
struct nvos55 { __u32 hClient, hParent, hObject, hClientSrc, hObjectSrc, flags, status; };

struct nvos33_fd {			/* NV_ESC_RM_MAP_MEMORY */
	__u32 hClient, hDevice, hMemory, pad0;
	__u64 offset, length, pLinearAddress;
	__u32 status, flags;
	__s32 fd; __u32 pad1;
};
struct nvos34 { __u32 hClient, hDevice, hMemory, pad0; __u64 pLinearAddress; __u32 status, flags; };	/* NV_ESC_RM_UNMAP_MEMORY */
struct nvos46 {				/* NV_ESC_RM_MAP_MEMORY_DMA, up to 570 */
	__u32 hClient, hDevice, hDma, hMemory;
	__u64 offset, length;
	__u32 flags, pad0;
	__u64 dmaOffset;
	__u32 status, pad1;
};
struct nvos46_580 {			/* from 580 on */
	__u32 hClient, hDevice, hDma, hMemory;
	__u64 offset, length;
	__u32 flags, flags2, kindOverride, pad0;
	__u64 dmaOffset;
	__u32 status, pad1;
};
/* NV_ESC_RM_UNMAP_MEMORY_DMA, up to 545 and from 550 on. */
struct nvos47_535 { __u32 hClient, hDevice, hDma, hMemory, flags, pad0; __u64 dmaOffset; __u32 status, pad1; };
struct nvos47 { __u32 hClient, hDevice, hDma, hMemory, flags, pad0; __u64 dmaOffset, size; __u32 status, pad1; };

#define NVOS46_FLAGS_DMA_OFFSET_FIXED 0x8000u
#define NVOS54_FLAGS_FINN_SERIALIZED 4u
#define NVOS64_FLAGS_FINN_SERIALIZED 1u

#define NVOS32_FUNCTION_ALLOC_SIZE 2
#define NVOS32_FUNCTION_FREE 3
#define NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED 1u
#define NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT 6
#define NVOS32_FUNCTION_ALLOC_SIZE_RANGE 14
#define NVOS32_FUNCTION_HW_ALLOC 19
#define NVOS32_FUNCTION_HW_FREE 20
#define NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR 27

/* The head of the structure. From data on, each function has its own members. The whole structure has 0xb8 bytes. */
struct nvos32 {
	__u32 hRoot, hObjectParent, function, hVASpace;
	__s16 ivcHeapNumber; __u16 pad0;
	__u32 status;
	__u64 total, free;
	union {
		struct { __u32 owner, hMemory, type, flags, attr, format, comprCovg, zcullCovg, partitionStride, width, height, pad;
			 __u64 size, alignment, offset, limit, address, rangeBegin, rangeEnd;
			 __u32 attr2, ctagOffset; __s32 numaNode; __u32 pad1; } AllocSize;
		struct { __u32 owner, hMemory, type, flags, height; __s32 pitch; __u32 attr; } AllocTiledPitchHeight;	/* size: height * pitch */
		struct { __u32 owner, hMemory, type, flags, attr, format, comprCovg, zcullCovg, partitionStride, pad; __u64 size; } AllocSizeRange;
		struct { __u32 hMemory, type, flags, attr, attr2, pad; __u64 descriptor, limit; } AllocOsDesc;	/* limit: size - 1 */
		struct { __u32 owner, hMemory, flags; } Free, HwAlloc;
		struct { __u32 hResourceHandle, flags; } HwFree;
		__u8 raw[144];
	} data;
};

struct nv_memory_allocation {		/* NV_MEMORY_ALLOCATION_PARAMS */
	__u32 owner, type, flags, width, height; __s32 pitch;
	__u32 attr, attr2, format, comprCovg, zcullCovg, pad0;
	__u64 rangeLo, rangeHi, size, alignment, offset, limit, address;
	__u32 ctagOffset, hVASpace, internalflags, tag;
	__s32 numaNode; __u32 pad1;
};

struct nv_event { __u32 hParentClient, hSrcResource, hClass, notifyIndex; __u64 data; };	/* NV01_EVENT, NV01_EVENT_OS_EVENT */
/* FERMI_VASPACE_A; from 580 on there are 8 bytes more, a pasid. */
struct nv_vaspace { __u32 index, flags; __u64 vaSize, vaStartInternal, vaLimitInternal; __u32 bigPageSize, pad0; __u64 vaBase; };
struct nv_channel_group { __u32 hObjectError, hObjectEccError, hVASpace, engineType; __u8 bIsCallingContextVgpuPlugin, pad0[3]; };
struct nv_os_desc_memory_allocation { __u32 type, flags, attr, attr2; __u64 descriptor, limit; __u32 descriptorType, tag; };
struct nv_memory_virtual_allocation { __u64 offset, limit; __u32 hVASpace, pad0; };	/* limit 0: to the end of the address space */

struct nv0080_alloc { __u32 deviceId, hClientShare, hTargetClient, hTargetDevice, flags, pad0; __u64 vaSpaceSize, vaStart, vaLimit; __u32 vaMode, pad1; };
struct nv2080_alloc { __u32 subDeviceId; };

struct nv_card_info {
	__u8 valid; __u8 pad0[3];
	__u32 domain; __u8 bus, slot, function, pad1; __u16 vendor_id, device_id;
	__u32 gpu_id; __u16 interrupt_line, pad2;
	__u64 reg_address, reg_size, fb_address, fb_size;
	__u32 minor_number; __u8 dev_name[10]; __u8 pad3[2];
};
struct nv_register_fd { __s32 ctl_fd; };
struct nv_os_event { __u32 hClient, hDevice, fd, Status; };
struct nv_status_code { __u32 domain; __u8 bus, slot; __u8 pad0[2]; __u32 status; };
struct nv_numa_info {			/* from 550 on */
	__s32 nid, status;
	__u64 memblock_size, numa_mem_addr, numa_mem_size;
	__u8 use_auto_online, pad0[7];
	__u64 offline_addresses[64]; __u32 offline_count, pad1;
};
struct nv_open_complete { __s32 rc; __u32 adapterStatus; };
struct nv_version { __u32 cmd, reply; char versionString[64]; };
#define NV_RM_API_VERSION_CMD_STRICT 0
#define NV_RM_API_VERSION_CMD_RELAXED '1'
#define NV_RM_API_VERSION_CMD_QUERY '2'
#define NV_RM_API_VERSION_REPLY_RECOGNIZED 1

#define NV01_ROOT 0x0
#define NV01_ROOT_NON_PRIV 0x1
#define NV01_EVENT 0x5
#define NV01_MEMORY_SYSTEM 0x3e
#define NV01_MEMORY_LOCAL_PRIVILEGED 0x3f
#define NV01_MEMORY_LOCAL_USER 0x40
#define NV01_ROOT_CLIENT 0x41
#define NV01_MEMORY_VIRTUAL 0x70
#define NV01_MEMORY_SYSTEM_OS_DESCRIPTOR 0x71
#define NV01_EVENT_OS_EVENT 0x79
#define NV01_DEVICE_0 0x80
#define NV01_MEMORY_HW_RESOURCES 0xb1
#define NV20_SUBDEVICE_0 0x2080
#define NV50_MEMORY_VIRTUAL 0x50a0
#define NV01_MEMORY_DEVICELESS 0x90ce
#define FERMI_VASPACE_A 0x90f1
#define KEPLER_CHANNEL_GROUP_A 0xa06c

/* NV_MEMORY_ALLOCATION_PARAMS.attr, NVOS32 attr: bits 26:25 say where the memory must be. */
#define NVOS32_ATTR_LOCATION(attr) (((attr) >> 25) & 3u)
#define NVOS32_ATTR_LOCATION_VIDMEM 0
#define NVOS32_ATTR_LOCATION_PCI 1
#define NVOS32_ATTR_LOCATION_ANY 3
#define NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE 0x00000010u
#define NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED 0x00004000u
#define NVOS32_ALLOC_FLAGS_VIRTUAL 0x00080000u
#define NVOS32_ATTR_PAGE_SIZE(attr) (((attr) >> 23) & 3u)	/* 0 default, 1: 4 KiB, 2: 64 KiB, 3: 2 MiB */

#define NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION 0x101	/* nv_build_version */
#define NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2 0x13e	/* nv_build_version_v2 */
#define NV0000_CTRL_CMD_SYSTEM_GET_FEATURES 0x1f0	/* __u32: a mask */
#define NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS 0x201	/* __u32[32] */
#define NV0000_CTRL_CMD_GPU_GET_ID_INFO 0x202		/* nv_id_info with szName */
#define NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 0x205	/* nv_id_info_v2 */
#define NV0000_CTRL_CMD_GPU_GET_PROBED_IDS 0x214	/* __u32[32] twice; three times from 580 on */
#define NV0000_CTRL_CMD_GPU_ATTACH_IDS 0x215
#define NV0000_CTRL_CMD_GPU_DETACH_IDS 0x216
#define NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO 0xa04	/* nv_boost_groups */
#define NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY 0xd04	/* __u32[3] */
#define NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2 0x800292	/* a count, then as many classes as the release has room for */
#define NV0080_CTRL_CMD_HOST_GET_CAPS_V2 0x801402	/* __u8[3]: a mask */
#define NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES 0x80170f	/* a channel, a property, a value: its timeslice among them */
#define NVA06C_CTRL_CMD_SET_TIMESLICE 0xa06c0103	/* __u64: microseconds */
#define NVA06C_CTRL_CMD_GET_TIMESLICE 0xa06c0104
#define NV_GPU_IDS 32
#define NV_GPU_ID_INVALID 0xffffffffu

#define NV0000_CTRL_GPU_ALL_IDS 0x0000ffffu	/* of ATTACH_IDS and DETACH_IDS, in place of the first id */

struct nv_build_version {
	__u32 sizeOfStrings, pad0;
	__u64 pDriverVersionBuffer, pVersionBuffer, pTitleBuffer;
	__u32 changelistNumber, officialChangelistNumber;
};
struct nv_build_version_v2 {		/* up to 550 */
	char driverVersionBuffer[256], versionBuffer[256], titleBuffer[256];
	__u32 changelistNumber, officialChangelistNumber;
};
struct nv_build_version_v2_570 {	/* from 570 on */
	char driverVersionBuffer[256], versionBuffer[256], driverBranch[256], titleBuffer[256];
	__u32 changelistNumber, officialChangelistNumber;
};
struct nv_boost_groups {
	__u32 groupCount;
	struct { __u32 gpuCount, gpuIds[32], boostGroupId; __u8 bBridgeless, pad0[3]; } pBoostGroups[16];
};
struct nv_id_info {
	__u32 gpuId, gpuFlags, deviceInstance, subDeviceInstance;
	__u64 szName;
	__u32 sliStatus, boardId, gpuInstance; __s32 numaId;
};
struct nv_id_info_v2 { __u32 gpuId, gpuFlags, deviceInstance, subDeviceInstance, sliStatus, boardId, gpuInstance; __s32 numaId; };

/* /dev/nvidia-uvm takes plain numbers. */
#define UVM_INITIALIZE 0x30000001
#define UVM_DEINITIALIZE 0x30000002
#define UVM_REGISTER_GPU 37
#define UVM_PAGEABLE_MEM_ACCESS 39
#define UVM_MM_INITIALIZE 75
#define UVM_INIT_FLAGS_MASK 3ull

struct uvm_initialize { __u64 flags; __u32 rmStatus, pad0; };
struct uvm_mm_initialize { __s32 uvmFd; __u32 rmStatus; };
struct uvm_pageable_mem_access { __u8 pageableMemAccess, pad0[3]; __u32 rmStatus; };
struct uvm_register_gpu { __u8 gpu_uuid[16]; __u8 numaEnabled, pad0[3]; __s32 numaNodeId, rmCtrlFd; __u32 hClient, hSmcPartRef, rmStatus; };

#define NV_OK 0x0
#define NV_WARN_NOTHING_TO_DO 0x10006
#define NV_ERR_ILLEGAL_ACTION 0x16
#define NV_ERR_INSERT_DUPLICATE_NAME 0x19
#define NV_ERR_INSUFFICIENT_RESOURCES 0x1a
#define NV_ERR_INSUFFICIENT_PERMISSIONS 0x1b
#define NV_ERR_INVALID_ADDRESS 0x1e
#define NV_ERR_INVALID_ARGUMENT 0x1f
#define NV_ERR_INVALID_CLASS 0x22
#define NV_ERR_INVALID_CLIENT 0x23
#define NV_ERR_INVALID_EVENT 0x28
#define NV_ERR_INVALID_LIMIT 0x2e
#define NV_ERR_INVALID_OBJECT_HANDLE 0x33
#define NV_ERR_INVALID_OBJECT_PARENT 0x36
#define NV_ERR_INVALID_OFFSET 0x37
#define NV_ERR_INVALID_PARAM_STRUCT 0x3a
#define NV_ERR_INVALID_POINTER 0x3d
#define NV_ERR_INVALID_STATE 0x40
#define NV_ERR_NO_MEMORY 0x51
#define NV_ERR_NOT_SUPPORTED 0x56
#define NV_ERR_OBJECT_NOT_FOUND 0x57

#endif
