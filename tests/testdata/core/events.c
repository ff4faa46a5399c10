// Programs that wait for events. The first argument selects one.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "core.h"

enum { EVENTS = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeSingleBitEccError };

static nvmlEventSet_t none(void)
{
	nvmlEventSet_t set;
	memset(&set, 0, sizeof set);
	return set;
}

static double ms(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double cpu(void)
{
	struct rusage u;
	check(getrusage(RUSAGE_SELF, &u) == 0);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

// A set with the events of all GPUs.
static nvmlEventSet_t registered(void)
{
	nvmlEventSet_t set = none();
	ok(nvmlEventSetCreate(&set));
	for (unsigned int i = 0; i < gpus; i++) {
		unsigned long long types = 0;
		ok(nvmlDeviceGetSupportedEventTypes(gpu[i].dev, &types));
		ok(nvmlDeviceRegisterEvents(gpu[i].dev, types & EVENTS, set));
	}
	return set;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

// Prints an event and the time at which it came, in ms since 1970.
static void print(const char *who, const nvmlEventData_t *e)
{
	double at = ms(CLOCK_REALTIME);
	char uuid[96];
	ok(nvmlDeviceGetUUID(e->device, uuid, sizeof uuid));
	printf("%s %llu %llu %s %x %x %.3f\n", who, e->eventType, e->eventData, uuid, e->gpuInstanceId, e->computeInstanceId, at);
	fflush(stdout);
}

// Prints events until none comes for some ms.
static void follow(const char *who, nvmlEventSet_t set, unsigned int timeout)
{
	nvmlEventData_t e;
	nvmlReturn_t answer;
	while ((answer = nvmlEventSetWait_v2(set, &e, timeout)) == NVML_SUCCESS)
		print(who, &e);
	answers(NVML_ERROR_TIMEOUT, answer);
}

static void idle(unsigned int timeout)
{
	nvmlEventSet_t set = registered();
	nvmlEventData_t e;
	nvmlEventSetWait_v2(set, &e, 0);
	double before = cpu(), begin = ms(CLOCK_MONOTONIC);
	answers(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &e, timeout));
	printf("waited %.0f ms with %.0f us of CPU\n", ms(CLOCK_MONOTONIC) - begin, (cpu() - before) * 1e3);
}

// ---- Many threads --------------------------------------------------------------------------------------------------

enum { THREADS = 200 };

static _Atomic int events, nothing;
static pthread_barrier_t all;

static void *waiter(void *arg)
{
	(void)arg;
	nvmlEventSet_t set = registered();
	pthread_barrier_wait(&all);
	nvmlEventData_t e;
	ok(nvmlEventSetWait_v2(set, &e, 60000));
	events++;
	answers(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &e, 1000));
	nothing++;
	ok(nvmlEventSetFree(set));
	return NULL;
}

static nvmlEventSet_t shared;

static void *sharer(void *arg)
{
	(void)arg;
	nvmlEventData_t e;
	pthread_barrier_wait(&all);
	while (nvmlEventSetWait_v2(shared, &e, 1000) == NVML_SUCCESS)
		events++;
	nothing++;
	return NULL;
}

static void threads(void *(*run)(void *))
{
	pthread_t thread[THREADS];
	pthread_barrier_init(&all, NULL, THREADS + 1);
	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, run, NULL) == 0);
	pthread_barrier_wait(&all);
	ready();
	for (int i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
	printf("%d events, then %d times none\n", events, nothing);
}

// ---- Calls ---------------------------------------------------------------------------------------------------------

static void arguments(void)
{
	nvmlEventSet_t set = none();
	nvmlEventData_t e;
	ok(nvmlEventSetCreate(&set));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v2(set, NULL, 60000));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v2(none(), &e, 60000));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetSupportedEventTypes(gpu[0].dev, NULL));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(gpu[0].dev, nvmlEventTypeXidCriticalError, none()));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(gpu[0].dev, 0x20, set));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(at(&e), nvmlEventTypeXidCriticalError, set));
	ok(nvmlDeviceRegisterEvents(gpu[0].dev, nvmlEventTypeNone, set));
	ok(nvmlDeviceRegisterEvents(gpu[0].dev, nvmlEventTypeXidCriticalError, set));
	ok(nvmlDeviceRegisterEvents(gpu[0].dev, nvmlEventTypeXidCriticalError, set));

	memset(&e, 0xa5, sizeof e);
	for (unsigned int timeout = 0; timeout <= 700; timeout += 350) {
		double begin = ms(CLOCK_MONOTONIC);
		errno = 4711;
		answers(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &e, timeout));
		check(errno == 4711);
		check(ms(CLOCK_MONOTONIC) - begin >= timeout);
	}
	for (size_t i = 0; i < sizeof e; i++)
		check(((unsigned char *)&e)[i] == 0xa5);
	ok(nvmlEventSetFree(set));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v2(set, &e, 60000));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set));
}

