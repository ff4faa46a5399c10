// SPDX-License-Identifier: GPL-2.0-only
/* libFuzzer's entry point: the first byte selects the kind of program, the other bytes are the program. */
#include <stdio.h>

#include "program.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static void (* const programs[])(struct program *p) = {
		program_ledger, program_ledger_failing, program_handles, program_rmcall, program_gpus,
	};
	struct program p = { data + 1, size - 1, 0, NULL };

	if (!size)
		return 0;
	programs[data[0] % ARRAY_SIZE(programs)](&p);
	if (p.wrong) {
		fprintf(stderr, "line %d of the program: expected %s\n", p.wrong, p.what);
		abort();
	}
	return 0;
}
