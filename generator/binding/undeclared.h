/*
 * Symbols that libnvidia-ml.so exports and no nvml.h (or not every nvml.h) declares.
 * The types that they need are declared opaquely; the front compiles against the real header.
 */
typedef enum nvmlReturn_enum { NVML_SUCCESS = 0 } nvmlReturn_t;
typedef struct nvmlExcludedDeviceInfo_st { int opaque; } nvmlExcludedDeviceInfo_t;

/* nvidia-smi asks for a table of unnamed functions by GUID and does not start without it */
nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);

/* the names before "excluded"; headers keep them as macros, libraries as symbols */
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *deviceCount);
nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info);
