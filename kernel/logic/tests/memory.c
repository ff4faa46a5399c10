// SPDX-License-Identifier: GPL-2.0-only
#include "suite.h"

u64 memory_live, memory_fail_at;

void *logic_alloc(size_t bytes)
{
	void *p = NULL;

	if (!memory_fail_at || --memory_fail_at)
#ifdef __KERNEL__
		p = kvzalloc(bytes, GFP_KERNEL);
#else
		p = calloc(1, bytes);
#endif
	memory_live += p != NULL;
	return p;
}

void logic_free(void *p)
{
	memory_live -= p != NULL;
#ifdef __KERNEL__
	kvfree(p);
#else
	free(p);
#endif
}
