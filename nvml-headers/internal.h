/* What libnvidia-ml.so exports and no nvml.h declares. The generator reads this file after
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

#endif
