/* SPDX-License-Identifier: GPL-2.0-only */
/* What every suite uses. The suites are written once and run in user space (main.c) and in the kernel, as KUnit. */
#ifndef LOGIC_TESTS_SUITE_H
#define LOGIC_TESTS_SUITE_H

#ifdef __KERNEL__
#include <kunit/test.h>
#else
#include "kunit.h"
#endif
#include "../portable.h"

/* The number of live blocks, and the number of the allocation from now on that fails: 1 is the next one, 0 none. */
extern u64 memory_live, memory_fail_at;

static inline int suite_init(struct kunit *test)
{
	(void)test;
	memory_live = 0;
	memory_fail_at = 0;
	return 0;
}

static inline void suite_exit(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, memory_live, 0ull);	/* every test gives back what it took */
}

#define SUITE(title, cases) \
	static struct kunit_suite title##_suite = { .name = #title, .init = suite_init, .exit = suite_exit, .test_cases = cases }; \
	kunit_test_suite(title##_suite)

/* Returns the same sequence each time. */
static inline u64 next_random(u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

#endif
