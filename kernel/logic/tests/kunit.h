/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of the kernel's <kunit/test.h> that the suites use, for user space. Its output has KUnit's format, too. */
#ifndef LOGIC_TESTS_KUNIT_H
#define LOGIC_TESTS_KUNIT_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

struct kunit {
	const char *name;
	bool failed;
	jmp_buf aborted;
};

struct kunit_case {
	void (*run_case)(struct kunit *test);
	const char *name;
};

struct kunit_suite {
	const char *name;
	int (*init)(struct kunit *test);
	void (*exit)(struct kunit *test);
	struct kunit_case *test_cases;
	struct kunit_suite *next;
};

#define KUNIT_CASE(function) { .run_case = (function), .name = #function }

void kunit_add(struct kunit_suite *suite);
#define kunit_test_suite(suite) \
	__attribute__((constructor)) static void kunit_add_##suite(void) { kunit_add(&(suite)); }

void kunit_fail(struct kunit *test, bool abort, const char *file, int line, const char *what, long long left, long long right);

#define KUNIT_CHECK(test, abort, condition, what, left, right) \
	do { \
		if (!(condition)) \
			kunit_fail((test), (abort), __FILE__, __LINE__, (what), (long long)(left), (long long)(right)); \
	} while (0)
#define KUNIT_CHECK_EQ(test, abort, left, right) \
	do { \
		long long kunit_left = (long long)(left), kunit_right = (long long)(right); \
		KUNIT_CHECK(test, abort, kunit_left == kunit_right, #left " == " #right, kunit_left, kunit_right); \
	} while (0)

#define KUNIT_EXPECT_EQ(test, left, right) KUNIT_CHECK_EQ(test, false, left, right)
#define KUNIT_ASSERT_EQ(test, left, right) KUNIT_CHECK_EQ(test, true, left, right)
#define KUNIT_EXPECT_TRUE(test, c) KUNIT_CHECK(test, false, (c), #c, 0, 1)
#define KUNIT_ASSERT_TRUE(test, c) KUNIT_CHECK(test, true, (c), #c, 0, 1)
#define KUNIT_EXPECT_FALSE(test, c) KUNIT_CHECK(test, false, !(c), "!(" #c ")", 1, 0)
#define KUNIT_EXPECT_PTR_EQ(test, left, right) KUNIT_CHECK(test, false, (const void *)(left) == (const void *)(right), #left " == " #right, 0, 0)
#define KUNIT_ASSERT_PTR_EQ(test, left, right) KUNIT_CHECK(test, true, (const void *)(left) == (const void *)(right), #left " == " #right, 0, 0)
#define KUNIT_ASSERT_PTR_NE(test, left, right) KUNIT_CHECK(test, true, (const void *)(left) != (const void *)(right), #left " != " #right, 0, 0)

#endif
