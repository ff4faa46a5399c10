// Loads the library named by the argument as nvidia-smi does, with all symbols resolved at once, and prints the result
// of nvmlInit.
#include <dlfcn.h>
#include <stdio.h>

#include "nvml.h"

int main(int argc, char **argv)
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: load LIBRARY");
		return 1;
	}
	nvmlReturn_t (*init)(void);
	*(void **)&init = dlsym(lib, "nvmlInit_v2");
	nvmlReturn_t (*count)(unsigned int *);
	*(void **)&count = dlsym(lib, "nvmlDeviceGetCount_v2");

	unsigned int n = 0;
	printf("count before %d\n", count(&n));
	printf("init %d\n", init());
	printf("count after %d\n", count(&n));
	return 0;
}
