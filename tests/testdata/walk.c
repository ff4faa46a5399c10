// Prints the answer of entry 255 of nvidia-smi's table for the first GPU. walkthrough_test.go writes the function for
// it.
#include <stdio.h>

#include "nvml.h"

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *guid);

struct walk {
	unsigned int width;
	unsigned long long area;
};

int main(void)
{
	static const unsigned char guid[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
	                                       0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
	const void *table;
	nvmlDevice_t dev;
	struct walk walk = {0};
	if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &dev) || nvmlInternalGetExportTable(&table, guid))
		return 1;
	nvmlReturn_t (*entry)(nvmlDevice_t, struct walk *) = ((nvmlReturn_t(*const *)(nvmlDevice_t, struct walk *))table)[255];
	nvmlReturn_t ret = entry(dev, &walk);
	printf("%d %u %llu\n", ret, walk.width, walk.area);
	return nvmlShutdown();
}
