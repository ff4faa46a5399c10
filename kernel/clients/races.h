/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of evil with many threads and processes. */
#ifndef RACES_H
#define RACES_H

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

static int shared;			/* a descriptor that some use while others close and replace it */
static uint32_t shared_handle;
static volatile bool stop;
static int unexpected;			/* an errno that no race can cause */
static uint64_t successes;

static void expect(int err, int a, int b, int c)
{
	if (!err)
		__atomic_add_fetch(&successes, 1, __ATOMIC_RELAXED);
	else if (err != a && err != b && err != c)
		__atomic_store_n(&unexpected, err, __ATOMIC_RELAXED);
}

/* Runs n threads, half of them with each function. */
static void race(int n, void *(*first)(void *), void *(*second)(void *))
{
	pthread_t threads[64];
	int i;

	stop = false;
	unexpected = 0;
	successes = 0;
	for (i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, i % 2 ? second : first, (void *)(uintptr_t)(i + 1)))
			die("pthread_create");
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static void held_after(const char *name)
{
	int fd = device_open(O_RDWR);

	EQUAL(name, device_info(fd).device_used, 0u);
	close(fd);
}

/* The threads of both functions stop when the replacing thread has replaced the descriptor often enough,
 * and another thread has used it at least once, which may take long on a busy machine. */
static void *replace(void *arg)
{
	int n, fd;
	uint32_t handle;

	for (n = 0; (n < 150 || !__atomic_load_n(&successes, __ATOMIC_RELAXED)) && (uintptr_t)arg == 1; n++) {
		fd = device_open(O_RDWR);
		mem_alloc(fd, PAGE, &handle);
		if (n % 2)
			close(shared);
		dup2(fd, shared);
		close(fd);
		sched_yield();
	}
	if ((uintptr_t)arg == 1)
		stop = true;
	return NULL;
}

static void *use(void *arg)
{
	static const char zero[PAGE];
	void *page;

	while (!stop)
		switch (((uintptr_t)arg + successes) % 4) {
		case 0:
			expect(job_wait(shared, 1, 100000, NULL), EBADF, EINVAL, ETIMEDOUT);
			break;
		case 1:
			page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, shared, 0);
			expect(page == MAP_FAILED ? errno : 0, EBADF, EBADF, EBADF);
			if (page != MAP_FAILED && !memcmp(page, zero, 4))
				unexpected = -1;	/* a page without a version */
			if (page != MAP_FAILED)
				munmap(page, PAGE);
			break;
		default:
			expect(job_submit(shared, 1, NULL), EBADF, EINVAL, EAGAIN);
		}
	return NULL;
}

static void test_race_close(void)
{
	shared = device_open(O_RDWR);
	race(6, replace, use);
	EQUAL("race: SUBMIT, WAIT and mmap against close and open: only expected errors", unexpected, 0);
	CHECK("race: and some succeed", successes);
	close(shared);
	held_after("race: and nothing is held");
}

static pthread_barrier_t barrier;
static uint64_t freed;

static void *submit_at_once(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&barrier);
	for (int n = 0; n < 4; n++)
		expect(job_submit(shared, shared_handle, NULL), EINVAL, EAGAIN, EAGAIN);
	return NULL;
}

static void *free_at_once(void *arg)
{
	int err;

	(void)arg;
	pthread_barrier_wait(&barrier);
	err = mem_free(shared, shared_handle);
	if (!err)
		__atomic_add_fetch(&freed, 1, __ATOMIC_RELAXED);
	expect(err, EINVAL, EINVAL, EINVAL);
	return NULL;
}

static void test_race_free(void)
{
	enum { ROUNDS = 40, THREADS = 6 };
	const struct fakegpu_page *page;
	int n, bad = 0;

	shared = device_open(O_RDWR);
	page = page_map(shared);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (n = 0; n < ROUNDS; n++) {
		if (mem_alloc(shared, PAGE, &shared_handle))
			die("FAKEGPU_IOCTL_ALLOC");
		race(THREADS, submit_at_once, free_at_once);
		bad = bad ? bad : unexpected;
	}
	EQUAL("race: FREE against SUBMIT: only expected errors", bad, 0);
	EQUAL("race: each handle is freed once", freed, (uint64_t)ROUNDS);
	if (page_submitted(page))
		job_wait(shared, page_submitted(page), FAKEGPU_WAIT_FOREVER, NULL);
	EQUAL("race: and no job keeps its memory", device_info(shared).context_used, 0u);
	munmap((void *)page, PAGE);
	close(shared);
}

enum { EACH = 40, SUBMITTERS = 4 };
static unsigned char given[EACH * SUBMITTERS + 1];

static int submit_file;		/* holds the argument */

/* The argument is in a copy-on-write page, which slows down SUBMIT's write of its answer. */
static void *submit_many(void *arg)
{
	struct fakegpu_submit *submit = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, submit_file, 0);
	struct pollfd p = { .fd = shared, .events = POLLOUT };
	int n, err;

	(void)arg;
	if (submit == MAP_FAILED)
		die("mmap");
	for (n = 0; n < EACH; n++) {
		madvise(submit, PAGE, MADV_DONTNEED);
		while ((err = call(shared, FAKEGPU_IOCTL_SUBMIT, submit)) == EAGAIN)
			poll(&p, 1, -1);
		expect(err, 0, 0, 0);
		if (submit->seqno < sizeof(given))
			__atomic_add_fetch(&given[submit->seqno], 1, __ATOMIC_RELAXED);
	}
	munmap(submit, PAGE);
	return NULL;
}

