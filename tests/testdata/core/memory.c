// Calls every function of the library with memory of exactly the right size. The program names the function in which a
// fault occurs.
#include <signal.h>

#include "table.h"

int refusals(void), guards(bool mig, char **names, int nnames), fuzz(int argc, char **argv);

const struct call *volatile now;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	fail(__FILE__, __LINE__, "signal %d at %p in %s", sig, info->si_addr, now == NULL ? "no call" : now->f->name);
}

int main(int argc, char **argv)
{
	static char stack[1 << 16]; // an alternate stack, since a fault may be an overflow of the other
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	check(sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, NULL) == 0);
	check(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);
	alarm(300);
	if (argc == 2 && strcmp(argv[1], "refusals") == 0)
		return refusals();
	if (argc >= 2 && strcmp(argv[1], "guards") == 0)
		return guards(false, argv + 2, argc - 2);
	if (argc == 2 && strcmp(argv[1], "mig") == 0)
		return guards(true, NULL, 0);
	if (argc == 4 && strcmp(argv[1], "fuzz") == 0)
		return fuzz(argc, argv);
	fprintf(stderr, "usage: memory refusals|guards [FUNCTION...]|mig|fuzz SEED SECONDS\n");
	return 2;
}
