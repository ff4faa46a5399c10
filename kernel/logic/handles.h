/* SPDX-License-Identifier: GPL-2.0-only */
/* The handles of a fakegpu context: numbers from 1 on, each with a size, within a quota of bytes
 * and of handles. No number is used twice. */
#ifndef LOGIC_HANDLES_H
#define LOGIC_HANDLES_H

#include "table.h"

#define HANDLE_PAGE 4096ull

struct handle {
	struct table_node node;	/* a: the number */
	u64 bytes;		/* whole pages */
	u32 uses;		/* running jobs that use it, plus 1 while its number is valid */
	bool freed;		/* freed, but a job still holds it */
};

struct handles {
	struct table table;
	u32 last;		/* the last number that was given out */
	u32 count, max;		/* valid numbers, and the maximum */
	u64 used, quota;	/* bytes in use, also by jobs, and the maximum */
};

/* Rounds up to pages; 0 if size is 0 or the rounding overflows. */
u64 handle_bytes(u64 size);
/* -EINVAL: bytes is 0. -ENOSPC: above the quota or max, or the numbers are used up. -ENOMEM. */
int handles_alloc(struct handles *h, u64 bytes, u32 *number);
struct handle *handles_find(struct handles *h, u32 number);
/* Both return the bytes that became free: 0 if a job or the number still holds them. free sets
 * *error to -EINVAL if there is no such number. */
u64 handles_free(struct handles *h, u32 number, int *error);
void handle_hold(struct handle *handle);
u64 handle_put(struct handles *h, struct handle *handle);
/* Drops all handles, held by a job or not, and returns the bytes that became free. */
u64 handles_clear(struct handles *h);

#endif
