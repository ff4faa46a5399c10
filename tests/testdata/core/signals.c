// Hosts that use signals. The first argument selects one.
#include <dlfcn.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "core.h"

extern char **environ;

// SIGALRM ends a program that hangs, and nothing else.
enum { HANG = 300 };

// Signals 32 and 33 are the C library's own.
enum { CANCEL = 32, SETXID = 33, SIGNALS = 64 };

static void pause_us(long us) { nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL); }

// ---- Hosts that compare their whole state --------------------------------------------------------------------------

// The state that a library must not change: that of the process, and that of the calling thread.
struct state {
	unsigned long disposition[SIGNALS + 1][4]; // as the kernel sees them: handler, flags, restorer, mask
	unsigned long mask;
	stack_t stack;
	struct rlimit limit[RLIM_NLIMITS];
	char locale[64], environment[8192], directory[512], name[16];
	char **environ;
	mode_t umask;
	cpu_set_t processors;
	unsigned int mxcsr; // rounding mode and flags of floating point
};

static void look(struct state *s)
{
	memset(s, 0, sizeof *s);
	for (int sig = 1; sig <= SIGNALS; sig++)
		check(syscall(SYS_rt_sigaction, sig, NULL, s->disposition[sig], 8) == 0);
	check(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &s->mask, 8) == 0);
	check(sigaltstack(NULL, &s->stack) == 0);
	for (int i = 0; i < RLIM_NLIMITS; i++)
		getrlimit(i, &s->limit[i]);
	snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
	s->environ = environ;
	size_t used = 0;
	for (char **e = environ; *e != NULL && used < sizeof s->environment; e++)
		used += (size_t)snprintf(s->environment + used, sizeof s->environment - used, "%s\n", *e);
	check(getcwd(s->directory, sizeof s->directory) != NULL);
	check(pthread_getname_np(pthread_self(), s->name, sizeof s->name) == 0);
	umask(s->umask = umask(0));
	check(sched_getaffinity(0, sizeof s->processors, &s->processors) == 0);
#ifdef __x86_64__
	__asm__("stmxcsr %0" : "=m"(s->mxcsr));
	s->mxcsr &= ~0x3fu; // ignores exceptions that have occurred
#endif
}

// The C library installs a handler for signal 33 when there is a second thread, since setuid() needs it. So that signal
// may get a handler.
static int begins_to_handle(const struct state *was, const struct state *is, int sig)
{
	Dl_info info;
	return sig == SETXID && was->disposition[sig][0] == 0 && dladdr((void *)is->disposition[sig][0], &info) != 0 &&
	       strstr(info.dli_fname, "libc.so") != NULL;
}

static void unchanged(const struct state *was, const char *when)
{
	static _Thread_local struct state is;
	look(&is);
	for (int sig = 1; sig <= SIGNALS; sig++) {
		const unsigned long *w = was->disposition[sig], *i = is.disposition[sig];
		if (memcmp(w, i, sizeof was->disposition[sig]) != 0 && !begins_to_handle(was, &is, sig))
			fail(__FILE__, __LINE__, "%s: signal %d: handler %lx flags %lx restorer %lx mask %lx, was %lx %lx %lx %lx",
			     when, sig, i[0], i[1], i[2], i[3], w[0], w[1], w[2], w[3]);
	}
	if (is.mask != was->mask)
		fail(__FILE__, __LINE__, "%s: the signal mask is %lx, was %lx", when, is.mask, was->mask);
	if (memcmp(&is.stack, &was->stack, sizeof is.stack) != 0)
		fail(__FILE__, __LINE__, "%s: the alternate stack is %p, was %p", when, is.stack.ss_sp, was->stack.ss_sp);
	for (int i = 0; i < RLIM_NLIMITS; i++)
		if (memcmp(&is.limit[i], &was->limit[i], sizeof is.limit[i]) != 0)
			fail(__FILE__, __LINE__, "%s: resource limit %d is %ld, was %ld", when, i, (long)is.limit[i].rlim_cur,
			     (long)was->limit[i].rlim_cur);
	size_t rest = offsetof(struct state, locale);
	if (memcmp((const char *)&is + rest, (const char *)was + rest, sizeof is - rest) != 0)
		fail(__FILE__, __LINE__,
		     "%s: locale, environment, directory, thread name, umask, processors or rounding changed", when);
}

static void on_signal(int sig) { (void)sig; }
static void on_signal_info(int sig, siginfo_t *info, void *context) { (void)sig, (void)info, (void)context; }

