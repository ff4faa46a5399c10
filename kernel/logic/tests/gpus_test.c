// SPDX-License-Identifier: GPL-2.0-only
#include "../gpus.h"
#include "suite.h"

#define UUID "GPU-4a4b4c4d-0102-0304-A5B6-0708090a0b0c"

static struct gpu gpu;

static const char whole[] = "0000:1a:00.0/0/10de:2330/85520809984/" UUID "/NVIDIA_H100_80GB%20HBM3/96.00.89.00.01/52/580.105.08";

static void gpus_whole(struct kunit *test)
{
	KUNIT_ASSERT_PTR_EQ(test, gpu_parse(whole, &gpu), NULL);
	KUNIT_EXPECT_EQ(test, gpu.domain, 0u);
	KUNIT_EXPECT_EQ(test, gpu.bus, 0x1a);
	KUNIT_EXPECT_EQ(test, gpu.minor, 0);
	KUNIT_EXPECT_EQ(test, gpu.vendor, 0x10de);
	KUNIT_EXPECT_EQ(test, gpu.device, 0x2330);
	KUNIT_EXPECT_EQ(test, gpu.memory, 85520809984ull);
	KUNIT_EXPECT_EQ(test, gpu.uuid[0], 0x4a);
	KUNIT_EXPECT_EQ(test, gpu.uuid[8], 0xa5);
	KUNIT_EXPECT_EQ(test, gpu.uuid[15], 0x0c);
	KUNIT_EXPECT_EQ(test, strcmp(gpu.uuid_text, UUID), 0);
	KUNIT_EXPECT_EQ(test, strcmp(gpu.name, "NVIDIA H100 80GB HBM3"), 0);
	KUNIT_EXPECT_EQ(test, strcmp(gpu.vbios, "96.00.89.00.01"), 0);
	KUNIT_EXPECT_EQ(test, gpu.dma_bits, 52);
	KUNIT_EXPECT_EQ(test, strcmp(gpu.firmware, "580.105.08"), 0);
	KUNIT_EXPECT_EQ(test, gpu_id(&gpu), 0x1a00u);
	KUNIT_ASSERT_PTR_EQ(test, gpu_parse("123Abcde:fF:1f.7/247/0001:ffff/18446744073709551615/" UUID "/%41/v/64/f", &gpu), NULL);
	KUNIT_EXPECT_EQ(test, gpu.domain, 0x123abcdeu);
	KUNIT_EXPECT_EQ(test, gpu.bus, 0xff);
	KUNIT_EXPECT_EQ(test, gpu.slot, 0x1f);
	KUNIT_EXPECT_EQ(test, gpu.function, 7);
	KUNIT_EXPECT_EQ(test, gpu.minor, 247);
	KUNIT_EXPECT_EQ(test, gpu.memory, U64_MAX);
	KUNIT_EXPECT_EQ(test, strcmp(gpu.name, "A"), 0);
	KUNIT_EXPECT_EQ(test, gpu_id(&gpu), 0xbcdeff1fu);
}

/* A text that is cut anywhere is refused. */
static void gpus_cut(struct kunit *test)
{
	char text[sizeof(whole)];
	u32 i, firmware = sizeof(whole) - sizeof("580.105.08");

	for (i = 0; i < sizeof(whole); i++) {
		memcpy(text, whole, i);
		text[i] = 0;
		KUNIT_EXPECT_EQ(test, gpu_parse(text, &gpu) == NULL, i > firmware);
	}
}

