// Initialises the library, calls it and shuts it down, several times, and prints one answer per line.
#include <stdio.h>
#include <string.h>

#include "nvml.h"

#define SAY(call) printf("%s = %d\n", #call, call)

// go-nvml's header wraps a handle in a struct and NVIDIA's own does not. These functions work with both.
static nvmlDevice_t at(const void *address)
{
	nvmlDevice_t dev;
	memcpy(&dev, &address, sizeof dev);
	return dev;
}

static char *address(nvmlDevice_t dev)
{
	char *p;
	memcpy(&p, &dev, sizeof p);
	return p;
}

int main(void)
{
	char name[96];
	unsigned int n;
	int foreign[16] = { 0 };
	nvmlDevice_t dev = at(foreign), stale;

	puts("# before nvmlInit");
	SAY(nvmlDeviceGetCount_v2(&n));
	SAY(nvmlDeviceGetCount_v2(NULL));
	SAY(nvmlDeviceGetName(dev, name, sizeof name));
	SAY(nvmlDeviceGetName(at(NULL), NULL, 0));
	SAY(nvmlSystemGetDriverVersion(name, sizeof name));
	SAY(nvmlShutdown());

	puts("# initialised twice, shut down once");
	SAY(nvmlInit_v2());
	SAY(nvmlInitWithFlags(0));
	SAY(nvmlDeviceGetCount_v2(&n));
	SAY(nvmlDeviceGetHandleByIndex_v2(0, &dev));
	SAY(nvmlShutdown());
	SAY(nvmlDeviceGetName(dev, name, sizeof name));

	puts("# handles that are none");
	SAY(nvmlDeviceGetName(at(NULL), name, sizeof name));
	SAY(nvmlDeviceGetName(at((void *)1), name, sizeof name));
	SAY(nvmlDeviceGetName(at(foreign), name, sizeof name));
	SAY(nvmlDeviceGetName(at(address(dev) + 8), name, sizeof name));

	puts("# arguments that are none");
	SAY(nvmlDeviceGetCount_v2(NULL));
	SAY(nvmlDeviceGetName(dev, NULL, 96));
	SAY(nvmlDeviceGetName(dev, name, 4));
	SAY(nvmlDeviceGetHandleByIndex_v2(n, &dev));
	SAY(nvmlDeviceGetHandleByIndex_v2(0, NULL));

	puts("# shut down for good");
	stale = dev;
	SAY(nvmlShutdown());
	SAY(nvmlDeviceGetName(stale, name, sizeof name));
	SAY(nvmlDeviceGetCount_v2(&n));
	SAY(nvmlShutdown());

	puts("# a second life");
	SAY(nvmlInit_v2());
	SAY(nvmlDeviceGetName(stale, name, sizeof name));
	SAY(nvmlDeviceGetHandleByIndex_v2(0, &dev));
	SAY(nvmlDeviceGetName(dev, name, sizeof name));
	printf("the stale handle is %sthe new one\n", address(stale) == address(dev) ? "" : "not ");
	SAY(nvmlShutdown());
	return 0;
}
