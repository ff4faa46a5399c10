// SPDX-License-Identifier: GPL-2.0-only
#include "../gpus.h"
#include "program.h"
#include "suite.h"

/* A valid text in which the program changes some bytes. */
void program_gpus(struct program *p)
{
	static const char whole[] =
		"0000:1a:00.0/0/10de:2330/85520809984/GPU-4a4b4c4d-0102-0304-a5b6-0708090a0b0c/NVIDIA_H100/96.00/52/580.105";
	static struct gpu gpu;
	char *text = logic_alloc(sizeof(whole));
	const char *wrong;

	if (!text)
		return;
	memcpy(text, whole, sizeof(whole));
	while (p->size) {
		u8 at = program_byte(p);

		text[at % (sizeof(whole) - 1)] = program_byte(p);
	}
	wrong = gpu_parse(text, &gpu);
	if (!wrong) {
		PROGRAM_EXPECT(p, gpu.slot < 32 && gpu.function < 8 && gpu.minor <= GPU_MINOR_MAX && gpu.dma_bits >= 32 && gpu.dma_bits <= 64);
		PROGRAM_EXPECT(p, strlen(gpu.uuid_text) == 40 && strlen(gpu.name) && strlen(gpu.name) < sizeof(gpu.name));
		PROGRAM_EXPECT(p, strlen(gpu.vbios) < sizeof(gpu.vbios) && strlen(gpu.firmware) < sizeof(gpu.firmware));
		PROGRAM_EXPECT(p, !gpu_clash(&gpu, 1));
	}
	driver_version_valid(text);
	logic_free(text);
}
