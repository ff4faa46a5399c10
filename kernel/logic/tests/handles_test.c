// SPDX-License-Identifier: GPL-2.0-only
#include "../handles.h"
#include "suite.h"

#define PAGE HANDLE_PAGE

static struct handles h;

static void start(u64 quota, u32 max)
{
	memset(&h, 0, sizeof(h));
	h.quota = quota;
	h.max = max;
}

static void handles_rounding(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, handle_bytes(0), 0ull);
	KUNIT_EXPECT_EQ(test, handle_bytes(1), PAGE);
	KUNIT_EXPECT_EQ(test, handle_bytes(PAGE - 1), PAGE);
	KUNIT_EXPECT_EQ(test, handle_bytes(PAGE), PAGE);
	KUNIT_EXPECT_EQ(test, handle_bytes(PAGE + 1), 2 * PAGE);
	KUNIT_EXPECT_EQ(test, handle_bytes(U64_MAX - PAGE + 1), U64_MAX - PAGE + 1);
	KUNIT_EXPECT_EQ(test, handle_bytes(U64_MAX - PAGE + 2), 0ull);
	KUNIT_EXPECT_EQ(test, handle_bytes(U64_MAX), 0ull);
}

static void handles_quota(struct kunit *test)
{
	u32 n = 0, first;

	start(4 * PAGE, 10);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, 0, &n), -EINVAL);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, 3 * PAGE, &first), 0);
	KUNIT_EXPECT_EQ(test, first, 1u);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, 2 * PAGE, &n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, U64_MAX - PAGE + 1, &n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, n, 2u);
	KUNIT_EXPECT_EQ(test, h.used, 4 * PAGE);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), -ENOSPC);
	h.quota = PAGE;			/* now below the memory in use */
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, h.count, 2u);
	KUNIT_EXPECT_EQ(test, handles_clear(&h), 4 * PAGE);
	KUNIT_EXPECT_EQ(test, h.used, 0ull);
	KUNIT_EXPECT_EQ(test, h.count, 0u);
}

static void handles_max(struct kunit *test)
{
	u32 n, i;
	int err;

	start(U64_MAX, 3);
	for (i = 0; i < 3; i++)
		KUNIT_ASSERT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), -ENOSPC);
	KUNIT_EXPECT_EQ(test, handles_free(&h, 2, &err), PAGE);
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, n, 4u);		/* 2 is not used again */
	handles_clear(&h);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, n, 5u);		/* nor are the others */
	h.last = U32_MAX;
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), -ENOSPC);
	h.last = U32_MAX - 1;
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, n, U32_MAX);
	handles_clear(&h);
}

static void handles_unknown(struct kunit *test)
{
	u32 n;
	int err = 0;

	start(U64_MAX, 3);
	KUNIT_EXPECT_PTR_EQ(test, handles_find(&h, 0), NULL);
	KUNIT_EXPECT_EQ(test, handles_free(&h, 1, &err), 0ull);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	KUNIT_ASSERT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, handles_free(&h, 0, &err), 0ull);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	KUNIT_EXPECT_EQ(test, handles_free(&h, n, &err), PAGE);
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_EQ(test, handles_free(&h, n, &err), 0ull);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	KUNIT_EXPECT_EQ(test, h.used, 0ull);
	KUNIT_EXPECT_EQ(test, h.count, 0u);
	handles_clear(&h);
}

/* A handle that a job uses ends for its owner at once. Its memory is freed with the last job. */
static void handles_held(struct kunit *test)
{
	struct handle *handle;
	u32 n, other;
	int err;

	start(2 * PAGE, 2);
	KUNIT_ASSERT_EQ(test, handles_alloc(&h, 2 * PAGE, &n), 0);
	handle = handles_find(&h, n);
	KUNIT_ASSERT_PTR_NE(test, handle, NULL);
	KUNIT_EXPECT_EQ(test, handle->bytes, 2 * PAGE);
	handle_hold(handle);
	handle_hold(handle);
	KUNIT_EXPECT_EQ(test, handle_put(&h, handle), 0ull);
	KUNIT_EXPECT_PTR_EQ(test, handles_find(&h, n), handle);
	KUNIT_EXPECT_EQ(test, handles_free(&h, n, &err), 0ull);
	KUNIT_EXPECT_EQ(test, err, 0);
	KUNIT_EXPECT_PTR_EQ(test, handles_find(&h, n), NULL);
	KUNIT_EXPECT_EQ(test, handles_free(&h, n, &err), 0ull);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	KUNIT_EXPECT_EQ(test, h.count, 0u);
	KUNIT_EXPECT_EQ(test, h.used, 2 * PAGE);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &other), -ENOSPC);
	KUNIT_EXPECT_EQ(test, handle_put(&h, handle), 2 * PAGE);
	KUNIT_EXPECT_EQ(test, h.used, 0ull);
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &other), 0);
	handles_clear(&h);
}

static void handles_cleared_while_held(struct kunit *test)
{
	u32 n;
	int err;

	start(U64_MAX, 2);
	KUNIT_ASSERT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	handle_hold(handles_find(&h, n));
	KUNIT_EXPECT_EQ(test, handles_free(&h, n, &err), 0ull);
	KUNIT_ASSERT_EQ(test, handles_alloc(&h, 3 * PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, handles_clear(&h), 4 * PAGE);
}

static void handles_without_memory(struct kunit *test)
{
	u32 n = 77, i;

	start(U64_MAX, 2);
	for (i = 1; i <= 2; i++) {	/* the handle, then the table */
		memory_fail_at = i;
		KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), -ENOMEM);
		KUNIT_EXPECT_EQ(test, h.used, 0ull);
		KUNIT_EXPECT_EQ(test, h.count, 0u);
		KUNIT_EXPECT_EQ(test, n, 77u);
	}
	KUNIT_EXPECT_EQ(test, handles_alloc(&h, PAGE, &n), 0);
	KUNIT_EXPECT_EQ(test, n, 1u);
	handles_clear(&h);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(handles_rounding), KUNIT_CASE(handles_quota), KUNIT_CASE(handles_max), KUNIT_CASE(handles_unknown),
	KUNIT_CASE(handles_held), KUNIT_CASE(handles_cleared_while_held), KUNIT_CASE(handles_without_memory), {}
};
SUITE(handles, cases);
