// SPDX-License-Identifier: GPL-2.0-only
/* The test suite of /dev/fakegpu: what its interface promises to a well-behaved program. No other program may use
 * the device meanwhile. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/wait.h>

#include "check.h"

static int64_t latency_ns;

/* Submits jobs up to number last, and tells whether enough of them are running for the check that
 * follows. */
static bool busy(int fd, uint32_t handle, uint64_t *last, const char *name)
{
	if (submit_long(fd, handle, 300000000, last))
		return true;
	skip(name, "jobs are too few or too quick: load with job_latency_us and max_jobs whose product is 150000 or more");
	return false;
}

static short polled(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	if (poll(&p, 1, timeout_ms) < 0)
		die("poll");
	return p.revents;
}

static uint32_t must_alloc(int fd, uint64_t size)
{
	uint32_t handle;
	int err = mem_alloc(fd, size, &handle);

	if (err) {
		errno = err;
		die("FAKEGPU_IOCTL_ALLOC");
	}
	return handle;
}

static uint64_t must_submit(int fd, uint32_t handle)
{
	uint64_t seqno;
	int err = job_submit(fd, handle, &seqno);

	if (err) {
		errno = err;
		die("FAKEGPU_IOCTL_SUBMIT");
	}
	return seqno;
}

static void test_info(void)
{
	int fd = device_open(O_RDWR);
	struct fakegpu_info i = device_info(fd);

	EQUAL("info: version of the interface", i.abi_version, (uint32_t)FAKEGPU_ABI_VERSION);
	CHECK("info: the name ends within its field", i.name[0] && memchr(i.name, 0, sizeof(i.name)));
	CHECK("info: a context's quota is within the device", i.context_bytes && i.context_bytes <= i.device_bytes);
	EQUAL("info: a new context holds no memory", i.context_used, 0u);
	EQUAL("info: a new context holds no handle", i.context_handles, 0u);
	EQUAL("info: nobody holds memory of the device", i.device_used, 0u);
	close(fd);
}

static void test_alloc(void)
{
	int fd = device_open(O_RDWR);
	uint32_t a = must_alloc(fd, 1), b = must_alloc(fd, PAGE + 1), c;

	CHECK("alloc: handles are not 0 and differ", a && b && a != b);
	EQUAL("alloc: whole pages are counted", device_info(fd).context_used, 3 * PAGE);
	EQUAL("alloc: the device counts them too", device_info(fd).device_used, 3 * PAGE);
	EQUAL("alloc: handles are counted", device_info(fd).context_handles, 2u);
	GIVES("free: a handle", 0, mem_free(fd, b));
	EQUAL("free: its memory comes back", device_info(fd).context_used, PAGE);
	EQUAL("free: to the device too", device_info(fd).device_used, PAGE);
	GIVES("free: not twice", EINVAL, mem_free(fd, b));
	c = must_alloc(fd, PAGE);
	CHECK("alloc: no handle is used twice", c != a && c != b);
	close(fd);
	fd = device_open(O_RDWR);
	EQUAL("close: gives all memory back", device_info(fd).device_used, 0u);
	close(fd);
}

static void test_isolation(void)
{
	int a = device_open(O_RDWR), b = device_open(O_RDWR);
	const struct fakegpu_page *page = page_map(b);
	uint32_t handle;
	uint64_t seqno;

	must_alloc(a, PAGE);
	must_alloc(a, PAGE);
	handle = must_alloc(a, PAGE);
	GIVES("isolation: another context cannot free the handle", EINVAL, mem_free(b, handle));
	GIVES("isolation: nor submit on it", EINVAL, job_submit(b, handle, NULL));
	EQUAL("isolation: nor is it counted there", device_info(b).context_used, 0u);
	EQUAL("isolation: the owner still has it", device_info(a).context_handles, 3u);
	seqno = must_submit(a, handle);
	GIVES("isolation: another context cannot wait for the job", EINVAL, job_wait(b, seqno, 0, NULL));
	GIVES("isolation: the owner can", 0, job_wait(a, seqno, FAKEGPU_WAIT_FOREVER, NULL));
	EQUAL("isolation: the other's page shows no completion", page_completed(page), 0u);
	EQUAL("isolation: nor a submission", page_submitted(page), 0u);
	CHECK("isolation: nor does its poll", !(polled(b, POLLIN, 0) & POLLIN));
	handle = must_alloc(b, PAGE);
	EQUAL("isolation: job numbers are private", must_submit(b, handle), 1u);
	close(a);
	EQUAL("isolation: closing one leaves the other its memory", device_info(b).context_used, PAGE);
	munmap((void *)page, PAGE);
	close(b);
}

