/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes as programs: each program is a series of calls of the logic. Every call is made on the logic and on a very
 * simple model, and then the two are compared. The fuzzer searches for programs; the suites use random ones. */
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
void program_ledger_failing(struct program *p);	/* the same with failing allocations and without a model: everything must be empty at the end */
void program_handles(struct program *p);
void program_rmcall(struct program *p);
void program_gpus(struct program *p);

#endif