static int own(int sig) { return sig != SIGKILL && sig != SIGSTOP && sig != CANCEL && sig != SETXID; }

static void *nothing(void *unused) { return unused; }

// Gives every signal a handler, each with other flags than its neighbours and a mask of its own.
static void install_handlers(void)
{
	static const int flags[] = { 0, SA_RESTART, SA_SIGINFO | SA_ONSTACK, SA_NODEFER, SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP };
	for (int sig = 1; sig <= SIGNALS; sig++) {
		struct sigaction act = { .sa_flags = flags[sig % 5] };
		if (act.sa_flags & SA_SIGINFO)
			act.sa_sigaction = on_signal_info;
		else
			act.sa_handler = on_signal;
		sigemptyset(&act.sa_mask);
		sigaddset(&act.sa_mask, sig % SIGNALS + 1);
		if (own(sig))
			check(sigaction(sig, &act, NULL) == 0);
	}
	pthread_t thread; // with a second thread the C library installs its own
	check(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void ignore_signals(void)
{
	for (int sig = 1; sig <= SIGNALS; sig++)
		if (own(sig) && sig != SIGCHLD)
			check(signal(sig, SIG_IGN) != SIG_ERR);
}

static void keeps_errno(void)
{
	char text[96];
	unsigned int n;
	nvmlDevice_t dev;
#define KEEPS(want, call) \
	do { \
		errno = 4711; \
		answers(want, call); \
		check(errno == 4711); \
	} while (0)
	KEEPS(NVML_SUCCESS, nvmlDeviceGetCount_v2(&n));
	KEEPS(NVML_SUCCESS, nvmlDeviceGetHandleByUUID(gpu[0].uuid, &dev));
	KEEPS(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID("no such GPU", &dev));
	KEEPS(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName(at(&n), text, sizeof text));
	KEEPS(NVML_SUCCESS, nvmlInit_v2());
	KEEPS(NVML_SUCCESS, nvmlShutdown());
}

static void *with_all_blocked(void *unused)
{
	sigset_t all;
	struct state was;
	sigfillset(&all);
	check(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
	look(&was);
	calls(100);
	unchanged(&was, "in a thread that blocks all signals");
	return unused;
}

static void *with_own_stack(void *unused)
{
	static char stack[1 << 16];
	struct state was;
	check(sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, NULL) == 0);
	look(&was);
	keeps_errno();
	calls(100);
	unchanged(&was, "in a thread with an alternate stack");
	check(was.stack.ss_sp == stack);
	return unused;
}

static void unchanging(int argc, char **argv)
{
	static struct state was;
	check(argc == 5);
	check(setlocale(LC_ALL, "C.UTF-8") != NULL);
	check(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 512, 1024 }) == 0);
	if (strcmp(argv[2], "handlers") == 0)
		install_handlers();
	if (strcmp(argv[2], "ignored") == 0)
		ignore_signals();
	sigset_t some;
	sigemptyset(&some);
	sigaddset(&some, SIGCHLD), sigaddset(&some, SIGUSR1), sigaddset(&some, SIGPROF), sigaddset(&some, SIGRTMIN);
	check(sigprocmask(SIG_BLOCK, &some, NULL) == 0);
	alarm(HANG);

	look(&was);
	check(dlopen(argv[3], RTLD_LAZY | RTLD_GLOBAL) != NULL);
	unchanged(&was, "after dlopen");
	errno = 4711;
	ok(nvmlInit_v2());
	check(errno == 4711);
	unchanged(&was, "after nvmlInit");
	learn();
	keeps_errno();
	calls(atol(argv[4]));
	unchanged(&was, "after the calls");

	pthread_t thread;
	check(pthread_create(&thread, NULL, with_all_blocked, NULL) == 0 && pthread_join(thread, NULL) == 0);
	check(pthread_create(&thread, NULL, with_own_stack, NULL) == 0 && pthread_join(thread, NULL) == 0);
	unchanged(&was, "after threads");
	pid_t pid = fork();
	if (pid == 0) {
		keeps_errno();
		calls(1000);
		unchanged(&was, "in a child");
		_exit(0);
	}
	finish(pid);
	errno = 4711;
	ok(nvmlShutdown());
	check(errno == 4711);
	unchanged(&was, "after nvmlShutdown");
	ok(nvmlShutdown()); // one too many, which drivers take for done
	check(errno == 4711);
}