static void test_context_quota(void)
{
	int fd = device_open(O_RDWR);
	struct fakegpu_info i = device_info(fd);
	uint64_t whole = i.context_bytes / PAGE * PAGE;
	uint32_t handle, n;

	GIVES("quota: more than a context may hold", ENOSPC, mem_alloc(fd, whole + 1, NULL));
	GIVES("quota: the greatest size there is", ENOSPC, mem_alloc(fd, UINT64_MAX, NULL));
	GIVES("quota: a size that overflows when rounded", ENOSPC, mem_alloc(fd, UINT64_MAX - PAGE + 2, NULL));
	EQUAL("quota: what was refused is not counted", device_info(fd).device_used, 0u);
	GIVES("quota: all that a context may hold", 0, mem_alloc(fd, whole, &handle));
	GIVES("quota: and no byte more", ENOSPC, mem_alloc(fd, 1, NULL));
	GIVES("quota: free", 0, mem_free(fd, handle));
	GIVES("quota: then there is room again", 0, mem_alloc(fd, whole, &handle));
	mem_free(fd, handle);

	if (i.max_handles * PAGE > whole) {
		skip("quota: of handles", "they do not fit into the quota of bytes: load with a greater context_bytes or fewer max_handles");
	} else {
		for (n = 0; n < i.max_handles && !mem_alloc(fd, PAGE, &handle); n++)
			;
		EQUAL("quota: as many handles as INFO says", n, i.max_handles);
		GIVES("quota: and no handle more", ENOSPC, mem_alloc(fd, PAGE, NULL));
		GIVES("quota: free one", 0, mem_free(fd, handle));
		GIVES("quota: then one more fits", 0, mem_alloc(fd, PAGE, NULL));
	}
	close(fd);
}

static void test_device_quota(void)
{
	int first = device_open(O_RDWR), fds[256];
	struct fakegpu_info i = device_info(first);
	uint64_t whole = i.context_bytes / PAGE * PAGE, left = i.device_bytes / PAGE * PAGE;
	unsigned int n = 0;
	bool all = true;

	if (left / whole >= sizeof(fds) / sizeof(fds[0])) {
		skip("quota: of the device", "it takes too many contexts to fill: load with a greater context_bytes");
		close(first);
		return;
	}
	for (; left >= whole; left -= whole, n++) {
		fds[n] = device_open(O_RDWR);
		all = all && !mem_alloc(fds[n], whole, NULL);
	}
	CHECK("quota: contexts fill the device", all);
	if (left)
		must_alloc(first, left);
	EQUAL("quota: the device is full", device_info(first).device_used, i.device_bytes / PAGE * PAGE);
	fds[n] = device_open(O_RDWR);
	GIVES("quota: a full device has no memory for a context within its quota", ENOMEM, mem_alloc(fds[n], 1, NULL));
	EQUAL("quota: which is not counted", device_info(fds[n]).context_used, 0u);
	EQUAL("quota: nor is a handle", device_info(fds[n]).context_handles, 0u);
	GIVES("quota: above both, its own quota answers", ENOSPC, mem_alloc(fds[n], whole + 1, NULL));
	close(fds[0]);
	GIVES("quota: when one closes there is memory again", 0, mem_alloc(fds[n], whole, NULL));
	for (; n; n--)
		close(fds[n]);
	close(first);
	first = device_open(O_RDWR);
	EQUAL("quota: all closed, nothing is held", device_info(first).device_used, 0u);
	close(first);
}

