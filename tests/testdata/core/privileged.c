// A program that may have its owner's privileges and its caller's environment.
#include <sys/auxv.h>

#include "core.h"

int nvgpufilter_install(void);

int main(int argc, char **argv)
{
	check(argc == 2);
	int privileged = getauxval(AT_SECURE) != 0;
	if (strcmp(argv[1], "is-privileged") == 0)
		return privileged ? 0 : 9;
	const char *staged = "/sys/bus/pci/devices/mark";
	if (strcmp(argv[1], "plain") == 0) {
		check(!privileged);
		check(access(staged, F_OK) == 0);
		check(nvgpufilter_install() == 0);
		answers(NVML_ERROR_LIBRARY_NOT_FOUND, nvmlInit_v2());
		return 0;
	}
	check(privileged);
	check(access(staged, F_OK) != 0);
	check(nvgpufilter_install() == 0);
	ok(nvmlInit_v2());
	learn();
	return 0;
}