// ---- A host that counts SIGURG -------------------------------------------------------------------------------------

static atomic_long urgent;
static atomic_int done;

static void on_urgent(int sig)
{
	(void)sig;
	urgent++;
}

static void *call_until_done(void *unused)
{
	while (!done)
		calls(100);
	return unused;
}

static void urgents(int argc, char **argv)
{
	(void)argc, (void)argv;
	enum { SENT = 5 };
	listen_to_collections();
	check(signal(SIGURG, on_urgent) != SIG_ERR);
	ok(nvmlInit_v2());
	learn();
	pthread_t thread[4];
	for (int i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, call_until_done, NULL) == 0);
	for (int i = 1; i <= SENT; i++) {
		pause_us(200 * 1000);
		check(kill(getpid(), SIGURG) == 0);
		while (urgent < i)
			pause_us(100);
	}
	done = 1;
	for (int i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(urgent == SENT);
	printf("%ld collections\n", collections());
}

// Signals are sent while the core is being loaded. Each must reach the handler before the next one is sent, and the
// handler must stay.
static pthread_t receiver;

static void *send_and_wait(void *unused)
{
	while (!done) {
		long before = urgent;
		check(pthread_kill(receiver, SIGURG) == 0);
		for (int i = 0; urgent == before; i++) {
			check(i < 1000 * 1000); // more than ten seconds: the signal was lost
			pause_us(10);
		}
	}
	return unused;
}

static void *spin(void *unused)
{
	while (!done)
		;
	return unused;
}

static void load_under_fire(void)
{
	static struct state was;
	pthread_t sender;
	look(&was);
	check(pthread_create(&receiver, NULL, spin, NULL) == 0);
	check(pthread_create(&sender, NULL, send_and_wait, NULL) == 0);
	while (urgent < 2)
		pause_us(10);
	ok(nvmlInit_v2());
	done = 1;
	check(pthread_join(sender, NULL) == 0 && pthread_join(receiver, NULL) == 0);
	pause_us(5000); // a handler of the core's would install itself again when it ends
	unchanged(&was, "after nvmlInit under fire");
}

static void under_fire(int argc, char **argv)
{
	(void)argc, (void)argv;
	check(signal(SIGURG, on_urgent) != SIG_ERR);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			alarm(HANG);
			load_under_fire();
			_exit(0);
		}
		finish(pid);
	}
}

// ---- Hosts that provoke faults -------------------------------------------------------------------------------------

static _Thread_local sigjmp_buf recover;
static atomic_long faults;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info, (void)context;
	faults++;
	siglongjmp(recover, 1);
}

static volatile int *volatile null;

static void dereference(void)
{
	if (sigsetjmp(recover, 1) == 0)
		*null = 1;
}

static void write_to_nobody(void)
{
	int ends[2];
	check(pipe(ends) == 0 && close(ends[0]) == 0);
	errno = 0;
	check(write(ends[1], "x", 1) == -1 && errno == EPIPE);
	close(ends[1]);
}

static void *provoke_both(void *unused)
{
	calls(100);
	long before = faults;
	for (int i = 0; i < 100; i++) {
		dereference();
		calls(10);
	}
	check(faults == before + 100);
	before = urgent;
	write_to_nobody();
	check(urgent == before + 1);
	return unused;
}

static void provoking(int argc, char **argv)
{
	(void)argc, (void)argv;
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	check(sigaction(SIGSEGV, &act, NULL) == 0);
	check(signal(SIGPIPE, on_urgent) != SIG_ERR);
	ok(nvmlInit_v2());
	learn();
	pthread_t thread;
	provoke_both(NULL);
	check(pthread_create(&thread, NULL, provoke_both, NULL) == 0 && pthread_join(thread, NULL) == 0);

	// Without handlers a fault ends the process as usual, and nothing is printed about it.
	listen_to_collections();
	for (int i = 0; i < 2; i++) {
		int status, sig = i == 0 ? SIGSEGV : SIGPIPE;
		pid_t pid = fork();
		if (pid == 0) {
			check(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0);
			check(signal(sig, SIG_DFL) != SIG_ERR);
			calls(100);
			if (sig == SIGSEGV)
				*null = 1;
			write_to_nobody();
			_exit(0);
		}
		check(waitpid(pid, &status, 0) == pid);
		check(WIFSIGNALED(status) && WTERMSIG(status) == sig);
	}
	check(collections() == 0);
}