static void test_order(void)
{
	enum { JOBS = 8 };
	int fd = device_open(O_RDWR);
	const struct fakegpu_page *page = page_map(fd);
	uint32_t handle = must_alloc(fd, PAGE);
	uint64_t completed, seen = 0, now;
	bool counted = true, steady = true;
	int64_t start = now_ns(), took;
	int n;

	for (n = 1; n <= JOBS; n++)
		counted = counted && must_submit(fd, handle) == (uint64_t)n;
	CHECK("order: jobs are numbered from 1", counted);
	EQUAL("order: the page shows what was submitted", page_submitted(page), (uint64_t)JOBS);
	while (seen < JOBS && now_ns() - start < 10000000000ll) {
		now = page_completed(page);
		steady = steady && now >= seen && now <= page_submitted(page);
		seen = now;
	}
	took = now_ns() - start;
	EQUAL("order: all complete", seen, (uint64_t)JOBS);
	CHECK("order: completions only rise, and not above submissions", steady);
	check_at(__LINE__, "order: jobs run one after the other", took >= JOBS * latency_ns,
		 "%d jobs of %lld ns took %lld ns", JOBS, (long long)latency_ns, (long long)took);
	GIVES("order: a wait for one that is long over", 0, job_wait(fd, 1, 0, &completed));
	EQUAL("order: tells of the last completed", completed, (uint64_t)JOBS);

	for (n = 1; n <= JOBS; n++)
		must_submit(fd, handle);
	for (n = JOBS + 1, steady = true, seen = 0; n <= 2 * JOBS; n++) {
		steady = steady && !job_wait(fd, n, FAKEGPU_WAIT_FOREVER, &completed) &&
			 completed >= (uint64_t)n && completed >= seen && completed <= 2 * JOBS;
		seen = completed;
	}
	CHECK("order: waits in turn see each job completed, none before its time", steady);
	EQUAL("order: the page agrees with WAIT", page_completed(page), completed);
	munmap((void *)page, PAGE);
	close(fd);
}

static void test_wait(void)
{
	int fd = device_open(O_RDWR);
	uint32_t handle = must_alloc(fd, PAGE);
	uint64_t completed, seqno;
	int64_t start, took;

	GIVES("wait: for job 0, which there never is", EINVAL, job_wait(fd, 0, 0, NULL));
	GIVES("wait: for a job that was not submitted", EINVAL, job_wait(fd, 1, FAKEGPU_WAIT_FOREVER, NULL));
	start = now_ns();
	seqno = must_submit(fd, handle);
	GIVES("wait: as long as it takes", 0, job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, &completed));
	took = now_ns() - start;
	EQUAL("wait: the job has completed", completed, seqno);
	check_at(__LINE__, "wait: not before its time", took >= latency_ns, "a job of %lld ns took %lld ns",
		 (long long)latency_ns, (long long)took);
	if (busy(fd, handle, &seqno, "wait: with a timeout")) {
		GIVES("wait: looking alone", ETIMEDOUT, job_wait(fd, seqno, 0, &completed));
		CHECK("wait: which tells what has completed all the same", completed < seqno);
		start = now_ns();
		GIVES("wait: with a timeout too short", ETIMEDOUT, job_wait(fd, seqno, 3000000, &completed));
		took = now_ns() - start;
		check_at(__LINE__, "wait: which lasts as long as it says", took >= 3000000, "%lld ns instead of 3000000", (long long)took);
		CHECK("wait: and tells what has completed", completed < seqno);
	}
	GIVES("wait: with a timeout long enough", 0, job_wait(fd, seqno, 60000000000ll, NULL));
	GIVES("wait: with the longest timeout", 0, job_wait(fd, must_submit(fd, handle), INT64_MAX, NULL));
	GIVES("wait: a negative timeout", EINVAL, job_wait(fd, 1, -2, NULL));
	GIVES("wait: the most negative timeout", EINVAL, job_wait(fd, 1, INT64_MIN, NULL));
	GIVES("wait: for the greatest number there is", EINVAL, job_wait(fd, UINT64_MAX, 0, NULL));
	close(fd);
}

static void test_job_memory(void)
{
	int fd = device_open(O_RDWR);
	uint32_t handle = must_alloc(fd, 2 * PAGE);
	uint64_t seqno = must_submit(fd, handle);
	bool under_way = busy(fd, handle, &seqno, "job: it keeps its memory");

	GIVES("job: its allocation can be freed", 0, mem_free(fd, handle));
	EQUAL("job: then the handle is gone", device_info(fd).context_handles, 0u);
	GIVES("job: for SUBMIT too", EINVAL, job_submit(fd, handle, NULL));
	if (under_way) {
		EQUAL("job: it keeps its memory", device_info(fd).context_used, 2 * PAGE);
		EQUAL("job: of the device too", device_info(fd).device_used, 2 * PAGE);
	}
	GIVES("job: it completes", 0, job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, NULL));
	EQUAL("job: and gives the memory back", device_info(fd).context_used, 0u);
	EQUAL("job: to the device too", device_info(fd).device_used, 0u);

	handle = must_alloc(fd, PAGE);
	must_submit(fd, handle);
	must_submit(fd, handle);
	close(fd);
	fd = device_open(O_RDWR);
	EQUAL("job: closing the context ends its jobs", device_info(fd).device_used, 0u);
	close(fd);
}

