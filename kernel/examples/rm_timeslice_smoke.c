// SPDX-License-Identifier: GPL-2.0-only
/* Makes a channel group, sets its timeslice, and reads it back. */
#include "rm.h"

int main(int argc, char **argv)
{
	struct rm rm;
	int arg = rm_options(&rm, argc, argv, 1, "MICROSECONDS");
	__u64 us = rm_number(argv[arg]), value = 0;
	struct nv_channel_group params = { .engineType = 1 };	/* NV2080_ENGINE_TYPE_GRAPHICS */
	__u32 group = 0, status;

	rm_start(&rm);
	rm_need("group", &rm, rm.device, &group, KEPLER_CHANNEL_GROUP_A, &params, sizeof(params));
	status = rm_control(&rm, group, NVA06C_CTRL_CMD_GET_TIMESLICE, &value, sizeof(value));
	printf("get: status %#x, %llu us\n", status, value);
	status = rm_control(&rm, group, NVA06C_CTRL_CMD_SET_TIMESLICE, &us, sizeof(us));
	printf("set: status %#x, %llu us\n", status, us);
	status = rm_control(&rm, group, NVA06C_CTRL_CMD_GET_TIMESLICE, &value, sizeof(value));
	printf("get: status %#x, %llu us\n", status, value);
	printf("client: status %#x\n", rm_free(&rm, rm.client));
	return rm.refused ? 3 : 0;
}
