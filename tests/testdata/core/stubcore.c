// A minimal core in C for threads.c, in place of the one in Go. With it a race detector for C sees both sides of the
// gate. The symbols' numbers and the model's hash come from the command line.
#include <pthread.h>
#include <stdlib.h>

#include "front.h"

enum { GPUS = 8 };

static struct nvmlfab_space *space;
static _Atomic uint64_t gpus[GPUS]; // the GPUs' handles in this generation; 0 between generations
static _Atomic uint64_t sets[1 << 16];
static _Atomic uint32_t nsets;

// take makes a GPU's handle.
static uint64_t take(uint32_t device)
{
	uint64_t number = atomic_fetch_add(&space->next, 1);
	uint32_t region = 0;
	while (number >= (NVMLFAB_FIRST << (region + 1)) - NVMLFAB_FIRST)
		region++;
	if (space->region[region] == NULL && !space->grow(space, region))
		abort();
	struct nvmlfab_slot *slot = &space->region[region][number - ((NVMLFAB_FIRST << region) - NVMLFAB_FIRST)];
	slot->device = device;
	slot->generation = space->generation;
	slot->kind = 1;
	return (uint64_t)(uintptr_t)slot;
}

// index_of returns the GPU that a handle stands for, or -1.
static int index_of(uint64_t handle)
{
	for (int i = 0; handle != 0 && i < GPUS; i++)
		if (gpus[i] == handle)
			return i;
	return -1;
}

static nvmlReturn_t text(const uint64_t *a, const char *prefix)
{
	int i = index_of(a[0]);
	if (i < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	char *to = (char *)(uintptr_t)a[1];
	strcpy(to, prefix);
	to[strlen(prefix) - 1] = (char)('0' + i);
	return NVML_SUCCESS;
}

__attribute__((visibility("default"))) uint32_t nvmlfab_answer(uint32_t index, const uint64_t *a)
{
	switch (index) {
	case NVMLFAB_HELLO:
		space = (struct nvmlfab_space *)(uintptr_t)a[1];
		*(uint64_t *)(uintptr_t)a[2] = MODEL_HASH;
		return NVML_SUCCESS;
	case NVMLFAB_LEVEL:
		return 999999999; // later than every function
	case nvmlInit_v2_:
		for (uint32_t i = 0; i < GPUS; i++)
			gpus[i] = take(i);
		return NVML_SUCCESS;
	case nvmlShutdown_:
		for (uint32_t i = 0; i < GPUS; i++)
			gpus[i] = 0;
		return NVML_SUCCESS;
	case nvmlDeviceGetCount_v2_:
		*(unsigned int *)(uintptr_t)a[0] = gpus[0] == 0 ? 0 : GPUS;
		return NVML_SUCCESS;
	case nvmlDeviceGetHandleByIndex_v2_:
		*(uint64_t *)(uintptr_t)a[1] = gpus[a[0]];
		return NVML_SUCCESS;
	case nvmlDeviceGetUUID_:
		return text(a, "GPU-?");
	case nvmlDeviceGetName_:
		return text(a, "board ?");
	case nvmlEventSetCreate_: {
		uint32_t n = atomic_fetch_add(&nsets, 1);
		sets[n % (1 << 16)] = n + 1;
		*(uint64_t *)(uintptr_t)a[0] = n + 1;
		return NVML_SUCCESS;
	}
	case nvmlEventSetFree_: {
		uint64_t set = a[0];
		return atomic_compare_exchange_strong(&sets[(set - 1) % (1 << 16)], &set, 0) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	}
	}
	return NVML_ERROR_NOT_SUPPORTED;
}