static void test_poll_and_limit(void)
{
	int fd = device_open(O_RDWR), tries, err = 0;
	uint32_t handle = must_alloc(fd, PAGE);
	uint64_t seqno, last = 0, completed;
	bool refused = false;

	EQUAL("poll: a new context takes jobs and has no completion", polled(fd, POLLIN | POLLOUT, 0), POLLOUT);
	seqno = must_submit(fd, handle);
	EQUAL("poll: wakes when a job completes", polled(fd, POLLIN, 60000), POLLIN);
	EQUAL("poll: and says so until a WAIT looks", polled(fd, POLLIN, 0), POLLIN);
	GIVES("poll: the job it tells of has completed", 0, job_wait(fd, seqno, 0, NULL));
	EQUAL("poll: then not any more", polled(fd, POLLIN, 0), 0);

	if (!busy(fd, handle, &last, "limit: of jobs under way")) {
		close(fd);
		return;
	}
	for (tries = 0; tries < 100 && !refused; tries++) {
		do {
			err = job_submit(fd, handle, &seqno);
			if (!err)
				last = seqno;
		} while (!err && last < 1 << 20);
		refused = !(polled(fd, POLLOUT, 0) & POLLOUT);	/* unless a job has completed in between */
	}
	EQUAL("limit: too many jobs under way", err, EAGAIN);
	CHECK("limit: poll says that SUBMIT would refuse", refused);
	EQUAL("limit: poll wakes when there is room", polled(fd, POLLOUT, 60000) & POLLOUT, POLLOUT);
	GIVES("limit: then SUBMIT takes one", 0, job_submit(fd, handle, &seqno));
	EQUAL("limit: what was refused got no number", seqno, last + 1);
	GIVES("limit: and the last completes", 0, job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, &completed));
	EQUAL("limit: after all others", completed, seqno);
	close(fd);
}

static void test_validation(void)
{
	int fd = device_open(O_RDWR);
	uint32_t handle = must_alloc(fd, PAGE);
	struct fakegpu_alloc alloc = { .size = 1, .flags = 1 };
	struct fakegpu_free gone = { .handle = handle, .reserved = 1 };
	struct fakegpu_submit submit = { .handle = handle, .flags = 1u << 31 };
	struct fakegpu_info before = device_info(fd), after;
	char byte = 0;

	GIVES("validation: ALLOC of nothing", EINVAL, mem_alloc(fd, 0, NULL));
	GIVES("validation: a flag of ALLOC", EINVAL, call(fd, FAKEGPU_IOCTL_ALLOC, &alloc));
	GIVES("validation: the reserved field of FREE", EINVAL, call(fd, FAKEGPU_IOCTL_FREE, &gone));
	GIVES("validation: a flag of SUBMIT", EINVAL, call(fd, FAKEGPU_IOCTL_SUBMIT, &submit));
	GIVES("validation: FREE of handle 0", EINVAL, mem_free(fd, 0));
	GIVES("validation: SUBMIT on handle 0", EINVAL, job_submit(fd, 0, NULL));
	GIVES("validation: FREE of a handle never given", EINVAL, mem_free(fd, handle + 1));
	GIVES("validation: SUBMIT on a handle never given", EINVAL, job_submit(fd, handle + 1, NULL));
	GIVES("validation: no argument", EFAULT, call(fd, FAKEGPU_IOCTL_INFO, NULL));
	GIVES("validation: an unknown command", ENOTTY, call(fd, _IO('G', 0x45), NULL));
	GIVES("validation: INFO of another size", ENOTTY, call(fd, _IOR('G', 0x40, struct fakegpu_alloc), &alloc));
	CHECK("validation: the device cannot be read", read(fd, &byte, 1) < 0 && errno == EINVAL);
	CHECK("validation: nor written", write(fd, &byte, 1) < 0 && errno == EINVAL);
	after = device_info(fd);
	CHECK("validation: what is refused changes nothing", !memcmp(&before, &after, sizeof(before)));
	GIVES("validation: and the handle still works", 0, job_wait(fd, must_submit(fd, handle), FAKEGPU_WAIT_FOREVER, NULL));
	close(fd);
}

