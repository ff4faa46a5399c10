// Prints what nvmlDeviceGetIrqNum answers for the first GPU.
#include <stdio.h>

#include "nvml.h"

int main(void)
{
	nvmlDevice_t dev;
	unsigned int irq = 0;
	if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &dev))
		return 1;
	nvmlReturn_t ret = nvmlDeviceGetIrqNum(dev, &irq);
	printf("%d %u\n", ret, irq);
	return nvmlShutdown();
}
