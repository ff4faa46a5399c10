// SPDX-License-Identifier: GPL-2.0-only
#include "program.h"
#include "suite.h"

/* Runs a number of random programs of up to a number of bytes, and reports the first that fails. */
static void run(struct kunit *test, void (*program)(struct program *p), u32 programs, u32 bytes)
{
	static u8 code[2048];
	u64 state = 0x9e3779b97f4a7c15;
	struct program p;
	u32 n, i;

	for (n = 0; n < programs; n++) {
		p = (struct program){ .code = code, .size = next_random(&state) % bytes };
		for (i = 0; i < p.size; i++)
			code[i] = next_random(&state) >> 32;
		program(&p);
		KUNIT_ASSERT_EQ(test, p.wrong, 0);	/* the line in program_*.c */
		KUNIT_ASSERT_EQ(test, memory_live, 0ull);
	}
}

static void program_of_ledger(struct kunit *test)
{
	run(test, program_ledger, 500, 1000);
}

static void program_of_ledger_without_memory(struct kunit *test)
{
	run(test, program_ledger_failing, 5000, 500);
}

static void program_of_handles(struct kunit *test)
{
	run(test, program_handles, 5000, 500);
}

static void program_of_rmcall(struct kunit *test)
{
	run(test, program_rmcall, 50000, 300);
}

static void program_of_gpus(struct kunit *test)
{
	run(test, program_gpus, 50000, 300);
}

static struct kunit_case cases[] = {
	KUNIT_CASE(program_of_ledger), KUNIT_CASE(program_of_ledger_without_memory), KUNIT_CASE(program_of_handles),
	KUNIT_CASE(program_of_rmcall), KUNIT_CASE(program_of_gpus), {}
};
SUITE(program, cases);
