// Hosts in which a library is difficult to run. The first argument selects one.
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include "core.h"

// SIGALRM ends a program that hangs, and nothing else.
enum { HANG = 300 };

static atomic_int done;
static atomic_long handled;

static pid_t child(void (*body)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		alarm(HANG);
		body();
		_exit(0);
	}
	return pid;
}

// ---- Other threads set handlers and limits while the core is loaded ------------------------------------------------

static void on_signal(int sig) { (void)sig; }
static void on_other(int sig) { (void)sig; }

// Sets what a host may set, again and again, and checks that it stays.
static void *set_and_look(void *unused)
{
	for (long i = 0; !done; i++) {
		struct sigaction act = { .sa_handler = i % 2 ? on_signal : on_other }, now;
		struct rlimit limit = { 300 + (rlim_t)(i % 100), 1024 }, is;
		check(sigaction(SIGUSR1, &act, NULL) == 0);
		check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		for (int n = 0; n < 20; n++) {
			check(sigaction(SIGUSR1, NULL, &now) == 0 && getrlimit(RLIMIT_NOFILE, &is) == 0);
			if (now.sa_handler != act.sa_handler || is.rlim_cur != limit.rlim_cur)
				fail(__FILE__, __LINE__, "handler %p is %p, limit %ld is %ld", act.sa_handler, now.sa_handler,
				     (long)limit.rlim_cur, (long)is.rlim_cur);
			sched_yield();
		}
	}
	return unused;
}

static void set_while_loading(void)
{
	pthread_t thread;
	check(pthread_create(&thread, NULL, set_and_look, NULL) == 0);
	ok(nvmlInit_v2());
	done = 1;
	check(pthread_join(thread, NULL) == 0);
}

static void settings(char **argv)
{
	(void)argv;
	for (int i = 0; i < 20; i++)
		finish(child(set_while_loading));
}

// ---- Messages that nobody reads
// --------------------------------------------------------------------------------------

static void complain_twice(void)
{
	check(setenv("NVMLFAB_CORE", "/nowhere", 1) == 0); // a message of the front
	answers(NVML_ERROR_LIBRARY_NOT_FOUND, nvmlInit_v2());
	check(unsetenv("NVMLFAB_CORE") == 0);
	check(setenv("NVMLFAB_PROFILE", "none", 1) == 0); // a message of the core
	answers(NVML_ERROR_UNKNOWN, nvmlInit_v2());
	check(unsetenv("NVMLFAB_PROFILE") == 0);
	ok(nvmlInit_v2());
	ok(nvmlShutdown());
}

static int sigpipe_waits(void)
{
	sigset_t pending;
	check(sigpending(&pending) == 0);
	return sigismember(&pending, SIGPIPE);
}

static void complain_with_sigpipe_blocked(void)
{
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGPIPE);
	check(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	complain_twice();
	check(!sigpipe_waits());
	check(raise(SIGPIPE) == 0); // the host's own stays pending
	check(setenv("NVMLFAB_PROFILE", "none", 1) == 0);
	answers(NVML_ERROR_UNKNOWN, nvmlInit_v2());
	check(sigpipe_waits());
}

