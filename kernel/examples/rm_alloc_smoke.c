// SPDX-License-Identifier: GPL-2.0-only
/* Allocates memory of a GPU COUNT times SIZE bytes at a time, holds it, and frees it. */
#include "rm.h"

int main(int argc, char **argv)
{
	struct rm rm;
	int arg = rm_options(&rm, argc, argv, 3, "SIZE COUNT SECONDS");
	__u64 size = rm_number(argv[arg]), count = rm_number(argv[arg + 1]), seconds = rm_number(argv[arg + 2]), i, held = 0;
	__u32 *memory = calloc(count + 1, sizeof(*memory));

	if (!memory)
		rm_die("cannot hold that many handles");
	rm_start(&rm);
	for (i = 0; i < count; i++) {
		__u64 bytes = size;
		__u32 status = rm_memory(&rm, &memory[i], &bytes);

		printf("alloc %llu: status %#x, object %#x, %llu bytes\n", i, status, memory[i], bytes);
		if (status == NV_OK)
			held += bytes;
		else
			memory[i] = 0;
	}
	printf("holding %llu bytes\n", held);
	sleep(seconds);
	for (i = 0; i < count; i++)
		if (memory[i])
			printf("free %llu: status %#x\n", i, rm_free(&rm, memory[i]));
	printf("client: status %#x\n", rm_free(&rm, rm.client));
	return rm.refused ? 3 : 0;
}