static void test_page(void)
{
	int fd = device_open(O_RDWR);
	const struct fakegpu_page *page = page_map(fd);
	uint32_t handle = must_alloc(fd, PAGE);
	int64_t start;
	uint64_t seqno;

	EQUAL("page: version of the interface", page->abi_version, (uint32_t)FAKEGPU_ABI_VERSION);
	EQUAL("page: the reserved field is 0", page->reserved, 0u);
	EQUAL("page: a new context has completed nothing", page_completed(page), 0u);
	CHECK("page: cannot be mapped for writing",
	      mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	CHECK("page: there is no second one", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE) == MAP_FAILED && errno == EINVAL);
	seqno = must_submit(fd, handle);
	close(fd);
	for (start = now_ns(); page_completed(page) < seqno && now_ns() - start < 10000000000ll;)
		;
	EQUAL("page: a mapping keeps the context when its descriptor is closed", page_completed(page), seqno);
	munmap((void *)page, PAGE);
	fd = device_open(O_RDWR);
	EQUAL("page: unmapping ends it", device_info(fd).device_used, 0u);
	close(fd);
}

#ifdef __x86_64__
/* Makes an ioctl as a 32-bit program does, by its number there, 54. arg is below 4 GiB. */
static int call32(int fd, unsigned long cmd, const void *arg)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result)
			 : "a"(54l), "b"((long)fd), "c"(cmd), "d"(arg) : "memory", "r8", "r9", "r10", "r11");
	return -result;
}

static void test_compat(void)
{
	union {
		struct fakegpu_info info;
		struct fakegpu_alloc alloc;
		struct fakegpu_free free;
		struct fakegpu_submit submit;
		struct fakegpu_wait wait;
	} *arg = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	int fd = device_open(O_RDWR), status;
	uint32_t handle;
	pid_t child;

	if (arg == MAP_FAILED)
		die("mmap");
	child = fork();
	if (!child)
		_exit(call32(fd, FAKEGPU_IOCTL_INFO, arg));
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status)) {
		skip("compat", "this kernel runs no 32-bit programs");
		close(fd);
		return;
	}
	EQUAL("compat: INFO from a 32-bit program", status, 0);
	call32(fd, FAKEGPU_IOCTL_INFO, arg);
	EQUAL("compat: which is what a 64-bit program sees", arg->info.context_bytes, device_info(fd).context_bytes);
	arg->alloc = (struct fakegpu_alloc){ .size = PAGE };
	GIVES("compat: ALLOC", 0, call32(fd, FAKEGPU_IOCTL_ALLOC, arg));
	handle = arg->alloc.handle;
	arg->submit = (struct fakegpu_submit){ .handle = handle };
	GIVES("compat: SUBMIT", 0, call32(fd, FAKEGPU_IOCTL_SUBMIT, arg));
	EQUAL("compat: which gives the number", arg->submit.seqno, 1u);
	arg->wait = (struct fakegpu_wait){ .seqno = 1, .timeout_ns = FAKEGPU_WAIT_FOREVER };
	GIVES("compat: WAIT", 0, call32(fd, FAKEGPU_IOCTL_WAIT, arg));
	EQUAL("compat: which tells what has completed", arg->wait.completed_seq, 1u);
	arg->free = (struct fakegpu_free){ .handle = handle };
	GIVES("compat: FREE", 0, call32(fd, FAKEGPU_IOCTL_FREE, arg));
	GIVES("compat: an unknown command", ENOTTY, call32(fd, _IO('G', 0x45), arg));
	munmap(arg, PAGE);
	close(fd);
}
#endif

int main(void)
{
	int fd = device_open(O_RDWR);

	latency_ns = device_info(fd).job_latency_us * 1000ll;
	close(fd);
	test_info();
	test_alloc();
	test_isolation();
	test_context_quota();
	test_device_quota();
	test_order();
	test_wait();
	test_job_memory();
	test_poll_and_limit();
	test_validation();
	test_page();
#ifdef __x86_64__
	test_compat();
#endif
	return checks_done("client");
}