static void system_events(void)
{
	enum { LIST = 2 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
	nvmlSystemEventData_v1_t *data = (nvmlSystemEventData_v1_t *)(void *)(pages + page) - LIST; // ends where nothing can be accessed
	nvmlSystemEventSetCreateRequest_t create = {.version = 1};
	answers(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlSystemEventSetCreate(&create));
	create.version = nvmlSystemEventSetCreateRequest_v1;
	ok(nvmlSystemEventSetCreate(&create));
	nvmlSystemRegisterEventRequest_t add = {.version = nvmlSystemRegisterEventRequest_v1, .eventTypes = 4, .set = create.set};
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlSystemRegisterEvents(&add));
	add.eventTypes = nvmlSystemEventTypeGpuDriverUnbind | nvmlSystemEventTypeGpuDriverBind;
	ok(nvmlSystemRegisterEvents(&add));
	nvmlSystemEventSetWaitRequest_t wait = {.version = nvmlSystemEventSetWaitRequest_v1, .timeoutms = 60000, .set = create.set};
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlSystemEventSetWait(NULL));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlSystemEventSetWait(&wait));
	wait.data = data;
	wait.dataSize = LIST;
	wait.timeoutms = 0;
	answers(NVML_ERROR_TIMEOUT, nvmlSystemEventSetWait(&wait));
	ready();
	wait.timeoutms = 60000;
	for (unsigned int got = 0; got < 3; got += wait.numEvent) {
		ok(nvmlSystemEventSetWait(&wait));
		check(wait.numEvent >= 1 && wait.numEvent <= LIST);
		for (unsigned int i = 0; i < wait.numEvent; i++)
			printf("%llu %x\n", data[i].eventType, data[i].gpuId);
	}
	nvmlSystemEventSetFreeRequest_t end = {.version = nvmlSystemEventSetFreeRequest_v1, .set = create.set};
	ok(nvmlSystemEventSetFree(&end));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlSystemEventSetFree(&end));
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlSystemEventSetWait(&wait));
	check(munmap(pages, 2 * page) == 0);
}

static void third(void)
{
	nvmlEventSet_t set = registered();
	nvmlEventSetWait_v3_t e;
	memset(&e, 0xa5, sizeof e);
	e.timeoutMs = 0;
	answers(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v3(set, NULL));
	answers(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v3(set, &e));
	ready();
	e.timeoutMs = 60000;
	ok(nvmlEventSetWait_v3(set, &e));
	check(e.timeoutMs == 60000 && e.severity == 0 && e.sourceModule[0] == 0 && e.groupSize == 0);
	printf("%u %s %llu %llu %x %x %llu\n", e.dataType, e.uuid, e.eventType, e.eventData, e.gpuInstanceId, e.computeInstanceId, e.timestampUsec);
}

// ---- What ends a wait ----------------------------------------------------------------------------------------------

static nvmlReturn_t ended;

static void *long_wait(void *arg)
{
	nvmlEventSet_t set;
	memcpy(&set, arg, sizeof set);
	nvmlEventData_t e;
	ended = nvmlEventSetWait_v2(set, &e, 3600 * 1000);
	return NULL;
}

// Ends a thread's wait of an hour, and says how long that took.
static void end_by(const char *name, nvmlReturn_t want, nvmlReturn_t (*end)(nvmlEventSet_t))
{
	nvmlEventSet_t set = registered();
	pthread_t thread;
	check(pthread_create(&thread, NULL, long_wait, &set) == 0);
	usleep(300000);
	double begin = ms(CLOCK_MONOTONIC);
	ok(end(set));
	check(pthread_join(thread, NULL) == 0);
	printf("%s ended the wait after %.0f ms\n", name, ms(CLOCK_MONOTONIC) - begin);
	answers(want, ended);
}

static nvmlReturn_t shutdown_under(nvmlEventSet_t set)
{
	(void)set;
	return nvmlShutdown();
}

static _Atomic int handled;

// A handler that calls NVML and forks, as no sane program does.
static void on_signal(int number)
{
	(void)number;
	char uuid[96];
	ok(nvmlDeviceGetUUID(gpu[0].dev, uuid, sizeof uuid));
	pid_t child = fork();
	if (child == 0) {
		ok(nvmlDeviceGetUUID(gpu[0].dev, uuid, sizeof uuid));
		_exit(0);
	}
	finish(child);
	handled++;
}

static void ends(void)
{
	end_by("nvmlEventSetFree", NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree);
	end_by("nvmlShutdown", NVML_ERROR_UNINITIALIZED, shutdown_under);
	ok(nvmlInit_v2());
	learn();

	nvmlEventSet_t set = registered();
	nvmlEventData_t e;
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	check(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 1; i <= 5; i++) {
		pthread_t self = pthread_self();
		pid_t sender = fork();
		if (sender == 0) {
			usleep(100000);
			_exit(kill(getppid(), SIGUSR1));
		}
		(void)self;
		answers(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &e, 3600 * 1000)); // nvml.h: or interrupt arrived
		finish(sender);
		check(handled == i);
	}
}

int main(int argc, char **argv)
{
	alarm(900);
	check(argc >= 2);
	ok(nvmlInit_v2());
	learn();
	if (strcmp(argv[1], "idle") == 0) {
		idle((unsigned int)atoi(argv[2]));
	} else if (strcmp(argv[1], "follow") == 0) {
		nvmlEventSet_t set = registered();
		ready();
		nvmlEventData_t e;
		ok(nvmlEventSetWait_v2(set, &e, 120000));
		print("follow", &e);
		follow("follow", set, 1000);
	} else if (strcmp(argv[1], "threads") == 0) {
		threads(waiter);
	} else if (strcmp(argv[1], "share") == 0) {
		shared = registered();
		threads(sharer);
	} else if (strcmp(argv[1], "fork") == 0) {
		nvmlEventSet_t set = registered();
		pid_t child = fork();
		if (child != 0)
			ready();
		nvmlEventData_t e;
		ok(nvmlEventSetWait_v2(set, &e, 120000));
		print(child == 0 ? "child" : "parent", &e);
		follow(child == 0 ? "child" : "parent", set, 1000);
		if (child == 0)
			_exit(0);
		finish(child);
	} else if (strcmp(argv[1], "arguments") == 0) {
		arguments();
	} else if (strcmp(argv[1], "system") == 0) {
		system_events();
	} else if (strcmp(argv[1], "third") == 0) {
		third();
	} else if (strcmp(argv[1], "ends") == 0) {
		ends();
	} else {
		fail(__FILE__, __LINE__, "no program %s", argv[1]);
	}
	return 0;
}
