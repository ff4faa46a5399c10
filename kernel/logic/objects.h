/* SPDX-License-Identifier: GPL-2.0-only */
/* The objects of the resource manager: a forest in which every client is a root. An object is named by (client,
 * handle); a client's own handle is its client number. Freeing an object frees everything below it, children first. */
#ifndef LOGIC_OBJECTS_H
#define LOGIC_OBJECTS_H

#include "table.h"

struct rm_object {
	struct table_node node;		/* a: client, b: handle */
	struct rm_object *parent, *child, *next, **link;	/* link: what points to this one among its siblings */
	u32 class;
};

struct rm_objects { struct table table; };

static inline u32 rm_client(const struct rm_object *o) { return o->node.a; }
static inline u32 rm_handle(const struct rm_object *o) { return o->node.b; }

struct rm_object *rm_find(const struct rm_objects *t, u32 client, u32 handle);
/* parent NULL: a root. -EEXIST, -ENOMEM. */
int rm_add(struct rm_objects *t, struct rm_object *o, struct rm_object *parent, u32 client, u32 handle, u32 class);
/* Moves o, with all below it, to another parent of the same client. -EINVAL, and nothing changes,
 * if the parent is o or lies below it, or if o is a root. */
int rm_move(struct rm_object *o, struct rm_object *parent);
/* Takes out o and all below it, children first, and calls release for each. It does not recurse,
 * since chains may be as long as memory allows. */
void rm_remove(struct rm_objects *t, struct rm_object *o, void (*release)(struct rm_object *o, void *context), void *context);
/* A free handle of that client, or a free client number if client is 0; 0 if all are taken. It
 * counts up from *next and advances it. */
u32 rm_unused(const struct rm_objects *t, u32 client, u32 *next);
void rm_clear(struct rm_objects *t, void (*release)(struct rm_object *o, void *context), void *context);

#endif
