/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bytes as programs: each is a series of calls of the logic, made on it and beside it on a model that is as simple as can be, and after every
 * call the two are compared. The fuzzer finds the bytes, the suites take random ones.
 */
#ifndef LOGIC_TESTS_PROGRAM_H
#define LOGIC_TESTS_PROGRAM_H

#include "../portable.h"

struct program {
	const u8 *code;
	size_t size;
	int wrong;		/* line of the first comparison that failed, 0: none */
	const char *what;
};

static inline u8 program_byte(struct program *p)
{
	if (!p->size)
		return 0;
	p->size--;
	return *p->code++;
}

#define PROGRAM_EXPECT(p, condition) \
	do { \
		if (!(condition) && !(p)->wrong) { \
			(p)->wrong = __LINE__; \
			(p)->what = #condition; \
		} \
	} while (0)

void program_ledger(struct program *p);		/* ledger, accounts, policies and objects */
void program_ledger_failing(struct program *p);	/* the same with allocations that fail, and without a model: all must be empty in the end */
void program_handles(struct program *p);
void program_rmcall(struct program *p);
void program_gpus(struct program *p);

#endif
