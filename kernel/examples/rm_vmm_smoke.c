// SPDX-License-Identifier: GPL-2.0-only
/*
 * As rm_alloc_smoke, through virtual-memory objects: reserves a range of addresses, makes a physical object, and maps it there, as
 * cuMemAddressReserve, cuMemCreate and cuMemMap do.
 */
#include "rm.h"

int main(int argc, char **argv)
{
	struct rm rm;
	int arg = rm_options(&rm, argc, argv, 3, "SIZE COUNT SECONDS");
	__u64 size = rm_number(argv[arg]), count = rm_number(argv[arg + 1]), seconds = rm_number(argv[arg + 2]), i, held = 0;
	struct { __u32 range, memory; __u64 address; bool mapped; } *item = calloc(count + 1, sizeof(*item));

	if (!item)
		rm_die("cannot hold that many handles");
	rm_start(&rm);
	for (i = 0; i < count; i++) {
		__u64 bytes = size, start;
		__u32 status = rm_reserve(&rm, &item[i].range, size, &start);

		printf("reserve %llu: status %#x, object %#x, address %#llx\n", i, status, item[i].range, start);
		if (status != NV_OK) {
			item[i].range = 0;
			continue;
		}
		status = rm_memory(&rm, &item[i].memory, &bytes);
		printf("create %llu: status %#x, object %#x, %llu bytes\n", i, status, item[i].memory, bytes);
		if (status != NV_OK) {
			item[i].memory = 0;
			continue;
		}
		held += bytes;
		status = rm_map(&rm, item[i].range, item[i].memory, size, &item[i].address);
		printf("map %llu: status %#x, address %#llx\n", i, status, item[i].address);
		item[i].mapped = status == NV_OK;
	}
	printf("holding %llu bytes\n", held);
	sleep(seconds);
	for (i = 0; i < count; i++) {
		if (item[i].mapped)
			printf("unmap %llu: status %#x\n", i, rm_unmap(&rm, item[i].range, item[i].memory, item[i].address));
		if (item[i].memory)
			printf("release %llu: status %#x\n", i, rm_free(&rm, item[i].memory));
		if (item[i].range)
			printf("free %llu: status %#x\n", i, rm_free(&rm, item[i].range));
	}
	printf("client: status %#x\n", rm_free(&rm, rm.client));
	return rm.refused ? 3 : 0;
}
