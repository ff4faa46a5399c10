// Programs that fork. The first argument selects one.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "core.h"

extern char **environ;

// SIGALRM ends a program that hangs, and nothing else.
enum { HANG = 300 };

// child forks and calls body in the child.
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

// ---- Many children of a parent with threads in NVML ----------------------------------------------------------------

static atomic_int busy, done;
static atomic_long rounds;

// While busy is set the thread calls without a pause; otherwise it leaves the processors to the children.
static void *caller(void *unused)
{
	(void)unused;
	while (!done) {
		if (busy)
			calls(64), rounds++;
		else
			nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 }, NULL);
	}
	return NULL;
}

static long per_child;
static struct tally {
	atomic_long children, collections, fewest;
} *tally;

static void count_and_call(void)
{
	listen_to_collections();
	calls(per_child);
	long n = collections();
	tally->children++;
	tally->collections += n;
	for (long fewest = tally->fewest; n < fewest && !atomic_compare_exchange_weak(&tally->fewest, &fewest, n);)
		;
}

static void many(int argc, char **argv)
{
	enum { AT_ONCE = 4 };
	check(argc == 4);
	long children = atol(argv[2]);
	per_child = atol(argv[3]);
	tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(tally != MAP_FAILED);
	tally->fewest = INT64_MAX;

	listen_to_collections();
	ok(nvmlInit_v2());
	learn();
	pthread_t thread[4];
	for (int i = 0; i < 4; i++)
		check(pthread_create(&thread[i], NULL, caller, NULL) == 0);
	pid_t running[AT_ONCE];
	for (long i = 0; i < children + AT_ONCE; i++) {
		if (i >= AT_ONCE)
			finish(running[i % AT_ONCE]);
		if (i >= children)
			continue;
		busy = 1;
		for (long enough = rounds + 40; rounds < enough;)
			nanosleep(&(struct timespec){ .tv_nsec = 500 * 1000 }, NULL);
		running[i % AT_ONCE] = child(count_and_call);
		busy = 0;
	}
	done = 1;
	for (int i = 0; i < 4; i++)
		check(pthread_join(thread[i], NULL) == 0);
	calls(1000);
	ok(nvmlShutdown());
	printf("%ld children, %ld collections in the parent, %ld in the children, at least %ld in each\n", tally->children,
	       collections(), tally->collections, tally->fewest);
}

// ---- Generations ---------------------------------------------------------------------------------------------------

// Enough calls for a core with GOGC=1 to collect.
enum { ENOUGH = 40 * 1000 };

static long depth, descriptors;

static void generation(void)
{
	calls(ENOUGH);
	check(holdings().descriptors == descriptors);
	if (--depth > 0)
		finish(child(generation));
	calls(ENOUGH);
}

static void chain(int argc, char **argv)
{
	check(argc == 3);
	depth = atol(argv[2]);
	descriptors = holdings().descriptors;
	ok(nvmlInit_v2());
	learn();
	generation();
}

static void grandchild(void) { finish(child(generation)); }

static void fork_then_leave(void)
{
	check(fork() >= 0); // the child goes on as an orphan, like a daemon
}

static void twice(int argc, char **argv)
{
	(void)argc, (void)argv;
	depth = 1;
	descriptors = holdings().descriptors;
	ok(nvmlInit_v2());
	learn();
	finish(child(grandchild));

	int ends[2];
	char word = 0;
	check(pipe(ends) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		fork_then_leave();
		if (getppid() == pid)
			_exit(0);
		calls(ENOUGH);
		check(write(ends[1], "x", 1) == 1);
		_exit(0);
	}
	finish(pid);
	close(ends[1]);
	check(read(ends[0], &word, 1) == 1 && word == 'x');
	check(read(ends[0], &word, 1) == 1 && word == 'x'); // the middle process and the orphan
	calls(1000);
}

// ---- Forks around nvmlInit and nvmlShutdown ------------------------------------------------------------------------

