// SPDX-License-Identifier: GPL-2.0-only
#include "../objects.h"
#include "suite.h"

#define OBJECTS 20000

static struct rm_objects t;
static struct rm_object o[OBJECTS];
static u32 gone[OBJECTS], released;	/* gone: the order of their release, from 1 on */

static void start(void)
{
	memset(&t, 0, sizeof(t));
	memset(o, 0, sizeof(o));
	memset(gone, 0, sizeof(gone));
	released = 0;
}

static void release(struct rm_object *object, void *context)
{
	struct kunit *test = context;

	KUNIT_EXPECT_EQ(test, gone[object - o], 0u);
	gone[object - o] = ++released;
	memset(object, 0xa5, sizeof(*object));	/* so that nobody can use it any more */
}

/* client 1: 0 with 1 and 2 below it, 3 and 4 below 1, 5 below 3; client 2: 6 with 7 below it. */
static void plant(struct kunit *test)
{
	static const struct { u32 client, handle; int parent; } forest[] = {
		{ 1, 1, -1 }, { 1, 10, 0 }, { 1, 20, 0 }, { 1, 30, 1 }, { 1, 40, 1 }, { 1, 50, 3 }, { 2, 2, -1 }, { 2, 10, 6 },
	};
	u32 i;

	start();
	for (i = 0; i < ARRAY_SIZE(forest); i++)
		KUNIT_ASSERT_EQ(test, rm_add(&t, &o[i], forest[i].parent < 0 ? NULL : &o[forest[i].parent], forest[i].client,
					     forest[i].handle, 100 + i), 0);
}

static void objects_names(struct kunit *test)
{
	struct rm_object again;

	plant(test);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 1, 50), &o[5]);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 2, 10), &o[7]);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 2, 50), NULL);
	KUNIT_EXPECT_EQ(test, rm_client(&o[5]), 1u);
	KUNIT_EXPECT_EQ(test, rm_handle(&o[5]), 50u);
	KUNIT_EXPECT_EQ(test, o[5].class, 105u);
	KUNIT_EXPECT_PTR_EQ(test, o[5].parent, &o[3]);
	KUNIT_EXPECT_PTR_EQ(test, o[0].parent, NULL);
	KUNIT_EXPECT_EQ(test, rm_add(&t, &again, &o[0], 1, 10, 0), -EEXIST);
	KUNIT_EXPECT_PTR_EQ(test, o[1].parent, &o[0]);
	rm_clear(&t, release, test);
	KUNIT_EXPECT_EQ(test, released, 8u);
}

static void objects_subtrees(struct kunit *test)
{
	plant(test);
	rm_remove(&t, &o[1], release, test);
	KUNIT_EXPECT_EQ(test, released, 4u);
	KUNIT_EXPECT_TRUE(test, gone[1] && gone[3] && gone[4] && gone[5]);
	KUNIT_EXPECT_TRUE(test, gone[5] < gone[3] && gone[3] < gone[1] && gone[4] < gone[1]);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 1, 50), NULL);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 1, 20), &o[2]);
	KUNIT_EXPECT_PTR_EQ(test, o[0].child, &o[2]);
	KUNIT_EXPECT_EQ(test, t.table.count, 4ull);

	rm_remove(&t, &o[2], release, test);
	KUNIT_EXPECT_PTR_EQ(test, o[0].child, NULL);
	rm_remove(&t, &o[6], release, test);
	KUNIT_EXPECT_TRUE(test, gone[7] && gone[7] < gone[6]);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 1, 1), &o[0]);
	rm_clear(&t, release, test);
	KUNIT_EXPECT_EQ(test, released, 8u);
	KUNIT_EXPECT_EQ(test, t.table.count, 0ull);
}

/* A sibling in any place can be removed. */
static void objects_siblings(struct kunit *test)
{
	u32 i, out, left;
	struct rm_object *child;

	for (out = 1; out <= 3; out++) {
		start();
		for (i = 0; i <= 3; i++)
			KUNIT_ASSERT_EQ(test, rm_add(&t, &o[i], i ? &o[0] : NULL, 1, i + 1, 0), 0);
		rm_remove(&t, &o[out], release, test);
		for (left = 0, child = o[0].child; child; child = child->next) {
			KUNIT_EXPECT_PTR_EQ(test, *child->link, child);
			left |= 1u << (child - o);
		}
		KUNIT_EXPECT_EQ(test, left, 0xeu & ~(1u << out));
		rm_clear(&t, release, test);
		KUNIT_EXPECT_EQ(test, released, 4u);
	}
}

