// SPDX-License-Identifier: GPL-2.0-only
#include "../rmcall.h"
#include "program.h"
#include "suite.h"

/* A copy of exactly so many bytes of the program, so that a sanitizer finds reads past them. */
static u8 *take(struct program *p, u32 bytes)
{
	u8 *copy = logic_alloc(bytes ? bytes : 1);
	u32 i;

	for (i = 0; copy && i < bytes; i++)
		copy[i] = program_byte(p);
	return copy;
}

void program_rmcall(struct program *p)
{
	static const u8 known[] = { 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x34, 0x4a }, sizes[] = { 16, 20, 28, 32, 48, 56, 184 };
	u32 escape = program_byte(p), size = program_byte(p), asked, given;
	struct rm_call call, before;
	struct rm_result result;
	u8 *arg, *params;

	escape = escape & 0x80 ? known[escape % sizeof(known)] : escape;
	size = size & 0x80 ? sizes[size % sizeof(sizes)] : size;
	memory_fail_at = 0;
	arg = take(p, size < RM_CALL_BYTES ? size : RM_CALL_BYTES);
	if (!arg)
		return;
	rm_decode(escape, size, arg, &call);
	result = rm_result(escape, size, arg);
	PROGRAM_EXPECT(p, (call.kind == RM_MALFORMED) == (rm_interesting(escape) && !rm_size_valid(escape, size)));
	PROGRAM_EXPECT(p, call.kind == RM_OTHER || rm_interesting(escape));
	PROGRAM_EXPECT(p, call.status_offset == 0 || call.status_offset + 4 <= size);
	PROGRAM_EXPECT(p, call.kind == RM_ALLOC || (call.memory == RM_MEMORY_NONE && call.bytes == 0));
	PROGRAM_EXPECT(p, call.memory != RM_MEMORY_NONE || call.bytes == 0);
	PROGRAM_EXPECT(p, call.kind != RM_ALLOC || call.params.bytes <= RM_PARAMS_BYTES);
	PROGRAM_EXPECT(p, call.kind != RM_ALLOC || call.object == 0 || call.object == result.object);
	if (call.status_offset)
		PROGRAM_EXPECT(p, !memcmp(&result.status, arg + call.status_offset, sizeof(result.status)));
	logic_free(arg);
	if (call.kind != RM_ALLOC)
		return;

	asked = call.params.bytes;
	given = program_byte(p) % 4 ? asked : program_byte(p) % (asked + 1);
	params = take(p, given);
	if (!params)
		return;
	before = call;
	rm_decode_params(&call, params, given);
	PROGRAM_EXPECT(p, call.client == before.client && call.object == before.object && call.code == before.code);
	PROGRAM_EXPECT(p, call.memory != RM_MEMORY_NONE || call.bytes == 0);
	PROGRAM_EXPECT(p, (call.memory == RM_MEMORY_NONE) == (before.memory == RM_MEMORY_NONE));
	PROGRAM_EXPECT(p, given == asked || (call.bytes == before.bytes && call.memory == before.memory));
	logic_free(params);
}