static void whole_life(void)
{
	ok(nvmlInit_v2());
	learn();
	calls(ENOUGH);
	ok(nvmlShutdown());
}

static void first_life(void)
{
	ok(nvmlShutdown()); // one too many, which drivers take for done
	answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&gpus));
	whole_life();
	answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&gpus));
}

static void before(int argc, char **argv)
{
	(void)argc, (void)argv;
	pid_t pid = child(first_life);
	first_life();
	finish(pid);
	finish(child(first_life)); // after a shutdown
	first_life();
}

static void again(void)
{
	nvmlDevice_t old = gpu[0].dev;
	char name[96];
	ok(nvmlShutdown());
	answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetName(old, name, sizeof name));
	ok(nvmlShutdown()); // one too many, which drivers take for done
	ok(nvmlInit_v2());
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName(old, name, sizeof name));
	learn();
	check(address(gpu[0].dev) != address(old));
	calls(2000);
	ok(nvmlShutdown());
	whole_life();
}

static void call_then_again(void)
{
	calls(ENOUGH);
	again();
}

static void count_references(void)
{
	ok(nvmlInit_v2()); // the parent has one more reference
	ok(nvmlShutdown());
	calls(ENOUGH);
	again();
}

static void shutdowns(int argc, char **argv)
{
	(void)argc, (void)argv;
	ok(nvmlInit_v2());
	learn();
	finish(child(again));
	finish(child(call_then_again));
	finish(child(count_references));
	calls(ENOUGH); // the parent has no such handles
	ok(nvmlShutdown());
}

static atomic_int inside; // 0 before, 1 during, 2 after nvmlInit

static void *initialise(void *unused)
{
	(void)unused;
	inside = 1;
	ok(nvmlInit_v2());
	inside = 2;
	return NULL;
}

static void init_and_call(void)
{
	ok(nvmlInit_v2());
	learn();
	calls(200);
	ok(nvmlShutdown());
}

// A process that forks while its first nvmlInit is running in another thread.
static long delay;

static void fork_while_starting(void)
{
	pthread_t thread;
	check(pthread_create(&thread, NULL, initialise, NULL) == 0);
	while (!inside)
		;
	nanosleep(&(struct timespec){ .tv_nsec = delay * 1000 }, NULL);
	if (inside == 1)
		tally->children++;
	finish(child(init_and_call));
	check(pthread_join(thread, NULL) == 0);
	learn();
	calls(200);
}

static void starting(int argc, char **argv)
{
	check(argc == 3);
	tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(tally != MAP_FAILED);
	for (long i = 0; i < atol(argv[2]); i++) {
		delay = i % 10 * 400;
		finish(child(fork_while_starting));
	}
	printf("%ld forks inside nvmlInit\n", tally->children);
}

static void *restart(void *unused)
{
	(void)unused;
	while (!done) {
		ok(nvmlInit_v2());
		ok(nvmlShutdown());
	}
	return NULL;
}

static void restarting(int argc, char **argv)
{
	check(argc == 3);
	pthread_t thread;
	check(pthread_create(&thread, NULL, restart, NULL) == 0);
	for (long i = 0; i < atol(argv[2]); i++)
		finish(child(init_and_call));
	done = 1;
	check(pthread_join(thread, NULL) == 0);
}

// ---- Threads of children -------------------------------------------------------------------------------------------

static void *call_in_thread(void *unused)
{
	(void)unused;
	calls(ENOUGH / 8);
	return NULL;
}

static void first_calls_at_once(void)
{
	pthread_t thread[8];
	for (int i = 0; i < 8; i++)
		check(pthread_create(&thread[i], NULL, call_in_thread, NULL) == 0);
	for (int i = 0; i < 8; i++)
		check(pthread_join(thread[i], NULL) == 0);
}

// Ends the process after the end of the thread that forked it.
static void *outlive(void *forker)
{
	check(pthread_join(*(pthread_t *)forker, NULL) == 0);
	calls(200);
	_exit(0);
}

