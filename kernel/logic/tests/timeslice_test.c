// SPDX-License-Identifier: GPL-2.0-only
#include "../timeslice.h"
#include "suite.h"

static u64 rewrite(u64 us, u32 weight, u64 min, u64 max)
{
	struct timeslice_rule rule = { weight, min, max };

	return timeslice_rewrite(us, &rule);
}

static void timeslice_weights(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rewrite(2000, 0, 0, 0), 2000ull);
	KUNIT_EXPECT_EQ(test, rewrite(2000, 1, 0, 0), 2000ull);
	KUNIT_EXPECT_EQ(test, rewrite(2000, 3, 0, 0), 3 * rewrite(2000, 1, 0, 0));
	KUNIT_EXPECT_EQ(test, rewrite(1, 10000, 0, 0), 10000ull);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX / 3, 3, 0, 0), U64_MAX);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX / 2, 2, 0, 0), U64_MAX - 1);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX / 2 + 1, 2, 0, 0), U64_MAX);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX, U32_MAX, 0, 0), U64_MAX);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX, 1, 0, 0), U64_MAX);
}

static void timeslice_bounds(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rewrite(999, 0, 1000, 0), 1000ull);
	KUNIT_EXPECT_EQ(test, rewrite(1000, 0, 1000, 0), 1000ull);
	KUNIT_EXPECT_EQ(test, rewrite(1001, 0, 1000, 0), 1001ull);
	KUNIT_EXPECT_EQ(test, rewrite(9999, 0, 0, 10000), 9999ull);
	KUNIT_EXPECT_EQ(test, rewrite(10000, 0, 0, 10000), 10000ull);
	KUNIT_EXPECT_EQ(test, rewrite(10001, 0, 0, 10000), 10000ull);
	KUNIT_EXPECT_EQ(test, rewrite(500, 3, 1000, 10000), 1500ull);	/* bounds come after the weight */
	KUNIT_EXPECT_EQ(test, rewrite(300, 3, 1000, 10000), 1000ull);
	KUNIT_EXPECT_EQ(test, rewrite(5000, 3, 1000, 10000), 10000ull);
	KUNIT_EXPECT_EQ(test, rewrite(U64_MAX, 3, 1000, 10000), 10000ull);
	KUNIT_EXPECT_EQ(test, rewrite(5000, 1, 7000, 7000), 7000ull);
}

static void timeslice_contradiction(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rewrite(1, 0, 5000, 2000), 2000ull);
	KUNIT_EXPECT_EQ(test, rewrite(3000, 0, 5000, 2000), 2000ull);
	KUNIT_EXPECT_EQ(test, rewrite(9000, 2, 5000, 2000), 2000ull);
}

static void timeslice_zero(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rewrite(0, 0, 0, 0), 0ull);
	KUNIT_EXPECT_EQ(test, rewrite(0, 3, 1000, 2000), 0ull);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(timeslice_weights), KUNIT_CASE(timeslice_bounds), KUNIT_CASE(timeslice_contradiction), KUNIT_CASE(timeslice_zero), {}
};
SUITE(timeslice, cases);
