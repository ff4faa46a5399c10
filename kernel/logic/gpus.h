/* SPDX-License-Identifier: GPL-2.0-only */
/* The description of a GPU of the NVIDIA personality as text. "nvmlfab fakegpu" writes it, and the module parameter
 * gpus takes it:
 *
 *   BUS/MINOR/VENDOR:DEVICE/MEMORY/UUID/NAME/VBIOS/DMABITS/FIRMWARE
 *
 * such as
 *
 *   0000:1a:00.0/0/10de:2330/85520809984/GPU-4a4b…/NVIDIA_H100_80GB_HBM3/96.00.89.00.01/52/580.105.08
 *
 * BUS is DOMAIN:BUS:SLOT.FUNCTION in hexadecimal digits. MEMORY is in bytes, and is decimal like MINOR and DMABITS.
 * In NAME, VBIOS and FIRMWARE "_" means a blank and %XX the byte of that number, since a module parameter cannot
 * have every character. No part may be left out. */
#ifndef LOGIC_GPUS_H
#define LOGIC_GPUS_H

#include "portable.h"

#define GPUS_MAX 32		/* the arrays of ids in the resource manager's answers hold no more */
#define GPU_MINOR_MAX 247

struct gpu {
	u32 domain;
	u8 bus, slot, function;
	u8 minor;		/* N of /dev/nvidiaN */
	u16 vendor, device;
	u8 dma_bits;
	u64 memory;		/* bytes; 0: it has no memory of its own */
	u8 uuid[16];
	char uuid_text[41];	/* GPU- and the UUID */
	char name[96];
	char vbios[32], firmware[32];
};

/* The resource manager's number for the GPU, which the driver computes from the address. */
static inline u32 gpu_id(const struct gpu *gpu)
{
	return (gpu->domain & 0xffff) << 16 | gpu->bus << 8 | gpu->slot;
}

/* Returns NULL, or what is wrong with the text. */
const char *gpu_parse(const char *text, struct gpu *gpu);
/* Returns NULL, or the name of what the last of count GPUs must not share with an earlier one but does: id, minor,
 * UUID. */
const char *gpu_clash(const struct gpu *gpus, u32 count);
/* Whether text is a version of the driver: 2 to 4 decimal numbers with dots between. */
bool driver_version_valid(const char *text);

#endif