static void *fork_in_thread(void *unused)
{
	static pthread_t self, other;
	(void)unused;
	calls(100);
	pid_t pid = fork();
	if (pid != 0) {
		finish(pid);
		return NULL;
	}
	alarm(HANG);
	self = pthread_self();
	calls(200);
	check(pthread_create(&other, NULL, outlive, &self) == 0);
	return NULL; // the values that either core left in the thread are destroyed here
}

static void threads(int argc, char **argv)
{
	(void)argc, (void)argv;
	ok(nvmlInit_v2());
	learn();
	for (int i = 0; i < 10; i++)
		finish(child(first_calls_at_once));
	pthread_t thread, other[3];
	busy = 1;
	for (int i = 0; i < 3; i++)
		check(pthread_create(&other[i], NULL, caller, NULL) == 0);
	for (int i = 0; i < 60; i++) {
		check(pthread_create(&thread, NULL, fork_in_thread, NULL) == 0);
		check(pthread_join(thread, NULL) == 0);
	}
	done = 1;
	for (int i = 0; i < 3; i++)
		check(pthread_join(other[i], NULL) == 0);
}

// ---- Other programs ------------------------------------------------------------------------------------------------

// A program of its own, which the next function starts: it must not inherit a descriptor of the core.
static void plain(int argc, char **argv)
{
	check(argc == 3);
	answers(atol(argv[2]), holdings().descriptors);
	first_life();
}

static void programs(int argc, char **argv)
{
	(void)argc;
	char descriptors[20];
	char *args[] = { argv[0], "plain", descriptors, NULL };
	snprintf(descriptors, sizeof descriptors, "%ld", holdings().descriptors);
	ok(nvmlInit_v2());
	learn();
	calls(1000);
	for (int called = 0; called < 2; called++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (called)
				calls(1000);
			execv(argv[0], args);
			_exit(4);
		}
		finish(pid);
	}
	pid_t pid;
	check(posix_spawn(&pid, argv[0], NULL, NULL, args, environ) == 0);
	finish(pid);
	pid = vfork();
	if (pid == 0) {
		execv(argv[0], args);
		_exit(4);
	}
	finish(pid);
	calls(1000);
}

// ---- Event sets ----------------------------------------------------------------------------------------------------

static nvmlEventSet_t set[2];

static void use_sets(void)
{
	char name[96];
	nvmlEventSet_t more;
	memcpy(&more, &gpu[0].dev, sizeof more);
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(more)); // a device is no event set
	ok(nvmlEventSetFree(set[0]));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set[0]));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set[1])); // freed before the fork
	ok(nvmlEventSetCreate(&more));
	check(memcmp(&more, &set[0], sizeof more) != 0);
	ok(nvmlEventSetFree(more));
	nvmlDevice_t dev;
	memcpy(&dev, &set[0], sizeof dev);
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName(dev, name, sizeof name));
	calls(1000);
}

static void events(int argc, char **argv)
{
	(void)argc, (void)argv;
	ok(nvmlInit_v2());
	learn();
	ok(nvmlEventSetCreate(&set[0]));
	ok(nvmlEventSetCreate(&set[1]));
	ok(nvmlEventSetFree(set[1]));
	finish(child(use_sets));
	use_sets();
}

// More sets at once than one region has slots, and far more than that one after the other.
enum { SETS = 200 * 1000, PAIRS = 1000 * 1000 };

static nvmlEventSet_t *crowd;

static void alive(void);

static void free_crowd(void)
{
	for (int i = 0; i < SETS; i++) {
		ok(nvmlEventSetFree(crowd[i]));
		if (i % 1000 == 0)
			answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(crowd[i]));
	}
	calls(1000);
}