static void messages(char **argv)
{
	(void)argv;
	int ends[2];
	check(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0);
	check(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	for (char text[4096] = { 'x' }; poll(&(struct pollfd){ .fd = ends[1], .events = POLLOUT }, 1, 0) == 1;)
		check(write(ends[1], text, sizeof text) > 0);
	finish(child(complain_twice)); // the pipe is full
	check((fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
	close(ends[0]);
	finish(child(complain_twice)); // the pipe is broken, and SIGPIPE would end the child
	finish(child(complain_with_sigpipe_blocked));
}

// ---- Too few threads -----------------------------------------------------------------------------------------------

static void use(void)
{
	ok(nvmlInit_v2());
	learn();
	calls(1000);
}

// For each number of allowed tasks, a child has either a working core or the answer that there is none. When more tasks are
// allowed, it has one, and a child of its own had one before.
static void tasks(char **argv)
{
	long refused = 0, served = 0;
	(void)argv;
	if (getuid() == 0)
		check(setresgid(54321, 54321, 54321) == 0 && setresuid(54321, 54321, 54321) == 0);
	for (rlim_t limit = 2; limit <= 64; limit += limit < 16 ? 1 : 16) {
		pid_t pid = fork();
		if (pid == 0) {
			alarm(HANG);
			struct rlimit now;
			check(getrlimit(RLIMIT_NPROC, &now) == 0);
			check(setrlimit(RLIMIT_NPROC, &(struct rlimit){ limit, now.rlim_max }) == 0);
			nvmlReturn_t answer = nvmlInit_v2();
			if (answer == NVML_ERROR_MEMORY) {
				check(setrlimit(RLIMIT_NPROC, &now) == 0);
				finish(child(use));
				use();
				_exit(7);
			}
			ok(answer);
			learn();
			calls(100 * 1000);
			_exit(0);
		}
		int status;
		check(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		check(WEXITSTATUS(status) == 7 || WEXITSTATUS(status) == 0);
		*(status == 0 ? &served : &refused) += 1;
	}
	printf("%ld refused, %ld served\n", refused, served);
}

// ---- Handlers that fork, call NVML or need much stack --------------------------------------------------------------

static void tick_every(long us, void (*handler)(int))
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };
	check(sigaction(SIGPROF, &act, NULL) == 0 && sigaction(SIGUSR2, &act, NULL) == 0);
	check(setitimer(ITIMER_PROF, &(struct itimerval){ { 0, us }, { 0, us } }, NULL) == 0);
}

static void stop_ticking(void) { check(setitimer(ITIMER_PROF, &(struct itimerval){ 0 }, NULL) == 0); }

static void fork_and_wait(int sig)
{
	(void)sig;
	int saved = errno, status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	handled++;
	errno = saved;
}

// nvmlInit and nvmlShutdown hold the front's lock, and a fork waits for it.
static void fork_in_lives(void)
{
	tick_every(1000, fork_and_wait);
	for (long i = 0; i < 100 || handled < 20; i++) {
		ok(nvmlInit_v2());
		if (gpus == 0)
			learn();
		ok(nvmlShutdown());
	}
	stop_ticking();
}

static void forking(char **argv)
{
	(void)argv;
	for (int i = 0; i < 5; i++)
		finish(child(fork_in_lives));
}

static atomic_long in_use, served;

static void call_again(int sig)
{
	(void)sig;
	int saved = errno;
	char name[96];
	nvmlReturn_t answer = nvmlDeviceGetName(gpu[0].dev, name, sizeof name);
	if (answer == NVML_ERROR_IN_USE) {
		answers(NVML_ERROR_IN_USE, nvmlInit_v2());
		answers(NVML_ERROR_IN_USE, nvmlShutdown());
		in_use++;
	} else {
		ok(answer);
		check(strcmp(name, gpu[0].name) == 0);
		served++;
	}
	errno = saved;
}

static void *call_until_done(void *unused)
{
	while (!done)
		calls(100);
	return unused;
}

static void reentering(char **argv)
{
	(void)argv;
	pthread_t thread;
	ok(nvmlInit_v2());
	learn();
	struct sigaction act = { .sa_handler = call_again, .sa_flags = SA_RESTART };
	check(sigaction(SIGUSR2, &act, NULL) == 0);
	check(pthread_create(&thread, NULL, call_until_done, NULL) == 0);
	while (in_use < 100) {
		check(pthread_kill(thread, SIGUSR2) == 0);
		nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 }, NULL);
	}
	done = 1;
	check(pthread_join(thread, NULL) == 0);
	calls(1000);
	printf("%ld in use, %ld served\n", in_use, served);
}

// Uses a frame of nearly a megabyte, like a handler that walks a large stack or prints.
static void want_a_megabyte(int sig)
{
	(void)sig;
	volatile char room[900 << 10];
	for (size_t i = 0; i < sizeof room; i += 512)
		room[i] = 'Z';
	handled++;
}

// Uses more stack than there is, and so reaches the guard.
static __attribute__((noinline)) void eat(int kib)
{
	volatile char room[1024];
	memset((char *)room, 'Z', sizeof room);
	if (kib > 0)
		eat(kib - 1);
	room[0] = 0;
}

