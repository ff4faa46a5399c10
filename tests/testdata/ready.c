// Prints what nvmlSystemGetConfComputeGpusReadyState answers.
#include <stdio.h>

#include "nvml.h"

int main(void)
{
	unsigned int ready = 0;
	if (nvmlInit_v2())
		return 1;
	nvmlReturn_t ret = nvmlSystemGetConfComputeGpusReadyState(&ready);
	printf("%d %u\n", ret, ready);
	return nvmlShutdown();
}