static void crowds(int argc, char **argv)
{
	(void)argc, (void)argv;
	crowd = calloc(SETS, sizeof crowd[0]);
	check(crowd != NULL);
	ok(nvmlInit_v2());
	learn();
	for (int i = 0; i < SETS; i++)
		ok(nvmlEventSetCreate(&crowd[i]));
	finish(child(free_crowd));
	free_crowd();
	nvmlEventSet_t one;
	struct holdings was = holdings();
	for (int i = 0; i < PAIRS; i++) {
		ok(nvmlEventSetCreate(&one));
		ok(nvmlEventSetFree(one));
	}
	struct holdings now = holdings();
	check(now.resident - was.resident < PAIRS * 40 / 1024 / 2); // KiB; a leak of 40 bytes for each pair would show
	finish(child(alive));
}

// ---- Calls that race the last nvmlShutdown -------------------------------------------------------------------------

enum { RACERS = 64, KEPT = 256 };

static atomic_int stop;

static void *race(void *kept)
{
	nvmlEventSet_t *sets = kept;
	int n = 0;
	for (unsigned int i = 0; !stop; i++) {
		nvmlEventSet_t made;
		nvmlReturn_t answer = nvmlEventSetCreate(&made);
		if (answer == NVML_SUCCESS)
			memcpy(&sets[n++ % KEPT], &made, sizeof made);
		else
			check(answer == NVML_ERROR_UNINITIALIZED);
		if (i % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static void alive(void)
{
	learn();
	calls(1000);
	nvmlEventSet_t made;
	ok(nvmlEventSetCreate(&made));
	ok(nvmlEventSetFree(made));
}

// races makes sixty-four threads create event sets while generations end. Handles of an ended generation are stale in
// the next one, and a child works.
static void races(int argc, char **argv)
{
	check(argc == 3);
	nvmlEventSet_t(*sets)[KEPT] = calloc(RACERS, sizeof *sets);
	check(sets != NULL);
	long tried = 0;
	for (long round = atol(argv[2]); round > 0; round--) {
		pthread_t thread[RACERS];
		stop = 0;
		for (int i = 0; i < RACERS; i++)
			check(pthread_create(&thread[i], NULL, race, sets[i]) == 0);
		for (int life = 0; life < 20; life++) {
			ok(nvmlInit_v2());
			nanosleep(&(struct timespec){ .tv_nsec = 200 * 1000 }, NULL);
			ok(nvmlShutdown());
		}
		stop = 1;
		for (int i = 0; i < RACERS; i++)
			check(pthread_join(thread[i], NULL) == 0);
		ok(nvmlInit_v2());
		for (int i = 0; i < RACERS; i++)
			for (int n = 0; n < KEPT; n++) {
				nvmlEventSet_t none = { 0 };
				tried += memcmp(&sets[i][n], &none, sizeof none) != 0;
				answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(sets[i][n]));
			}
		finish(child(alive));
		ok(nvmlShutdown());
	}
	printf("%ld stale sets refused\n", tried);
}

// ---- What a child needs --------------------------------------------------------------------------------------------

// deny makes memfd_create fail in this process and its children. If files is set, the creation of files fails too.
static void deny(int files)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, files ? SYS_openat : SYS_memfd_create, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof filter / sizeof filter[0], filter };
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// Without a new core a child must not use the parent's, whose threads do not exist.
static void no_core(void)
{
	char name[96];
	unsigned int n;
	answers(NVML_ERROR_UNKNOWN, nvmlDeviceGetName(gpu[0].dev, name, sizeof name));
	ok(nvmlInit_v2()); // one more reference, which needs no core
	ok(nvmlShutdown());
	ok(nvmlShutdown());
	answers(NVML_ERROR_UNKNOWN, nvmlInit_v2());
	answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&n));
}

static void without_memfd(int argc, char **argv)
{
	check(argc == 3);
	int nothing = strcmp(argv[2], "nor files") == 0;
	ok(nvmlInit_v2());
	learn();
	depth = 3;
	descriptors = holdings().descriptors;
	deny(nothing);
	finish(child(nothing ? no_core : generation));
	calls(1000);
}

