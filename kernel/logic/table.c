// SPDX-License-Identifier: GPL-2.0-only
#include "table.h"

#define BITS_MIN 4u
#define BITS_MAX 24u

static u64 mix(u64 x)
{
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;	/* the finalizer of MurmurHash3, which is in the public domain */
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* Users choose keys. The hash includes the address of the buckets, which users do not know, so they
 * cannot choose keys that share a bucket. */
static u64 bucket_of(const struct table *t, struct table_node **buckets, u32 bits, u64 a, u64 b)
{
	u64 hash = mix(a ^ mix((unsigned long)buckets));

	return mix(t->grouped ? hash : hash ^ b) >> (64 - bits);
}

/* If there is no memory for more buckets, the chains grow instead. */
static int grow(struct table *t)
{
	u32 bits = t->buckets ? t->bits + 1 : BITS_MIN;
	struct table_node **buckets, *n;
	u64 i, to;

	if (t->buckets && (bits > BITS_MAX || t->count >> t->bits == 0))
		return 0;
	buckets = logic_alloc(sizeof(*buckets) << bits);
	if (!buckets)
		return t->buckets ? 0 : -ENOMEM;
	for (i = 0; t->buckets && i < 1ull << t->bits; i++)
		while ((n = t->buckets[i])) {
			t->buckets[i] = n->next;
			to = bucket_of(t, buckets, bits, n->a, n->b);
			n->next = buckets[to];
			buckets[to] = n;
		}
	logic_free(t->buckets);
	t->buckets = buckets;
	t->bits = bits;
	return 0;
}

struct table_node *table_find(const struct table *t, u64 a, u64 b)
{
	struct table_node *n = t->buckets ? t->buckets[bucket_of(t, t->buckets, t->bits, a, b)] : NULL;

	while (n && (n->a != a || n->b != b))
		n = n->next;
	return n;
}

struct table_node *table_group(const struct table *t, u64 a, const struct table_node *after)
{
	struct table_node *n;

	if (after)
		n = after->next;
	else
		n = t->buckets ? t->buckets[bucket_of(t, t->buckets, t->bits, a, 0)] : NULL;
	while (n && n->a != a)
		n = n->next;
	return n;
}

int table_insert(struct table *t, struct table_node *n, u64 a, u64 b)
{
	struct table_node **at;
	int err;

	if (table_find(t, a, b))
		return -EEXIST;
	err = grow(t);
	if (err)
		return err;
	at = &t->buckets[bucket_of(t, t->buckets, t->bits, a, b)];
	n->a = a;
	n->b = b;
	n->next = *at;
	*at = n;
	t->count++;
	return 0;
}

void table_remove(struct table *t, struct table_node *n)
{
	struct table_node **at = &t->buckets[bucket_of(t, t->buckets, t->bits, n->a, n->b)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	t->count--;
}

int table_each(struct table *t, int (*visit)(struct table_node *n, void *context), void *context)
{
	struct table_node *n, *next;
	int result;
	u64 i;

	for (i = 0; t->buckets && i < 1ull << t->bits; i++)
		for (n = t->buckets[i]; n; n = next) {
			next = n->next;
			result = visit(n, context);
			if (result)
				return result;
		}
	return 0;
}

void table_clear(struct table *t, void (*release)(struct table_node *n, void *context), void *context)
{
	struct table_node *n;
	u64 i;

	for (i = 0; t->buckets && i < 1ull << t->bits; i++)
		while ((n = t->buckets[i])) {
			t->buckets[i] = n->next;
			t->count--;
			if (release)
				release(n, context);
		}
	logic_free(t->buckets);
	t->buckets = NULL;
	t->bits = 0;
}
