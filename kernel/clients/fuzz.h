/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the parts of fuzz: the source of random numbers, the data that processes share, and the places for
 * arguments. */
#ifndef FUZZ_H
#define FUZZ_H

#include <pthread.h>

#include "../uapi/nvrm.h"
#include "check.h"

enum { PROCESSES = 3, THREADS = 3, SLOTS = 12, INHERITED = 4, BUFFER = 4 * NV_XFER_MAX_SIZE };

#define CLIENTS 0xc0000001u		/* the client numbers: one for each slot of each process */

static const char *const devices[] = {
	DEVICE, DEVICE, "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidiactl", "/dev/nvidiactl",
};

/* Counts of all processes together. */
static struct counts { uint64_t calls, succeeded, made, mapped, waited; } *counts;

static int slots[SLOTS];		/* descriptors that threads replace while others use them; the last INHERITED are the parent's */
static unsigned int opened[SLOTS];	/* which device the descriptor should be of */
static char *changing;			/* memory that all threads write to and pass as arguments */
static char *read_only;
static char *last_page;			/* the page after it is not mapped */

struct source {
	uint64_t state;
	char *buffer;			/* the thread's own */
	unsigned int turn;		/* which part of it is used next */
	unsigned int process, slot;	/* the descriptor that the thread uses now */
};

static uint64_t any(struct source *s)
{
	s->state ^= s->state << 13;	/* Marsaglia's xorshift64 */
	s->state ^= s->state >> 7;
	s->state ^= s->state << 17;
	return s->state * 0x2545f4914f6cdd1dull;
}

static uint64_t below(struct source *s, uint64_t n)
{
	return (any(s) >> 16) % n;
}

#define PICK(s, array) ((array)[below(s, sizeof(array) / sizeof((array)[0]))])

/* Numbers at which arithmetic goes wrong. */
static uint64_t number(struct source *s)
{
	switch (below(s, 8)) {
	case 0:
		return 0;
	case 1:
		return 1ull << below(s, 64);
	case 2:
		return (1ull << below(s, 64)) - 1;
	case 3:
		return -below(s, 1 << 17);
	case 4:
		return any(s);
	case 5:
		return PAGE * below(s, 1 << 12);
	}
	return below(s, 20);
}

/* Values are chosen from a small set, so that threads and processes use the same ones. Most are valid, so that many
 * calls succeed. */
enum kind { DEVICES = 0x100, MEMORIES = 0x200, RANGES = 0x300, OTHERS = 0x400 };
static const enum kind kinds[] = { DEVICES, MEMORIES, RANGES, OTHERS };

static uint32_t client(struct source *s)
{
	if (!below(s, 20))
		return number(s);
	return CLIENTS + (below(s, 10) ? s->process * SLOTS + s->slot : below(s, PROCESSES * SLOTS));
}

static uint32_t object(struct source *s, enum kind kind)
{
	if (!below(s, 10))
		kind = PICK(s, kinds);
	return below(s, 20) ? kind + below(s, kind == DEVICES ? 2 : 5) : number(s);
}

static enum kind kind_of(uint32_t class)
{
	switch (class) {
	case NV01_DEVICE_0:
		return DEVICES;
	case NV01_MEMORY_SYSTEM:
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
	case NV01_MEMORY_LOCAL_USER:
		return MEMORIES;
	case NV50_MEMORY_VIRTUAL:
	case NV01_MEMORY_VIRTUAL:
		return RANGES;
	}
	return OTHERS;
}

/* Chooses a place for an argument. NULL: *address is a bad address. */
static void *place(struct source *s, size_t size, uint64_t *address)
{
	char *at = s->buffer + s->turn++ % 4 * NV_XFER_MAX_SIZE;	/* what a call points to lies elsewhere than the call's own structure */

	switch (below(s, 30)) {
	case 0:
		*address = number(s);
		return NULL;
	case 1:
		*address = (uintptr_t)read_only;
		return NULL;
	case 2:
		*address = 0xffff888000000000ull + number(s) % (1ull << 46);	/* the kernel's */
		return NULL;
	case 3:
	case 4:
		at = changing;
		break;
	case 5:
		at = last_page + PAGE - (size < PAGE ? size : PAGE);
		break;
	case 6:
		madvise(s->buffer, BUFFER, MADV_DONTNEED);
		break;
	}
	*address = (uintptr_t)at;
	return size <= NV_XFER_MAX_SIZE ? at : NULL;
}

/* Copies an argument to a place. Sometimes it changes a word of it. */
static uint64_t put(struct source *s, const void *data, size_t size)
{
	uint64_t address;
	char *at = place(s, size, &address);

	if (at) {
		memcpy(at, data, size);
		if (size >= 4 && !below(s, 8))
			*(uint32_t *)(at + below(s, size / 4) * 4) = number(s);
	}
	return address;
}

static bool done(int ret, uint64_t *kind)
{
	__atomic_add_fetch(&counts->calls, 1, __ATOMIC_RELAXED);
	if (ret < 0)
		return false;
	__atomic_add_fetch(&counts->succeeded, 1, __ATOMIC_RELAXED);
	if (kind)
		__atomic_add_fetch(kind, 1, __ATOMIC_RELAXED);
	return true;
}

#endif
