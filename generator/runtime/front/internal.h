/* What libnvidia-ml.so answers and no nvml.h declares. The generator reads this file after
 * each nvml.h, and so does the C compiler. */
#ifndef NVMLFAB_INTERNAL_H
#define NVMLFAB_INTERNAL_H

/* Exported by every driver. nvidia-smi asks for a table of unnamed functions by GUID and
 * does not start without it. */
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);

/* The names before "excluded": headers from 11.6 on, which also brought the bus types, keep
 * them as macros, libraries as symbols. */
#ifdef NVML_BUS_TYPE_PCI
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *deviceCount);
nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info);
#endif

/* Entries of that table, named by their number. Their meaning was seen from what nvidia-smi
 * prints after each answer; every other entry answers NOT_SUPPORTED. */

/* a process as the entries 213 to 215 list it */
typedef struct {
    unsigned int pid;
    unsigned int reserved0;
    unsigned long long usedGpuMemory; /* bytes */
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
    unsigned long long reserved1;
    char name[4096];
} nvmlInternalProcess_t;

/* whether dmon and pmon may watch the GPU */
nvmlReturn_t nvmlInternalSlot72(nvmlDevice_t device, unsigned int *supported);
/* compute, MPS compute and graphics processes, in this order */
nvmlReturn_t nvmlInternalSlot213(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);
nvmlReturn_t nvmlInternalSlot214(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);
nvmlReturn_t nvmlInternalSlot215(nvmlDevice_t device, unsigned int *count, nvmlInternalProcess_t *processes);
/* GPU part number and FRU part number */
nvmlReturn_t nvmlInternalSlot231(nvmlDevice_t device, char *partNumber, unsigned int length);
nvmlReturn_t nvmlInternalSlot237(nvmlDevice_t device, char *partNumber, unsigned int length);

#endif
