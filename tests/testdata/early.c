// Calls the library named by the argument before nvmlInit and after it was shut down.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: early LIBRARY");
		return 1;
	}
	int (*version)(char *, unsigned int), (*driver)(char *, unsigned int), (*shutdown)(void), (*count)(unsigned int *);
	*(void **)&version = dlsym(lib, "nvmlSystemGetNVMLVersion");
	*(void **)&driver = dlsym(lib, "nvmlSystemGetDriverVersion");
	*(void **)&shutdown = dlsym(lib, "nvmlShutdown");
	*(void **)&count = dlsym(lib, "nvmlDeviceGetCount_v2");

	char text[96] = "";
	unsigned int n = 0;
	printf("version %d", version(text, sizeof text));
	printf(" %s\n", text);
	printf("too short %d\n", version(text, 2));
	printf("nowhere %d\n", version(NULL, sizeof text));
	printf("driver %d\n", driver(text, sizeof text));
	printf("count %d\n", count(&n));
	printf("shutdown %d\n", shutdown());
	printf("shutdown %d\n", shutdown());
	printf("version %d\n", version(text, sizeof text));
	return 0;
}