static void gpus_refused(struct kunit *test)
{
	static const char minor[] = "/0/10de:2330/1/" UUID "/n/v/52/f", device[] = "/10de:2330/1/" UUID "/n/v/52/f", memory[] = "/1/" UUID "/n/v/52/f";
	static const char id[] = "/" UUID "/n/v/52/f", name[] = "/n/v/52/f";
	static const struct { const char *text, *rest; } starts[] = {
		{ "000:1a:00.0", minor }, { "000000000:1a:00.0", minor }, { "0000:1a:20.0", minor }, { "0000:1a:00.8", minor }, { "0000:1:00.0", minor },
		{ "0000:1a:00.00", minor }, { "0000-1a:00.0", minor }, { "g000:1a:00.0", minor }, { "0000:1a:00:0", minor }, { "", minor },
		{ "0000:1a:00.0/248", device }, { "0000:1a:00.0/-1", device }, { "0000:1a:00.0/01", device }, { "0000:1a:00.0/", device },
		{ "0000:1a:00.0/0/10de", memory }, { "0000:1a:00.0/0/10de:233", memory }, { "0000:1a:00.0/0/0x10:2330", memory },
		{ "0000:1a:00.0/0/10de:2330/18446744073709551616", id }, { "0000:1a:00.0/0/10de:2330/", id }, { "0000:1a:00.0/0/10de:2330/1k", id },
		{ "0000:1a:00.0/0/10de:2330/1/GPU-4a4b4c4d-0102-0304-a5b6-0708090a0b0", name },
		{ "0000:1a:00.0/0/10de:2330/1/gpu-4a4b4c4d-0102-0304-a5b6-0708090a0b0c", name },
		{ "0000:1a:00.0/0/10de:2330/1/GPU-4a4b4c4d0102-0304-a5b6-0708090a0b0c", name },
	};
	static const char * const ends[] = {
		"/", "/n/", "/%4/v/52/f", "/%0a/v/52/f", "/a\x7f/v/52/f", "/a%/v/52/f", "//v/52/f", "/n//52/f", "/n/v/31/f", "/n/v/65/f", "/n/v//f",
		"/n/v/52/", "/n/v/52/f/", "/n/v/52/f/g",
		"/n/v/52/12345678901234567890123456789012", "/n/12345678901234567890123456789012/52/f",
	};
	char text[300];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(starts); i++) {	/* the rest of the text is valid */
		strcpy(text, starts[i].text);
		strcat(text, starts[i].rest);
		KUNIT_EXPECT_TRUE(test, gpu_parse(text, &gpu) != NULL);
	}
	for (i = 0; i < ARRAY_SIZE(ends); i++) {
		strcpy(text, "0000:1a:00.0/0/10de:2330/1/" UUID);
		strcat(text, ends[i]);
		KUNIT_EXPECT_TRUE(test, gpu_parse(text, &gpu) != NULL);
	}
	KUNIT_EXPECT_TRUE(test, gpu_parse("0000:1a:00.0/0/10de:2330/1/GPU-00000000-0000-0000-0000-000000000000/n/v/52/f", &gpu) != NULL);
	KUNIT_EXPECT_PTR_EQ(test, gpu_parse("0000:1a:00.0/0/10de:2330/1/" UUID "/n/v/52/1234567890123456789012345678901", &gpu), NULL);
	KUNIT_EXPECT_PTR_EQ(test, gpu_parse("0000:1a:00.0/0/10de:2330/0/" UUID "/n/v/32/f", &gpu), NULL);
}

static void gpus_clash(struct kunit *test)
{
	static struct gpu gpus[3];

	gpu_parse("0000:1a:00.0/0/10de:2330/1/" UUID "/n/v/52/f", &gpus[0]);
	gpu_parse("0000:1b:00.0/1/10de:2330/1/GPU-00000000-0000-0000-0000-000000000001/n/v/52/f", &gpus[1]);
	gpus[2] = gpus[1];
	KUNIT_EXPECT_PTR_EQ(test, gpu_clash(gpus, 1), NULL);
	KUNIT_EXPECT_PTR_EQ(test, gpu_clash(gpus, 2), NULL);
	KUNIT_EXPECT_EQ(test, strcmp(gpu_clash(gpus, 3), "the bus id"), 0);
	gpus[2].bus = 0x1c;
	KUNIT_EXPECT_EQ(test, strcmp(gpu_clash(gpus, 3), "the minor number"), 0);
	gpus[2].minor = 2;
	KUNIT_EXPECT_EQ(test, strcmp(gpu_clash(gpus, 3), "the UUID"), 0);
	gpus[2].uuid[0] = 1;
	KUNIT_EXPECT_PTR_EQ(test, gpu_clash(gpus, 3), NULL);
}

static void gpus_driver_version(struct kunit *test)
{
	static const char * const valid[] = { "580.105.08", "535.43", "1.2.3.4", "0.0", "1234567890123456789012345678.12" };
	static const char * const invalid[] = { "", "580", "580.", ".580", "580..1", "580.1a", "1.2.3.4.5", "580.1 ", "12345678901234567890123456789.12" };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(valid); i++)
		KUNIT_EXPECT_TRUE(test, driver_version_valid(valid[i]));
	for (i = 0; i < ARRAY_SIZE(invalid); i++)
		KUNIT_EXPECT_FALSE(test, driver_version_valid(invalid[i]));
}

static struct kunit_case cases[] = {
	KUNIT_CASE(gpus_whole), KUNIT_CASE(gpus_cut), KUNIT_CASE(gpus_refused), KUNIT_CASE(gpus_clash), KUNIT_CASE(gpus_driver_version),
	{}
};
SUITE(gpus, cases);
