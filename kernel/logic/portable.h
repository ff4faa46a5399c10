/* SPDX-License-Identifier: GPL-2.0-only */
/* What the logic needs from the kernel, or from user space in its tests. Code in this folder sleeps
 * only to allocate, takes no lock and does not look at the current task: callers serialise and pass
 * all that it needs. */
#ifndef LOGIC_PORTABLE_H
#define LOGIC_PORTABLE_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/slab.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/types.h>

#ifndef LOGIC_TESTS
static inline void *logic_alloc(size_t bytes) { return kvzalloc(bytes, GFP_KERNEL); }
static inline void logic_free(void *p) { kvfree(p); }
#endif
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#endif

#if !defined(__KERNEL__) || defined(LOGIC_TESTS)
void *logic_alloc(size_t bytes);	/* zeroed; the tests make it fail */
void logic_free(void *p);
#endif

#endif
