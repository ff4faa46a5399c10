// SPDX-License-Identifier: GPL-2.0-only
#include "../handles.h"
#include "program.h"
#include "suite.h"

#define NUMBERS 64
#define QUOTA (20 * HANDLE_PAGE)
#define HANDLES_MAX 6

static struct {
	bool there, named;
	u64 bytes;
	u32 jobs;
	struct handle *real;
} m[NUMBERS];

static void compare(struct program *p, struct handles *h, u32 given)
{
	u64 used = 0;
	u32 i, count = 0;

	for (i = 1; i <= given; i++) {
		used += m[i].there ? m[i].bytes : 0;
		count += m[i].named;
		PROGRAM_EXPECT(p, handles_find(h, i) == (m[i].named ? m[i].real : NULL));
	}
	PROGRAM_EXPECT(p, h->used == used && h->count == count && h->last == given);
}

void program_handles(struct program *p)
{
	struct handles h = { .quota = QUOTA, .max = HANDLES_MAX };
	u32 given = 0, number, i;
	u64 bytes, used;
	int err;

	memset(m, 0, sizeof(m));
	memory_live = 0;
	memory_fail_at = 0;
	while (p->size && !p->wrong && given < NUMBERS - 1) {
		u8 what = program_byte(p);

		i = program_byte(p) % (given + 2);
		used = h.used;
		switch (what % 5) {
		case 0:
			bytes = handle_bytes(program_byte(p) * 1000);
			err = handles_alloc(&h, bytes, &number);
			PROGRAM_EXPECT(p, err == (!bytes ? -EINVAL : used + bytes > QUOTA || h.count - !err >= HANDLES_MAX ? -ENOSPC : 0));
			if (err)
				break;
			PROGRAM_EXPECT(p, number == ++given && bytes % HANDLE_PAGE == 0);
			m[given].there = true;
			m[given].named = true;
			m[given].bytes = bytes;
			m[given].real = handles_find(&h, given);
			break;
		case 1:
			bytes = handles_free(&h, i, &err);
			PROGRAM_EXPECT(p, err == (m[i].named ? 0 : -EINVAL));
			PROGRAM_EXPECT(p, bytes == (m[i].named && !m[i].jobs ? m[i].bytes : 0));
			m[i].there = m[i].there && (m[i].jobs || !m[i].named);
			m[i].named = false;
			break;
		case 2:
			if (!m[i].named)
				break;
			handle_hold(m[i].real);
			m[i].jobs++;
			break;
		case 3:
			if (!m[i].jobs)
				break;
			bytes = handle_put(&h, m[i].real);
			m[i].jobs--;
			PROGRAM_EXPECT(p, bytes == (m[i].named || m[i].jobs ? 0 : m[i].bytes));
			m[i].there = m[i].named || m[i].jobs;
			break;
		case 4:
			if (what < 230)
				break;
			bytes = handles_clear(&h);
			PROGRAM_EXPECT(p, bytes == used);
			memset(m, 0, sizeof(m));
			break;
		}
		compare(p, &h, given);
	}
	handles_clear(&h);
	PROGRAM_EXPECT(p, memory_live == 0);
}
