// Prints how many GPUs there are, and ends with 9 unless it has another's privileges.
#include <sys/auxv.h>

#include "core.h"

int main(void)
{
	unsigned int count;
	if (getauxval(AT_SECURE) == 0)
		return 9;
	ok(nvmlInit_v2());
	ok(nvmlDeviceGetCount_v2(&count));
	printf("%u\n", count);
	return 0;
}