// ---- A host whose handlers run on the thread's stack --------------------------------------------------------------

static atomic_long handled;

// Uses as much stack as a handler that takes a backtrace.
static void on_tick(int sig)
{
	(void)sig;
	volatile char room[16 << 10];
	for (size_t i = 0; i < sizeof room; i += 64)
		room[i] = 1;
	handled++;
}

static void ticking(int argc, char **argv)
{
	check(argc == 3);
	long want = atol(argv[2]);
	struct sigaction act = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
	check(sigaction(SIGUSR2, &act, NULL) == 0);
	check(sigaction(SIGPROF, &act, NULL) == 0);
	listen_to_collections();
	pthread_t thread[3];
	ok(nvmlInit_v2());
	learn();
	// a profiler's timer, and signals to single threads
	check(setitimer(ITIMER_PROF, &(struct itimerval){ { 0, 1000 }, { 0, 1000 } }, NULL) == 0);
	for (int i = 0; i < 3; i++)
		check(pthread_create(&thread[i], NULL, call_until_done, NULL) == 0);
	for (int i = 0; handled < want; i++) {
		check(pthread_kill(thread[i % 3], SIGUSR2) == 0);
		pause_us(20);
	}
	done = 1;
	for (int i = 0; i < 3; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(setitimer(ITIMER_PROF, &(struct itimerval){ 0 }, NULL) == 0);
	calls(1000);
	printf("%ld signals, %ld collections\n", handled, collections());
}

// ---- A host that blocks its signals and reads them -----------------------------------------------------------------

static void reading(int argc, char **argv)
{
	(void)argc, (void)argv;
	const int sent[] = { SIGCHLD, SIGPROF, SIGTERM, SIGUSR1, SIGURG, SIGIO, SIGRTMIN, SIGRTMIN + 1, SIGRTMAX };
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++)
		sigaddset(&set, sent[i]);
	listen_to_collections();
	int early = argc > 2; // after nvmlInit the core's threads exist already
	if (early)
		ok(nvmlInit_v2());
	check(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	check(fd >= 0);
	if (!early)
		ok(nvmlInit_v2());
	learn();
	calls(200 * 1000); // collections add threads
	for (int round = 0; round < 20; round++)
		for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
			struct signalfd_siginfo info;
			pid_t pid = 0;
			if (sent[i] == SIGCHLD) {
				if ((pid = fork()) == 0)
					_exit(0);
			} else {
				check(kill(getpid(), sent[i]) == 0);
			}
			if (poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, HANG * 1000) != 1)
				fail(__FILE__, __LINE__, "signal %d did not arrive", sent[i]);
			check(read(fd, &info, sizeof info) == sizeof info && (int)info.ssi_signo == sent[i]);
			if (pid != 0)
				finish(pid);
			calls(100);
		}
	printf("%ld collections\n", collections());
}

// ---- A host that gives up its privileges ---------------------------------------------------------------------------

// The C library sends signal 33 to every thread, and waits for each of them.
static void changing_identity(int argc, char **argv)
{
	(void)argc, (void)argv;
	ok(nvmlInit_v2());
	learn();
	for (int i = 0; i < 20; i++) {
		check(setresgid(getgid(), getgid(), getgid()) == 0);
		check(setresuid(getuid(), getuid(), getuid()) == 0);
		calls(10 * 1000);
	}
}

// ---- A host whose output nobody reads ------------------------------------------------------------------------------

