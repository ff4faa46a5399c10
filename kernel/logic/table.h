/* SPDX-License-Identifier: GPL-2.0-only */
/* A hash table of structures that embed a table_node, by a key of two numbers. It grows as it
 * fills. A zeroed table is empty. */
#ifndef LOGIC_TABLE_H
#define LOGIC_TABLE_H

#include "portable.h"

struct table_node {
	struct table_node *next;
	u64 a, b;
};

struct table {
	struct table_node **buckets;
	u32 bits;		/* 2^bits buckets, none while buckets is NULL */
	bool grouped;		/* set before the first insertion: table_group may be used; for keys of which few share one a */
	u64 count;
};

int table_insert(struct table *t, struct table_node *n, u64 a, u64 b);	/* -EEXIST, -ENOMEM */
struct table_node *table_find(const struct table *t, u64 a, u64 b);
/* The next node of the same a in a grouped table, after a node or from the first (NULL), in no
 * order. */
struct table_node *table_group(const struct table *t, u64 a, const struct table_node *after);
void table_remove(struct table *t, struct table_node *n);		/* n is in it */
/* Calls visit for each node, which it may remove and free (no other). Stops at the first result that is not 0, and returns it. */
int table_each(struct table *t, int (*visit)(struct table_node *n, void *context), void *context);
/* Removes every node, calling release for each if it is not NULL, and frees the buckets. */
void table_clear(struct table *t, void (*release)(struct table_node *n, void *context), void *context);

#endif
