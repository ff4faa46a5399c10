/* These functions are exported by libnvidia-ml.so and declared in no nvml.h. The generator and the C compiler read
 * this file after each nvml.h. */
#ifndef NVMLFAB_INTERNAL_H
#define NVMLFAB_INTERNAL_H

/* Every driver exports it. nvidia-smi asks it for a table of unnamed functions by GUID and does not start without
 * that table. */
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);

/* These are the earlier names of the functions with "Excluded". Headers from 11.6 on, which also introduced the bus
 * types, have them as macros, but libraries still export them. */
#ifdef NVML_BUS_TYPE_PCI
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *deviceCount);
nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info);
#endif

#endif
