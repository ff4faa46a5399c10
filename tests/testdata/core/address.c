// Starts NVML, in a process in which the core's own address is free, and with an argument in one in which it is taken. Prints how
// many KB of the core's data are this process's own, and how many of its code it keeps.
#include "core.h"

// own adds up the figures of /proc/self/smaps of that name, for mappings of the core that have that permission.
static unsigned long own(const char *figure, char permission)
{
	char line[512];
	unsigned long total = 0, kb;
	int counts = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");
	check(maps != NULL);
	while (fgets(line, sizeof line, maps) != NULL) {
		char flags[8];
		if (sscanf(line, "%*x-%*x %7s", flags) == 1)
			counts = strstr(line, "libnvmlfab-core.so.1") != NULL && strchr(flags, permission) != NULL;
		else if (counts && strncmp(line, figure, strlen(figure)) == 0 && sscanf(line + strlen(figure), " %lu", &kb) == 1)
			total += kb;
	}
	fclose(maps);
	return total;
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		void *taken = (void *)strtoul(argv[1], NULL, 0);
		check(mmap(taken, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == taken);
	}
	char name[64];
	unsigned int gpus = 0;
	nvmlDevice_t gpu;
	for (int i = 0; i < 3; i++) {
		answers(NVML_SUCCESS, nvmlInit_v2());
		answers(NVML_SUCCESS, nvmlDeviceGetCount_v2(&gpus));
		check(gpus > 0);
		answers(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(gpus - 1, &gpu));
		answers(NVML_SUCCESS, nvmlDeviceGetName(gpu, name, sizeof name));
		if (i < 2)
			answers(NVML_SUCCESS, nvmlShutdown());
	}
	pid_t child = fork(); // whose core has to be relocated in any case
	check(child >= 0);
	if (child == 0) {
		answers(NVML_SUCCESS, nvmlDeviceGetName(gpu, name, sizeof name));
		answers(NVML_SUCCESS, nvmlShutdown());
		_exit(0);
	}
	int status;
	check(waitpid(child, &status, 0) == child && status == 0);
	printf("own %lu code %lu\n", own("Private_Dirty:", 'w'), own("Rss:", 'x'));
	return 0;
}
