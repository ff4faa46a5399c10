// SPDX-License-Identifier: GPL-2.0-only
#include "objects.h"

static struct rm_object *object_of(struct table_node *n)
{
	return n ? container_of(n, struct rm_object, node) : NULL;
}

struct rm_object *rm_find(const struct rm_objects *t, u32 client, u32 handle)
{
	return object_of(table_find(&t->table, client, handle));
}

static void link_below(struct rm_object *o, struct rm_object *parent)
{
	o->parent = parent;
	o->next = parent->child;
	if (o->next)
		o->next->link = &o->next;
	o->link = &parent->child;
	parent->child = o;
}

static void unlink_object(struct rm_object *o)
{
	if (!o->parent)
		return;
	*o->link = o->next;
	if (o->next)
		o->next->link = o->link;
}

int rm_add(struct rm_objects *t, struct rm_object *o, struct rm_object *parent, u32 client, u32 handle, u32 class)
{
	int err = table_insert(&t->table, &o->node, client, handle);

	if (err)
		return err;
	o->parent = NULL;
	o->child = NULL;
	o->next = NULL;
	o->link = NULL;
	o->class = class;
	if (parent)
		link_below(o, parent);
	return 0;
}

int rm_move(struct rm_object *o, struct rm_object *parent)
{
	struct rm_object *p;

	if (!o->parent)
		return -EINVAL;
	for (p = parent; p; p = p->parent)
		if (p == o)
			return -EINVAL;
	unlink_object(o);
	link_below(o, parent);
	return 0;
}

void rm_remove(struct rm_objects *t, struct rm_object *o, void (*release)(struct rm_object *o, void *context), void *context)
{
	struct rm_object *leaf = o, *parent;
	bool done;

	do {
		while (leaf->child)
			leaf = leaf->child;
		done = leaf == o;
		parent = leaf->parent;
		unlink_object(leaf);
		table_remove(&t->table, &leaf->node);
		release(leaf, context);
		leaf = parent;
	} while (!done);
}

u32 rm_unused(const struct rm_objects *t, u32 client, u32 *next)
{
	u64 tries;
	u32 n;

	/* One number more than there are objects: so one of them is free, unless all numbers are
	 * taken. */
	for (tries = 0; tries < t->table.count + 2 && tries <= U32_MAX; tries++) {
		n = (*next)++;
		if (n && !rm_find(t, client ? client : n, n))
			return n;
	}
	return 0;
}

void rm_clear(struct rm_objects *t, void (*release)(struct rm_object *o, void *context), void *context)
{
	struct rm_object *root;
	u64 i;

	for (i = 0; t->table.buckets && i < 1ull << t->table.bits; i++)
		while ((root = object_of(t->table.buckets[i]))) {
			while (root->parent)
				root = root->parent;
			rm_remove(t, root, release, context);
		}
	table_clear(&t->table, NULL, NULL);
}