static void objects_move(struct kunit *test)
{
	plant(test);
	KUNIT_EXPECT_EQ(test, rm_move(&o[3], &o[2]), 0);
	KUNIT_EXPECT_PTR_EQ(test, o[3].parent, &o[2]);
	KUNIT_EXPECT_PTR_EQ(test, o[2].child, &o[3]);
	KUNIT_EXPECT_PTR_EQ(test, o[1].child, &o[4]);
	KUNIT_EXPECT_PTR_EQ(test, o[4].next, NULL);
	KUNIT_EXPECT_EQ(test, rm_move(&o[2], &o[5]), -EINVAL);		/* below itself */
	KUNIT_EXPECT_EQ(test, rm_move(&o[2], &o[2]), -EINVAL);
	KUNIT_EXPECT_EQ(test, rm_move(&o[0], &o[2]), -EINVAL);		/* a root */
	KUNIT_EXPECT_EQ(test, rm_move(&o[3], &o[2]), 0);		/* where it is */
	rm_remove(&t, &o[2], release, test);
	KUNIT_EXPECT_EQ(test, released, 3u);
	KUNIT_EXPECT_TRUE(test, gone[5] && gone[3] && gone[2]);
	rm_clear(&t, release, test);
	KUNIT_EXPECT_EQ(test, released, 8u);
}

/* A chain too deep for recursion on any stack, and an object with very many children. */
static void objects_deep_and_broad(struct kunit *test)
{
	u32 i, wrong;
	int broad;

	for (broad = 0; broad < 2; broad++) {
		start();
		for (i = 0; i < OBJECTS; i++)
			KUNIT_ASSERT_EQ(test, rm_add(&t, &o[i], i ? &o[broad ? 0 : i - 1] : NULL, 1, i + 1, 0), 0);
		rm_remove(&t, &o[0], release, test);
		for (wrong = 0, i = 1; i < OBJECTS; i++)
			wrong += !(gone[i] < gone[broad ? 0 : i - 1]);
		KUNIT_EXPECT_EQ(test, wrong, 0u);
		KUNIT_EXPECT_EQ(test, released, (u32)OBJECTS);
		KUNIT_EXPECT_EQ(test, t.table.count, 0ull);
		rm_clear(&t, release, test);
	}
}

static void objects_cleared_children_first(struct kunit *test)
{
	u32 i, wrong = 0;

	start();
	for (i = 0; i < OBJECTS; i++)	/* a hundred roots, each a tree of its own shape */
		KUNIT_ASSERT_EQ(test, rm_add(&t, &o[i], i < 100 ? NULL : &o[i - 100 * (1 + i % 7 % (i / 100))], i % 100, i, 0), 0);
	rm_clear(&t, release, test);
	for (i = 100; i < OBJECTS; i++)
		wrong += !(gone[i] < gone[i - 100 * (1 + i % 7 % (i / 100))]);
	KUNIT_EXPECT_EQ(test, wrong, 0u);
	KUNIT_EXPECT_EQ(test, released, (u32)OBJECTS);
}

static void objects_unused(struct kunit *test)
{
	u32 next = 9;

	plant(test);
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 1, &next), 9u);
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 1, &next), 11u);		/* 10 is used */
	KUNIT_EXPECT_EQ(test, next, 12u);
	next = 1;
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 0, &next), 3u);		/* as clients 1 and 2 are */
	next = 10;
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 0, &next), 10u);		/* whatever handles there are in them */
	next = U32_MAX;
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 1, &next), U32_MAX);
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 1, &next), 2u);		/* 0 is none, and 1 is the client's own */
	KUNIT_EXPECT_EQ(test, rm_unused(&t, 3, &next), 3u);
	rm_clear(&t, release, test);
}

static void objects_without_memory(struct kunit *test)
{
	start();
	memory_fail_at = 1;
	KUNIT_EXPECT_EQ(test, rm_add(&t, &o[0], NULL, 1, 1, 0), -ENOMEM);
	KUNIT_EXPECT_PTR_EQ(test, rm_find(&t, 1, 1), NULL);
	rm_clear(&t, release, test);
	KUNIT_EXPECT_EQ(test, released, 0u);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(objects_names), KUNIT_CASE(objects_subtrees), KUNIT_CASE(objects_siblings), KUNIT_CASE(objects_move),
	KUNIT_CASE(objects_deep_and_broad), KUNIT_CASE(objects_cleared_children_first), KUNIT_CASE(objects_unused),
	KUNIT_CASE(objects_without_memory), {}
};
SUITE(objects, cases);
