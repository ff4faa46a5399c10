// Sixty-four threads initialise NVML, call it and shut it down, each in its own order.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "core.h"

enum { THREADS = 64 };

static int rounds;

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

// with_life makes calls while the thread itself holds a reference, so every answer must be right.
static nvmlDevice_t with_life(unsigned int which)
{
	unsigned int n;
	char uuid[96], name[96];
	nvmlDevice_t dev;
	ok(nvmlDeviceGetCount_v2(&n));
	check(n == gpus);
	ok(nvmlDeviceGetHandleByIndex_v2(which, &dev));
	ok(nvmlDeviceGetUUID(dev, uuid, sizeof uuid));
	check(strcmp(uuid, gpu[which].uuid) == 0);
	ok(nvmlDeviceGetName(dev, name, sizeof name));
	check(strcmp(name, gpu[which].name) == 0);
	nvmlEventSet_t set;
	ok(nvmlEventSetCreate(&set));
	ok(nvmlEventSetFree(set)); // no other thread has the same
	return dev;
}

// without_life makes calls while NVML may be initialised and shut down by others, with a handle that may be stale. An
// answer must be right, or an error for that case.
static void without_life(unsigned int which, nvmlDevice_t dev)
{
	char uuid[96];
	unsigned int n;
	int answer = (int)nvmlDeviceGetUUID(dev, uuid, sizeof uuid);
	if (answer == NVML_SUCCESS)
		check(strcmp(uuid, gpu[which].uuid) == 0);
	else if (answer != NVML_ERROR_UNINITIALIZED && answer != NVML_ERROR_INVALID_ARGUMENT)
		fail(__FILE__, __LINE__, "nvmlDeviceGetUUID = %d", answer);
	answer = (int)nvmlDeviceGetCount_v2(&n);
	if (answer != NVML_ERROR_UNINITIALIZED)
		check(answer == NVML_SUCCESS && (n == gpus || n == 0));
}

static void *live(void *arg)
{
	uint32_t state = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
	nvmlDevice_t last = at(NULL);
	unsigned int which = 0;
	for (int i = 0; i < rounds; i++) {
		int depth = (int)(next(&state) % 3);
		for (int d = 0; d < depth; d++)
			ok(nvmlInit_v2());
		if (depth > 0) {
			which = next(&state) % gpus;
			last = with_life(which);
		}
		for (int d = 0; d < depth; d++) {
			ok(nvmlShutdown());
			if (d < depth - 1)
				with_life(which);
		}
		without_life(which, last);
		if (next(&state) % 8 == 0)
			sched_yield();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	check(argc == 2);
	alarm(300);
	rounds = atoi(argv[1]);
	ok(nvmlInit_v2());
	learn();
	ok(nvmlShutdown());
	pthread_t thread[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, live, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
	unsigned int n;
	answers(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount_v2(&n));
	ok(nvmlShutdown()); // one too many, which drivers take for done
	ok(nvmlInit_v2());
	ok(nvmlShutdown());
	return 0;
}
