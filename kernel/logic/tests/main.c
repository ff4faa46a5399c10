// SPDX-License-Identifier: GPL-2.0-only
/* Runs the suites in user space and prints what KUnit would. */
#include "kunit.h"

static struct kunit_suite *suites, **last = &suites;

void kunit_add(struct kunit_suite *suite)
{
	*last = suite;
	last = &suite->next;
}

void kunit_fail(struct kunit *test, bool abort, const char *file, int line, const char *what, long long left, long long right)
{
	test->failed = true;
	printf("    # %s: EXPECTATION FAILED at %s:%d\n    expected %s: %lld (0x%llx), %lld (0x%llx)\n", test->name, file, line, what, left,
	       (unsigned long long)left, right, (unsigned long long)right);
	if (abort)
		longjmp(test->aborted, 1);
}

static bool run_case(struct kunit_suite *s, struct kunit_case *c, int number)
{
	struct kunit test = { .name = c->name };

	s->init(&test);
	if (!setjmp(test.aborted)) {
		c->run_case(&test);
		s->exit(&test);
	}
	printf("    %sok %d %s\n", test.failed ? "not " : "", number, c->name);
	fflush(stdout);
	return !test.failed;
}

int main(void)
{
	struct kunit_suite *s;
	struct kunit_case *c;
	int count = 0, number = 0;
	bool ok, all = true;

	for (s = suites; s; s = s->next)
		count++;
	printf("KTAP version 1\n1..%d\n", count);
	for (s = suites; s; s = s->next) {
		for (count = 0, c = s->test_cases; c->run_case; c++)
			count++;
		printf("    # Subtest: %s\n    1..%d\n", s->name, count);
		for (ok = true, count = 1, c = s->test_cases; c->run_case; c++)
			ok &= run_case(s, c, count++);
		printf("%sok %d %s\n", ok ? "" : "not ", ++number, s->name);
		all &= ok;
	}
	return !all;
}