static void want_everything(int sig)
{
	(void)sig;
	eat(64 << 10);
}

static void overrun(void)
{
	check(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) == 0);
	struct sigaction act = { .sa_handler = want_everything };
	check(sigaction(SIGPROF, &act, NULL) == 0);
	check(setitimer(ITIMER_PROF, &(struct itimerval){ { 0, 5000 }, { 0, 5000 } }, NULL) == 0);
	for (;;)
		calls(1000);
}

static void roomy(char **argv)
{
	(void)argv;
	ok(nvmlInit_v2());
	learn();
	tick_every(1000, want_a_megabyte);
	for (long i = 0; handled < 300; i++)
		calls(100);
	stop_ticking();
	calls(10 * 1000);
	int status;
	pid_t pid = child(overrun);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	printf("%ld handlers\n", handled);
}

// ---- Forks without fork handlers, and forks after the files have changed
// ---------------------------------------------

static pid_t bare_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static void unannounced(char **argv)
{
	(void)argv;
	ok(nvmlInit_v2());
	learn();
	calls(1000);
	pid_t (*const way[])(void) = { _Fork, bare_fork };
	for (size_t i = 0; i < sizeof way / sizeof way[0]; i++) {
		for (int first = 0; first < 2; first++) { // detected by a call, and by nvmlInit
			pid_t pid = way[i]();
			if (pid == 0) {
				alarm(HANG);
				if (first) {
					ok(nvmlInit_v2());
					ok(nvmlShutdown());
				}
				calls(40 * 1000);
				ok(nvmlShutdown());
				ok(nvmlInit_v2());
				learn();
				calls(100);
				_exit(0);
			}
			finish(pid);
		}
	}
	calls(1000);
}

static void call_in_child(void) { calls(40 * 1000); }

static void elsewhere(char **argv)
{
	ok(nvmlInit_v2());
	learn();
	check(chroot(argv[2]) == 0 && chdir("/") == 0);
	finish(child(call_in_child));
	finish(child(call_in_child));
	DIR *root = opendir("/");
	check(root != NULL);
	for (struct dirent *entry; (entry = readdir(root)) != NULL;)
		check(strncmp(entry->d_name, ".nvmlfab", 8) != 0);
	closedir(root);
}

// The core is replaced by another file of the same name, and every descriptor is closed.
static void replaced(char **argv)
{
	ok(nvmlInit_v2());
	learn();
	check(unlink(argv[2]) == 0);
	FILE *f = fopen(argv[2], "w");
	check(f != NULL && fputs("another\n", f) > 0 && fclose(f) == 0);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	finish(child(call_in_child));
}

// ---- A thread with the smallest stack ------------------------------------------------------------------------------

static void *whole_life(void *unused)
{
	ok(nvmlInit_v2());
	learn();
	calls(40 * 1000);
	ok(nvmlShutdown());
	return unused;
}

static void narrow(char **argv)
{
	(void)argv;
	pthread_t thread;
	pthread_attr_t attributes;
	check(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 16 << 10) == 0);
	check(pthread_create(&thread, &attributes, whole_life, NULL) == 0 && pthread_join(thread, NULL) == 0);
	whole_life(NULL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(char **);
		int arguments;
	} hosts[] = {
		{ "settings", settings, 0 },   { "messages", messages, 0 }, { "tasks", tasks, 0 },
		{ "forking", forking, 0 },     { "reentering", reentering, 0 }, { "roomy", roomy, 0 },
		{ "unannounced", unannounced, 0 }, { "elsewhere", elsewhere, 1 }, { "replaced", replaced, 1 },
		{ "narrow", narrow, 0 },
	};
	alarm(HANG);
	for (size_t i = 0; argc > 1 && i < sizeof hosts / sizeof hosts[0]; i++)
		if (strcmp(argv[1], hosts[i].name) == 0 && argc == hosts[i].arguments + 2) {
			hosts[i].run(argv);
			return 0;
		}
	fprintf(stderr, "usage: foreign HOST [ARGUMENT]\n");
	return 2;
}
