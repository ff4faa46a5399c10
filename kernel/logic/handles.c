// SPDX-License-Identifier: GPL-2.0-only
#include "handles.h"

u64 handle_bytes(u64 size)
{
	return size > U64_MAX - (HANDLE_PAGE - 1) ? 0 : (size + HANDLE_PAGE - 1) / HANDLE_PAGE * HANDLE_PAGE;
}

int handles_alloc(struct handles *h, u64 bytes, u32 *number)
{
	struct handle *handle;
	int err;

	if (!bytes)
		return -EINVAL;
	if (h->count >= h->max || h->used > h->quota || bytes > h->quota - h->used || h->last == U32_MAX)
		return -ENOSPC;
	handle = logic_alloc(sizeof(*handle));
	if (!handle)
		return -ENOMEM;
	err = table_insert(&h->table, &handle->node, h->last + 1, 0);
	if (err) {
		logic_free(handle);
		return err;
	}
	handle->bytes = bytes;
	handle->uses = 1;
	h->used += bytes;
	h->count++;
	*number = ++h->last;
	return 0;
}

struct handle *handles_find(struct handles *h, u32 number)
{
	struct table_node *n = table_find(&h->table, number, 0);
	struct handle *handle = n ? container_of(n, struct handle, node) : NULL;

	return handle && !handle->freed ? handle : NULL;
}

/* A freed handle stays in the table while a job holds it, so that handles_clear finds it. Its
 * number is not given out again. */
u64 handles_free(struct handles *h, u32 number, int *error)
{
	struct handle *handle = handles_find(h, number);

	*error = handle ? 0 : -EINVAL;
	if (!handle)
		return 0;
	handle->freed = true;
	h->count--;
	return handle_put(h, handle);
}

void handle_hold(struct handle *handle)
{
	handle->uses++;
}

u64 handle_put(struct handles *h, struct handle *handle)
{
	u64 bytes = handle->bytes;

	if (--handle->uses)
		return 0;
	table_remove(&h->table, &handle->node);
	logic_free(handle);
	h->used -= bytes;
	return bytes;
}

static void release(struct table_node *n, void *context)
{
	(void)context;
	logic_free(container_of(n, struct handle, node));
}

u64 handles_clear(struct handles *h)
{
	u64 bytes = h->used;

	table_clear(&h->table, release, NULL);
	h->used = 0;
	h->count = 0;
	return bytes;
}
