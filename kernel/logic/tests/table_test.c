// SPDX-License-Identifier: GPL-2.0-only
#include "../table.h"
#include "suite.h"

#define NODES 3000

static struct table table;
static struct table_node nodes[NODES];

static void start(void)
{
	memset(&table, 0, sizeof(table));
	memset(nodes, 0, sizeof(nodes));
}

static int insert(u32 i)
{
	return table_insert(&table, &nodes[i], i % 50, i / 50);
}

static void table_empty(struct kunit *test)
{
	start();
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 0, 0), NULL);
	KUNIT_EXPECT_PTR_EQ(test, table_group(&table, 0, NULL), NULL);
	KUNIT_EXPECT_EQ(test, table_each(&table, NULL, NULL), 0);
	table_clear(&table, NULL, NULL);
	KUNIT_EXPECT_EQ(test, table.count, 0ull);
}

static void table_keys(struct kunit *test)
{
	u32 i;

	start();
	for (i = 0; i < NODES; i++) {
		KUNIT_ASSERT_EQ(test, insert(i), 0);
		KUNIT_ASSERT_EQ(test, table.count, i + 1ull);
	}
	KUNIT_EXPECT_TRUE(test, NODES <= 1u << table.bits);	/* it grows with its content */
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_PTR_EQ(test, table_find(&table, i % 50, i / 50), &nodes[i]);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 50, 0), NULL);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 0, NODES / 50), NULL);

	/* All 64 bits of both keys count. */
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 1ull << 32, 0), NULL);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 0, 1ull << 63), NULL);

	for (i = 0; i < NODES; i += 2)
		table_remove(&table, &nodes[i]);
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_PTR_EQ(test, table_find(&table, i % 50, i / 50), i % 2 ? &nodes[i] : NULL);
	KUNIT_EXPECT_EQ(test, table.count, NODES / 2ull);
	table_clear(&table, NULL, NULL);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 1, 0), NULL);
}

static void table_twice(struct kunit *test)
{
	struct table_node again = { 0 };

	start();
	KUNIT_ASSERT_EQ(test, insert(7), 0);
	KUNIT_EXPECT_EQ(test, table_insert(&table, &again, 7, 0), -EEXIST);
	KUNIT_EXPECT_EQ(test, table.count, 1ull);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 7, 0), &nodes[7]);
	table_remove(&table, &nodes[7]);
	KUNIT_EXPECT_EQ(test, table_insert(&table, &again, 7, 0), 0);
	KUNIT_EXPECT_PTR_EQ(test, table_find(&table, 7, 0), &again);
	table_clear(&table, NULL, NULL);
}

/* Each member of a group is found exactly once, whatever else is in the table and however it grew. */
static void table_groups(struct kunit *test)
{
	struct table_node *n;
	u32 i, a, seen;

	start();
	table.grouped = true;
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_EQ(test, table_insert(&table, &nodes[i], i / 3, i % 3), 0);
	for (a = 0; a < NODES / 3; a++) {
		seen = 0;
		for (n = table_group(&table, a, NULL); n; n = table_group(&table, a, n)) {
			KUNIT_ASSERT_EQ(test, n->a, (u64)a);
			seen |= 1u << n->b;
		}
		KUNIT_ASSERT_EQ(test, seen, 7u);
		KUNIT_ASSERT_PTR_EQ(test, table_find(&table, a, 2), &nodes[3 * a + 2]);
	}
	KUNIT_EXPECT_PTR_EQ(test, table_group(&table, NODES / 3, NULL), NULL);
	for (a = 0; (n = table_group(&table, 5, NULL)); a++)
		table_remove(&table, n);
	KUNIT_EXPECT_EQ(test, a, 3u);
	KUNIT_EXPECT_EQ(test, table.count, NODES - 3ull);
	table_clear(&table, NULL, NULL);
}

static int visit(struct table_node *n, void *context)
{
	u32 *visits = context;

	visits[n - nodes]++;
	if (n->a == 3) {
		table_remove(&table, n);
		memset(n, 0xff, sizeof(*n));	/* and is freed */
	}
	return 0;
}

static int stop(struct table_node *n, void *context)
{
	u32 *visits = context;

	(void)n;
	return ++*visits == 10 ? -EINVAL : 0;
}

static void count(struct table_node *n, void *context)
{
	u32 *visits = context;

	visits[n - nodes]++;
}

static void table_walks(struct kunit *test)
{
	static u32 visits[NODES];
	u32 i, stopped = 0;

	start();
	memset(visits, 0, sizeof(visits));
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_EQ(test, insert(i), 0);
	KUNIT_EXPECT_EQ(test, table_each(&table, stop, &stopped), -EINVAL);
	KUNIT_EXPECT_EQ(test, stopped, 10u);
	KUNIT_EXPECT_EQ(test, table_each(&table, visit, visits), 0);
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_EQ(test, visits[i], 1u);
	KUNIT_EXPECT_EQ(test, table.count, NODES - NODES / 50ull);
	table_clear(&table, count, visits);
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_EQ(test, visits[i], i % 50 == 3 ? 1u : 2u);
	KUNIT_EXPECT_EQ(test, table.count, 0ull);
	KUNIT_EXPECT_EQ(test, insert(0), 0);	/* an empty one like any other */
	table_clear(&table, NULL, NULL);
}

static void table_without_memory(struct kunit *test)
{
	u32 i;

	start();
	memory_fail_at = 1;
	KUNIT_EXPECT_EQ(test, insert(0), -ENOMEM);
	KUNIT_EXPECT_EQ(test, table.count, 0ull);
	/* With enough buckets it needs no more memory. */
	for (i = 0; i < NODES; i++) {
		memory_fail_at = i ? 1 : 0;
		KUNIT_ASSERT_EQ(test, insert(i), 0);
	}
	memory_fail_at = 0;
	for (i = 0; i < NODES; i++)
		KUNIT_ASSERT_PTR_EQ(test, table_find(&table, i % 50, i / 50), &nodes[i]);
	table_clear(&table, NULL, NULL);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(table_empty), KUNIT_CASE(table_keys), KUNIT_CASE(table_twice), KUNIT_CASE(table_groups), KUNIT_CASE(table_walks),
	KUNIT_CASE(table_without_memory), {}
};
SUITE(table, cases);
