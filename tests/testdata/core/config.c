// Prints the result of nvmlInit with a configuration, and what NVML shows afterwards.
#include <time.h>

#include "core.h"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

// look reads every GPU: indexes, names and UUIDs must be there.
static void look(void)
{
	unsigned int n, index;
	ok(nvmlDeviceGetCount_v2(&n));
	char (*uuid)[96] = calloc(n, sizeof *uuid);
	check(uuid != NULL);
	for (unsigned int i = 0; i < n; i++) {
		nvmlDevice_t dev, same;
		ok(nvmlDeviceGetHandleByIndex_v2(i, &dev));
		ok(nvmlDeviceGetIndex(dev, &index));
		check(index == i);
		ok(nvmlDeviceGetUUID(dev, uuid[i], sizeof uuid[i]));
		ok(nvmlDeviceGetHandleByUUID(uuid[i], &same)); // and no other GPU has it
		check(address(same) == address(dev));
	}
	free(uuid);
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex_v2(n, &(nvmlDevice_t){ 0 }));
}

int main(int argc, char **argv)
{
	alarm(300);
	if (argc == 3) { // as a user that may not read the file; that needs a core which is loaded already
		ok(nvmlInit_v2());
		ok(nvmlShutdown());
		check(setenv("MOCK_NVML_CONFIG", argv[1], 1) == 0);
		check(setresuid((uid_t)atol(argv[2]), (uid_t)atol(argv[2]), (uid_t)atol(argv[2])) == 0);
	}
	unsigned int n = 4711;
	double begin = now();
	int answer = (int)nvmlInit_v2();
	double took = now() - begin;
	if (answer != NVML_SUCCESS) {
		printf("nvmlInit %d\n", answer);
		answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&n));
		answers(NVML_SUCCESS, nvmlShutdown());
		check(n == 4711);
		return 0;
	}
	ok(nvmlDeviceGetCount_v2(&n));
	look();
	double first = took;
	for (int i = 0; i < 5; i++) { // a second nvmlInit does not load the core again
		ok(nvmlShutdown());
		begin = now();
		ok(nvmlInit_v2());
		took = now() - begin < took ? now() - begin : took;
	}
	ok(nvmlShutdown());
	printf("nvmlInit 0 with %u GPUs in %.0f µs, the first in %.0f\n", n, took * 1e3, first * 1e3);
	return 0;
}