// The file has other GPUs by now, and the child is in another folder: handles must still stand for the same GPUs. After
// a new nvmlInit the present file counts.
static void other_configuration(void)
{
	char name[96];
	unsigned int n;
	check(chdir("/") == 0);
	calls(1000);
	ok(nvmlShutdown());
	ok(nvmlInit_v2());
	ok(nvmlDeviceGetCount_v2(&n));
	check(n == gpus + 1);
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetName(gpu[0].dev, name, sizeof name));
	learn();
	calls(1000);
}

static void reconfigured(int argc, char **argv)
{
	check(argc == 3);
	for (int count = 2; count <= 3; count++) {
		FILE *f = fopen(argv[2], "w");
		check(f != NULL && fprintf(f, "extends: h100\ncount: %d\n", count) > 0 && fclose(f) == 0);
		if (count == 2) {
			check(setenv("MOCK_NVML_CONFIG", argv[2], 1) == 0);
			ok(nvmlInit_v2());
			learn();
			check(gpus == 2);
		}
	}
	finish(child(other_configuration));
	calls(1000);
}

// ---- Growth --------------------------------------------------------------------------------------------------------

static void compare(struct holdings was)
{
	struct holdings is = holdings();
	printf("%ld → %ld descriptors, %ld → %ld mappings, %ld → %ld KiB\n", was.descriptors, is.descriptors, was.mappings,
	       is.mappings, was.resident, is.resident);
	fflush(stdout);
	check(is.descriptors == was.descriptors);
	check(is.mappings <= was.mappings + 16); // a thread of the core, with its stack and guard, may still be added
	check(is.resident <= was.resident + 16 * 1024);
}

static long cycles;

static void cycle(void)
{
	for (long i = 0; i < 10; i++)
		init_and_call();
	struct holdings was = holdings();
	for (long i = 0; i < cycles; i++) {
		ok(nvmlInit_v2());
		ok(nvmlDeviceGetHandleByIndex_v2(0, &gpu[0].dev));
		ok(nvmlShutdown());
	}
	compare(was);
}

static void growth(int argc, char **argv)
{
	check(argc == 3);
	cycles = atol(argv[2]);
	cycle();
	finish(child(cycle));
}

// Threads that make one call and end.
static void *one_call(void *unused)
{
	(void)unused;
	calls(4);
	return NULL;
}

static void passers_by(int argc, char **argv)
{
	check(argc == 3);
	struct holdings was = { 0 };
	ok(nvmlInit_v2());
	learn();
	for (long i = 0; i < atol(argv[2]); i++) {
		if (i == 100)
			was = holdings();
		pthread_t thread[4];
		for (int t = 0; t < 4; t++)
			check(pthread_create(&thread[t], NULL, one_call, NULL) == 0);
		for (int t = 0; t < 4; t++)
			check(pthread_join(thread[t], NULL) == 0);
	}
	compare(was);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(int, char **);
	} programs_by_name[] = {
		{ "many", many },         { "chain", chain },           { "twice", twice },       { "before", before },
		{ "shutdowns", shutdowns }, { "starting", starting },   { "restarting", restarting }, { "threads", threads },
		{ "plain", plain },       { "programs", programs },     { "events", events },     { "growth", growth },
		{ "passers-by", passers_by }, { "without-memfd", without_memfd }, { "reconfigured", reconfigured },
		{ "crowds", crowds },     { "races", races },
	};
	alarm(HANG);
	for (size_t i = 0; argc > 1 && i < sizeof programs_by_name / sizeof programs_by_name[0]; i++)
		if (strcmp(argv[1], programs_by_name[i].name) == 0) {
			programs_by_name[i].run(argc, argv);
			return 0;
		}
	fprintf(stderr, "usage: fork PROGRAM [ARGUMENT...]\n");
	return 2;
}