// A message about the configuration goes to a broken pipe: the host gets no SIGPIPE and goes on.
static void unheard(int argc, char **argv)
{
	(void)argc, (void)argv;
	int ends[2];
	check(pipe(ends) == 0 && close(ends[0]) == 0);
	check(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	check(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	check(setenv("NVMLFAB_CORE", "/nowhere", 1) == 0);
	answers(NVML_ERROR_LIBRARY_NOT_FOUND, nvmlInit_v2());
	check(unsetenv("NVMLFAB_CORE") == 0);
	check(setenv("NVMLFAB_PROFILE", "none", 1) == 0);
	check(signal(SIGPIPE, on_urgent) != SIG_ERR);
	answers(NVML_ERROR_UNKNOWN, nvmlInit_v2());
	check(urgent == 0);
	check(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	answers(NVML_ERROR_UNKNOWN, nvmlInit_v2());
}

// ---- A host with little memory -------------------------------------------------------------------------------------

static void confined(int argc, char **argv)
{
	(void)argc, (void)argv;
	unsigned int n;
	for (rlim_t mib = 64; mib <= 2048; mib *= 2) {
		check(setrlimit(RLIMIT_AS, &(struct rlimit){ mib << 20, RLIM_INFINITY }) == 0);
		answers(NVML_ERROR_MEMORY, nvmlInit_v2());
		answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&n));
	}
	check(setrlimit(RLIMIT_AS, &(struct rlimit){ RLIM_INFINITY, RLIM_INFINITY }) == 0);
	ok(nvmlInit_v2());
	learn();
	calls(1000);
}

// ---- A host that closes descriptors which it did not open
// ------------------------------------------------------------

static void closing(int argc, char **argv)
{
	(void)argc, (void)argv;
	long before = holdings().descriptors;
	ok(nvmlInit_v2());
	learn();
	calls(200 * 1000);
	check(holdings().descriptors == before); // there is nothing to close
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	listen_to_collections();
	for (int i = 0; i < 5; i++) {
		calls(100 * 1000);
		pause_us(50 * 1000);
	}
	printf("%ld collections\n", collections());
}

// ---- A host like a Java virtual machine ----------------------------------------------------------------------------

// SIGSEGV means a null check and runs on an alternate stack that each thread has. SIGUSR2 runs without one and stops a
// thread, wherever it is, until another thread lets it go on.
enum { MUTATORS = 4 };

static struct mutator {
	pthread_t thread;
	atomic_int stopped, resume;
	atomic_long rounds;
} mutator[MUTATORS];

static _Thread_local struct mutator *self;

static void on_stop(int sig)
{
	(void)sig;
	int saved = errno;
	self->stopped = 1;
	while (!self->resume)
		sched_yield();
	self->resume = 0;
	self->stopped = 0;
	errno = saved;
}

static void *mutate(void *arg)
{
	self = arg;
	enum { STACK = 64 << 10 };
	stack_t stack = { .ss_sp = malloc(STACK), .ss_size = STACK }, now;
	check(stack.ss_sp != NULL && sigaltstack(&stack, NULL) == 0);
	while (!done) {
		dereference();
		calls(25);
		self->rounds++;
	}
	check(sigaltstack(NULL, &now) == 0 && now.ss_sp == stack.ss_sp && now.ss_flags == 0);
	check(sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL) == 0);
	free(stack.ss_sp);
	return NULL;
}

static void machine(int argc, char **argv)
{
	check(argc == 3);
	long rounds = 0, stops = atol(argv[2]);
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	struct sigaction stop = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
	check(sigaction(SIGSEGV, &fault, NULL) == 0);
	listen_to_collections();
	ok(nvmlInit_v2());
	learn();
	check(sigaction(SIGUSR2, &stop, NULL) == 0); // handlers are installed before and after the library is loaded
	for (int i = 0; i < MUTATORS; i++)
		check(pthread_create(&mutator[i].thread, NULL, mutate, &mutator[i]) == 0);
	for (int i = 0; i < MUTATORS; i++)
		while (mutator[i].rounds == 0)
			pause_us(100);
	for (long n = 0; n < stops; n++) {
		struct mutator *m = &mutator[n % MUTATORS];
		check(pthread_kill(m->thread, SIGUSR2) == 0);
		while (!m->stopped)
			sched_yield();
		m->resume = 1;
		while (m->stopped)
			sched_yield();
	}
	done = 1;
	for (int i = 0; i < MUTATORS; i++) {
		check(pthread_join(mutator[i].thread, NULL) == 0);
		rounds += mutator[i].rounds;
	}
	check(faults == rounds);
	printf("%ld null checks, %ld stops, %ld collections\n", rounds, stops, collections());
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int, char **);
	} hosts[] = {
		{ "unchanging", unchanging }, { "urgents", urgents }, { "provoking", provoking },
		{ "ticking", ticking },       { "reading", reading }, { "changing-identity", changing_identity },
		{ "closing", closing },       { "machine", machine }, { "unheard", unheard }, { "confined", confined },
		{ "under-fire", under_fire },
	};
	for (size_t i = 0; argc > 1 && i < sizeof hosts / sizeof hosts[0]; i++)
		if (strcmp(argv[1], hosts[i].name) == 0) {
			if (hosts[i].run != unchanging)
				alarm(HANG);
			hosts[i].run(argc, argv);
			return 0;
		}
	fprintf(stderr, "usage: signals HOST [ARGUMENT...]\n");
	return 2;
}