static void test_race_submit(void)
{
	uint64_t completed;
	size_t n;

	shared = device_open(O_RDWR);
	if (mem_alloc(shared, PAGE, &shared_handle))
		die("FAKEGPU_IOCTL_ALLOC");
	submit_file = memfd_create("argument", MFD_CLOEXEC);
	if (pwrite(submit_file, &(struct fakegpu_submit){ .handle = shared_handle }, sizeof(struct fakegpu_submit), 0) < 0 || ftruncate(submit_file, PAGE))
		die("memfd");
	race(SUBMITTERS, submit_many, submit_many);
	close(submit_file);
	EQUAL("race: SUBMIT against SUBMIT: only expected errors", unexpected, 0);
	for (n = 1; n < sizeof(given) && given[n] == 1; n++)
		;
	EQUAL("race: each number is given once", n, sizeof(given));
	GIVES("race: and all complete", 0, job_wait(shared, EACH * SUBMITTERS, FAKEGPU_WAIT_FOREVER, &completed));
	EQUAL("race: up to the last", completed, (uint64_t)EACH * SUBMITTERS);
	close(shared);
}

/* An argument that changes while the kernel reads it. */
static volatile struct fakegpu_alloc changing;

static void *change(void *arg)
{
	(void)arg;
	while (!stop) {
		changing.size = UINT64_MAX;
		changing.size = 0;
		changing.size = PAGE;
		changing.flags = 1;
		changing.flags = 0;
	}
	return NULL;
}

static void *alloc_changing(void *arg)
{
	(void)arg;
	for (int n = 0; n < 400; n++) {
		expect(call(shared, FAKEGPU_IOCTL_ALLOC, (void *)&changing), ENOSPC, EINVAL, EINVAL);
		sched_yield();
	}
	stop = true;
	return NULL;
}

static void test_race_argument(void)
{
	struct fakegpu_info i;

	shared = device_open(O_RDWR);
	race(2, change, alloc_changing);
	i = device_info(shared);
	EQUAL("race: an argument that changes: only expected errors", unexpected, 0);
	EQUAL("race: what is held is what was checked", i.context_used, successes * PAGE);
	EQUAL("race: by as many handles", i.context_handles, successes);
	close(shared);
}

/* Contexts that together ask for more memory than the device has. */
static void *hoard(void *arg)
{
	int fd = device_open(O_RDWR), n;
	struct fakegpu_info i = device_info(fd);
	uint32_t handle;

	(void)arg;
	for (n = 0; n < 60; n++) {
		expect(mem_alloc(fd, i.context_bytes / 3, &handle), ENOSPC, ENOMEM, ENOMEM);
		i = device_info(fd);
		if (i.context_used > i.context_bytes || i.device_used > i.device_bytes)
			unexpected = -1;
		if (handle && n % 3)
			mem_free(fd, handle);
		sched_yield();
	}
	close(fd);
	return NULL;
}

/* Opens a context, uses it and closes it. */
static void *live(void *arg)
{
	const struct fakegpu_page *page;
	struct pollfd p = { .events = POLLIN };
	uint32_t handle;
	uint64_t seqno;
	int n;

	(void)arg;
	for (n = 0; n < 15; n++) {
		p.fd = device_open(O_RDWR);
		page = page_map(p.fd);
		expect(mem_alloc(p.fd, PAGE, &handle), ENOMEM, ENOMEM, ENOMEM);
		if (handle) {
			expect(job_submit(p.fd, handle, NULL), 0, 0, 0);
			expect(job_submit(p.fd, handle, &seqno), 0, 0, 0);
			expect(mem_free(p.fd, handle), 0, 0, 0);
			poll(&p, 1, n % 2 ? -1 : 0);
			if (n % 3)
				expect(job_wait(p.fd, seqno, n % 3 == 1 ? 1000 : FAKEGPU_WAIT_FOREVER, NULL), ETIMEDOUT, ETIMEDOUT, ETIMEDOUT);
			if (n % 3 == 2 && page_completed(page) != seqno)
				unexpected = -1;
		}
		if (n % 2)
			munmap((void *)page, PAGE);
		close(p.fd);
		if (n % 2 == 0)
			munmap((void *)page, PAGE);
	}
	return NULL;
}

static void test_storm(void)
{
	pid_t children[16];
	unsigned int n;
	int fd;

	race(12, hoard, hoard);
	EQUAL("storm: contexts that want more than there is get no more", unexpected, 0);
	CHECK("storm: and some of it", successes);
	held_after("storm: and nothing is held after them");
	race(24, live, live);
	EQUAL("storm: threads with a context each: only expected errors", unexpected, 0);
	held_after("storm: and nothing is held after them either");

	fflush(stdout);
	for (n = 0; n < 16; n++) {
		children[n] = fork();
		if (!children[n])
			for (;;)
				live(NULL);
	}
	for (n = 0; n < 16; n++) {
		nanosleep(&(struct timespec){ .tv_nsec = 7000000 }, NULL);
		kill(children[n], SIGKILL);
		waitpid(children[n], NULL, 0);
	}
	held_after("storm: processes killed at any moment hold nothing");

	/* As many contexts as a process may have descriptors. */
	for (n = 0; (fd = open(DEVICE, O_RDWR)) >= 0; n++)
		mem_alloc(fd, 1, NULL);
	check_at(__LINE__, "storm: descriptors run out before the device does", errno == EMFILE, "after %u: %s", n, strerror(errno));
	close_range(3, ~0u, 0);
	held_after("storm: and all that memory comes back");
}

static void test_races(void)
{
	test_race_close();
	test_race_free();
	test_race_submit();
	test_race_argument();
	test_storm();
}

#endif
