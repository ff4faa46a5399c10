// SPDX-License-Identifier: GPL-2.0-only
/* Misuses /dev/fakegpu in every way that we could think of; all must fail cleanly. "evil race" does only the part with many threads. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "races.h"

/* ---- Pointers ------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; unsigned long cmd; size_t size; bool in, out; } calls[] = {
	{ "INFO", FAKEGPU_IOCTL_INFO, sizeof(struct fakegpu_info), false, true },
	{ "ALLOC", FAKEGPU_IOCTL_ALLOC, sizeof(struct fakegpu_alloc), true, true },
	{ "FREE", FAKEGPU_IOCTL_FREE, sizeof(struct fakegpu_free), true, false },
	{ "SUBMIT", FAKEGPU_IOCTL_SUBMIT, sizeof(struct fakegpu_submit), true, true },
	{ "WAIT", FAKEGPU_IOCTL_WAIT, sizeof(struct fakegpu_wait), true, true },
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* An argument with which the call would succeed. */
static void valid_argument(int call, uint32_t handle, void *to)
{
	switch (call) {
	case 1:
		memcpy(to, &(struct fakegpu_alloc){ .size = PAGE }, sizeof(struct fakegpu_alloc));
		break;
	case 2:
		memcpy(to, &(struct fakegpu_free){ .handle = handle }, sizeof(struct fakegpu_free));
		break;
	case 3:
		memcpy(to, &(struct fakegpu_submit){ .handle = handle }, sizeof(struct fakegpu_submit));
		break;
	case 4:
		memcpy(to, &(struct fakegpu_wait){ .seqno = 1 }, sizeof(struct fakegpu_wait));
		break;
	}
}

static void test_pointers(void)
{
	static const uintptr_t wild[] = {
		0, 1, PAGE - 1,
		0x00007ffffffff000, 0x0000800000000000,	/* at the end of user space */
		0x8000000000000000, 0xdead000000000000,	/* no valid address */
		0xffff888000000000, 0xffffffff81000000, 0xffffffffff600000, 0xfffffffffffffff8,	/* the kernel's */
	};
	int fd = device_open(O_RDWR), i, got;
	char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct fakegpu_page *page = page_map(fd);
	struct fakegpu_info before, after;
	char name[128];
	uint32_t handle;

	if (pages == MAP_FAILED || mem_alloc(fd, PAGE, &handle) || job_submit(fd, handle, NULL) || job_wait(fd, 1, FAKEGPU_WAIT_FOREVER, NULL))
		die("setting up");
	munmap(pages + PAGE, PAGE);
	before = device_info(fd);
	for (i = 0; i < CALLS; i++) {
		size_t n;

		for (n = 0, got = EFAULT; n < sizeof(wild) / sizeof(wild[0]) && got == EFAULT; n++)
			got = call(fd, calls[i].cmd, (void *)wild[n]);
		snprintf(name, sizeof(name), "pointer: %s at addresses that are not ours", calls[i].name);
		check_at(__LINE__, name, got == EFAULT, "%#lx gives %d", (unsigned long)wild[n - 1], got);

		/* A pointer whose object crosses from the last mapped byte into the first unmapped
		 * one. */
		for (n = 1, got = EFAULT; n < calls[i].size && got == EFAULT; n++) {
			char whole[64];

			valid_argument(i, handle, whole);
			memcpy(pages + PAGE - n, whole, n);
			got = call(fd, calls[i].cmd, pages + PAGE - n);
		}
		snprintf(name, sizeof(name), "pointer: %s across the end of what is mapped", calls[i].name);
		check_at(__LINE__, name, got == EFAULT, "with %zu bytes there gives %d", n - 1, got);

		if (calls[i].out) {
			valid_argument(i, handle, pages);
			mprotect(pages, PAGE, PROT_READ);
			snprintf(name, sizeof(name), "pointer: %s with an argument that cannot be written", calls[i].name);
			GIVES(name, EFAULT, call(fd, calls[i].cmd, pages));
			mprotect(pages, PAGE, PROT_READ | PROT_WRITE);
		}
		if (calls[i].in) {
			mprotect(pages + 2 * PAGE, PAGE, PROT_NONE);
			snprintf(name, sizeof(name), "pointer: %s with an argument that cannot be read", calls[i].name);
			GIVES(name, EFAULT, call(fd, calls[i].cmd, pages + 2 * PAGE));
		}
	}
	GIVES("pointer: INFO into the device's own page", EFAULT, call(fd, FAKEGPU_IOCTL_INFO, page));
	EQUAL("pointer: the page is as it was", page->abi_version, (uint32_t)FAKEGPU_ABI_VERSION);
	EQUAL("pointer: no job was submitted", page_submitted(page), 1u);
	after = device_info(fd);
	CHECK("pointer: nothing was allocated or freed", !memcmp(&before, &after, sizeof(before)));
	munmap((void *)page, PAGE);
	munmap(pages, PAGE);
	munmap(pages + 2 * PAGE, PAGE);
	close(fd);
}

/* ---- Commands, handles, sizes --------------------------------------------------------------------------------------- */

static bool known(unsigned long cmd)
{
	for (int i = 0; i < CALLS; i++)
		if (calls[i].cmd == cmd)
			return true;
	return false;
}

static void test_commands(void)
{
	static const unsigned int sizes[] = { 0, 4, 8, 16, 24, 32, 80, 128, 4096, 0x3fff };
	int fd = device_open(O_RDWR), got = ENOTTY;
	static char argument[0x4000];
	unsigned long cmd = 0;
	unsigned int nr, dir, n;

	for (nr = 0; nr < 256 && got == ENOTTY; nr++)
		for (dir = 0; dir < 4 && got == ENOTTY; dir++)
			for (n = 0; n < sizeof(sizes) / sizeof(sizes[0]) && got == ENOTTY; n++) {
				cmd = _IOC(dir, 'G', nr, sizes[n]);
				if (!known(cmd))
					got = call(fd, cmd, argument);
			}
	check_at(__LINE__, "command: every other number, direction and size", got == ENOTTY, "%#lx gives %d", cmd, got);
	for (nr = 0; nr < 256 * CALLS && got == ENOTTY; nr++) {
		cmd = (calls[nr % CALLS].cmd & ~0xff00ul) | (nr / CALLS) << 8;
		if (!known(cmd))
			got = call(fd, cmd, argument);
	}
	check_at(__LINE__, "command: every other letter", got == ENOTTY, "%#lx gives %d", cmd, got);
	EQUAL("command: none of them did anything", device_info(fd).context_used, 0u);
	close(fd);
}

static void test_handles_and_sizes(void)
{
	int fd = device_open(O_RDWR), got = EINVAL;
	struct fakegpu_info i = device_info(fd);
	uint32_t handle, n, random = 1;
	uint64_t size;

	if (mem_alloc(fd, PAGE, &handle))
		die("FAKEGPU_IOCTL_ALLOC");
	for (n = 0; n < 20000 && got == EINVAL; n++) {
		uint32_t number = n < 4096 ? n - 2048 : (random = random * 1664525 + 1013904223);

		if (number == handle)
			continue;
		got = job_submit(fd, number, NULL);
		if (got == EINVAL)
			got = mem_free(fd, number);
	}
	EQUAL("handle: no other number is one", got, EINVAL);
	mem_free(fd, handle);
	for (n = 0, got = ENOSPC; n < 64 && got == ENOSPC; n++) {
		for (size = (1ull << n) - 1; size <= 1ull << n && got == ENOSPC; size++)
			if (size > i.context_bytes)
				got = mem_alloc(fd, size, NULL);
		size = UINT64_MAX - (n << 7);
		if (got == ENOSPC)
			got = mem_alloc(fd, size, NULL);
	}
	check_at(__LINE__, "size: all that is too large", got == ENOSPC, "%llu bytes give %d", (unsigned long long)size, got);
	EQUAL("size: and nothing is held", device_info(fd).context_used, 0u);
	close(fd);
}

/* ---- Descriptors ---------------------------------------------------------------------------------------------------- */

static void send_fd(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(socket, &m, 0) != 1)
		die("sendmsg");
}

static int receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(socket, &m, 0) != 1 || !CMSG_FIRSTHDR(&m))
		die("recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static void test_descriptors(void)
{
	int fd = device_open(O_RDWR), again, copy, pair[2];
	uint32_t handle, other;
	uint64_t seqno;

	mem_alloc(fd, PAGE, NULL);
	mem_alloc(fd, PAGE, &handle);
	close(fd);
	GIVES("descriptor: closed, it takes no call", EBADF, mem_free(fd, handle));
	again = device_open(O_RDWR);
	EQUAL("descriptor: the next open has its number", again, fd);
	GIVES("descriptor: but not its handles", EINVAL, mem_free(again, handle));
	EQUAL("descriptor: and its memory is free", device_info(again).device_used, 0u);

	copy = dup(again);
	GIVES("descriptor: a copy allocates", 0, mem_alloc(copy, PAGE, &handle));
	close(copy);
	GIVES("descriptor: in the same context", 0, mem_free(again, handle));
	copy = open(DEVICE, O_PATH);
	GIVES("descriptor: one opened as a path takes no call", EBADF, mem_alloc(copy, PAGE, NULL));
	close(copy);

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die("socketpair");
	mem_alloc(again, PAGE, &handle);
	send_fd(pair[0], again);
	close(again);
	copy = device_open(O_RDWR);
	EQUAL("descriptor: on its way through a socket it keeps its memory", device_info(copy).device_used, PAGE);
	again = receive_fd(pair[1]);
	GIVES("descriptor: and arrives with its handles", 0, job_submit(again, handle, &seqno));
	GIVES("descriptor: and jobs", 0, job_wait(again, seqno, FAKEGPU_WAIT_FOREVER, NULL));
	GIVES("descriptor: which are still private", EINVAL, mem_free(copy, handle));
	send_fd(pair[0], again);
	close(again);
	close(pair[0]);
	close(pair[1]);
	EQUAL("descriptor: lost in a socket it gives its memory back", device_info(copy).device_used, 0u);

	/* Another process, over a socket. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die("socketpair");
	pid_t child = fork();
	int status;

	if (!child) {
		close(copy);
		fd = receive_fd(pair[1]);
		_exit(mem_alloc(fd, PAGE, &other) ? 1 : 0);
	}
	send_fd(pair[0], copy);
	waitpid(child, &status, 0);
	EQUAL("descriptor: sent to another process it works there", status, 0);
	EQUAL("descriptor: and what was allocated there is here", device_info(copy).context_used, PAGE);
	close(pair[0]);
	close(pair[1]);
	close(copy);
}

static void test_fork(void)
{
	int fd = device_open(O_RDWR), status, pipes[2];
	const struct fakegpu_page *page = page_map(fd);
	uint32_t handle;
	uint64_t seqno = 0;
	pid_t child;

	if (pipe(pipes) || mem_alloc(fd, PAGE, &handle))
		die("setting up");
	child = fork();
	if (!child) {
		uint32_t mine;
		bool ok = !mem_alloc(fd, PAGE, &mine) && !mem_free(fd, handle) && !job_submit(fd, mine, &seqno) &&
			  !job_submit(fd, mine, &seqno) && page_submitted(page) == 2;

		if (write(pipes[1], &seqno, sizeof(seqno)) != sizeof(seqno))
			_exit(2);
		_exit(ok ? 0 : 1);	/* while its jobs run */
	}
	waitpid(child, &status, 0);
	if (read(pipes[0], &seqno, sizeof(seqno)) != sizeof(seqno))
		die("read");
	EQUAL("fork: a child works with its parent's context", status, 0);
	GIVES("fork: what it freed is freed", EINVAL, mem_free(fd, handle));
	EQUAL("fork: what it allocated is there", device_info(fd).context_handles, 1u);
	GIVES("fork: its jobs complete after its end", 0, job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, NULL));
	EQUAL("fork: and the parent's page shows it", page_completed(page), 2u);

	child = fork();
	if (!child) {
		close(fd);
		_exit(page_completed(page) == 2 ? 0 : 1);
	}
	waitpid(child, &status, 0);
	EQUAL("fork: a child reads the page it inherited", status, 0);

	/* A child that dies with a context of its own, with jobs and a mapping. */
	child = fork();
	if (!child) {
		int own = device_open(O_RDWR);

		page_map(own);
		mem_alloc(own, PAGE, &handle);
		while (!job_submit(own, handle, &seqno) && seqno < 100)
			;
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	CHECK("fork: a child is killed while its jobs run", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	EQUAL("fork: its memory came back", device_info(fd).device_used, device_info(fd).context_used);
	munmap((void *)page, PAGE);
	close(fd);
}

static void on_signal(int signal)
{
	(void)signal;
}

/* WAITs, with a signal after 20 ms. */
static int wait_with_signal(int fd, uint64_t seqno, int64_t timeout_ns, int flags, uint64_t *completed)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	struct timespec pause = { .tv_nsec = 20000000 };
	pid_t parent = getpid(), child;
	int got;

	sigaction(SIGUSR1, &action, NULL);
	child = fork();
	if (!child) {
		nanosleep(&pause, NULL);
		kill(parent, SIGUSR1);
		_exit(0);
	}
	got = job_wait(fd, seqno, timeout_ns, completed);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	return got;
}

static void test_signals(void)
{
	int fd = device_open(O_RDWR), status;
	uint64_t last = 0, completed;
	uint32_t handle;
	pid_t child;

	if (mem_alloc(fd, PAGE, &handle))
		die("FAKEGPU_IOCTL_ALLOC");
	if (!submit_long(fd, handle, 300000000, &last)) {
		skip("signal: during a WAIT", "jobs are too few or too quick: load with job_latency_us and max_jobs whose product is 150000 or more");
		close(fd);
		return;
	}
	GIVES("signal: ends a WAIT", EINTR, wait_with_signal(fd, last, FAKEGPU_WAIT_FOREVER, 0, &completed));
	CHECK("signal: which tells what has completed all the same", completed < last);
	submit_long(fd, handle, 300000000, &last);
	GIVES("signal: ends a WAIT with a timeout", EINTR, wait_with_signal(fd, last, 60000000000ll, SA_RESTART, &completed));
	CHECK("signal: which tells it too", completed < last);
	submit_long(fd, handle, 300000000, &last);
	GIVES("signal: a WAIT without end goes on where the handler says so", 0,
	      wait_with_signal(fd, last, FAKEGPU_WAIT_FOREVER, SA_RESTART, &completed));
	CHECK("signal: until the job has completed", completed >= last);

	submit_long(fd, handle, 300000000, &last);
	child = fork();
	if (!child) {
		job_wait(fd, last, FAKEGPU_WAIT_FOREVER, NULL);
		_exit(0);
	}
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	CHECK("signal: a WAIT can be killed", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(fd);
}

/* ---- Mappings ------------------------------------------------------------------------------------------------------- */

static int mapping(int fd, size_t length, int prot, int flags, off_t offset)
{
	void *p = mmap(NULL, length, prot, flags, fd, offset);

	if (p == MAP_FAILED)
		return errno;
	munmap(p, length);
	return 0;
}

static void test_mmap(void)
{
	int fd = device_open(O_RDWR), reader = device_open(O_RDONLY), writer = device_open(O_WRONLY), memory, status;
	struct fakegpu_page *page = (void *)page_map(fd), *moved;
	const struct fakegpu_page *lent;
	struct iovec local = { &(uint64_t){ 7 }, 8 }, remote = { &page->completed_seq, 8 };
	uint32_t handle;
	uint64_t seqno;
	int64_t start;
	pid_t child;

	GIVES("mmap: for writing", EPERM, mapping(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
	GIVES("mmap: for writing alone", EPERM, mapping(fd, PAGE, PROT_WRITE, MAP_SHARED, 0));
	GIVES("mmap: a private copy to write", EPERM, mapping(fd, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0));
	GIVES("mmap: a private copy", EINVAL, mapping(fd, PAGE, PROT_READ, MAP_PRIVATE, 0));
	GIVES("mmap: to execute", EINVAL, mapping(fd, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, 0));
	GIVES("mmap: without any right", EINVAL, mapping(fd, PAGE, PROT_NONE, MAP_SHARED, 0));
	GIVES("mmap: two pages", EINVAL, mapping(fd, 2 * PAGE, PROT_READ, MAP_SHARED, 0));
	GIVES("mmap: a gigabyte", EINVAL, mapping(fd, 1 << 30, PROT_READ, MAP_SHARED, 0));
	GIVES("mmap: the second page", EINVAL, mapping(fd, PAGE, PROT_READ, MAP_SHARED, PAGE));
	GIVES("mmap: the last page of all", EOVERFLOW, mapping(fd, PAGE, PROT_READ, MAP_SHARED, -PAGE));
	GIVES("mmap: a page far away", EINVAL, mapping(fd, PAGE, PROT_READ, MAP_SHARED, 1ll << 40));
	GIVES("mmap: half a page is the whole", 0, mapping(fd, PAGE / 2, PROT_READ, MAP_SHARED, 0));
	GIVES("mmap: of a descriptor for writing", EACCES, mapping(writer, PAGE, PROT_READ, MAP_SHARED, 0));

	CHECK("mmap: mprotect to write", mprotect(page, PAGE, PROT_READ | PROT_WRITE) && errno == EACCES);
	CHECK("mmap: mprotect to execute", mprotect(page, PAGE, PROT_READ | PROT_EXEC) && errno == EACCES);
	CHECK("mmap: mremap to two pages", mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	moved = mremap(page, 0, 2 * PAGE, MREMAP_MAYMOVE);
	CHECK("mmap: mremap to two pages, keeping the old", moved == MAP_FAILED);
	moved = (void *)page_map(fd);
	CHECK("mmap: another page in its place", remap_file_pages(moved, PAGE, 0, 1, 0));
	munmap(moved, PAGE);	/* the kernel has perhaps done so already */
	CHECK("mmap: madvise throws it away", !madvise(page, PAGE, MADV_DONTNEED));
	EQUAL("mmap: but it is still there", page->abi_version, (uint32_t)FAKEGPU_ABI_VERSION);
	moved = mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (CHECK("mmap: mremap to another place", moved != MAP_FAILED))
		page = moved;
	remote.iov_base = &page->completed_seq;
	EQUAL("mmap: where it is the same", page->abi_version, (uint32_t)FAKEGPU_ABI_VERSION);

	/* The kernel takes VM_SHARED from the mapping of a descriptor that is open for reading
	 * alone. */
	lent = page_map(reader);
	EQUAL("mmap: of a descriptor for reading", lent->abi_version, (uint32_t)FAKEGPU_ABI_VERSION);
	CHECK("mmap: which mprotect cannot have written either", mprotect((void *)lent, PAGE, PROT_READ | PROT_WRITE) && errno == EACCES);
	memory = open("/proc/self/mem", O_RDWR);
	CHECK("mmap: no writing through /proc/self/mem", memory >= 0 && pwrite(memory, &(uint64_t){ 7 }, 8, (off_t)&page->completed_seq) < 0);
	CHECK("mmap: in that one too", memory >= 0 && pwrite(memory, &(uint64_t){ 7 }, 8, (off_t)&lent->completed_seq) < 0);
	close(memory);
	EQUAL("mmap: which is as it was", page_completed(lent), 0u);
	munmap((void *)lent, PAGE);
	CHECK("mmap: nor through process_vm_writev", process_vm_writev(getpid(), &local, 1, &remote, 1, 0) < 0 && errno == EFAULT);
	CHECK("mmap: nor by read", pread(open("/dev/zero", O_RDONLY), &page->completed_seq, 8, 0) < 0 && errno == EFAULT);
	child = fork();
	if (!child) {
		*(volatile char *)page = 7;
		_exit(0);
	}
	waitpid(child, &status, 0);
	CHECK("mmap: a store is a fault", WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	EQUAL("mmap: after all that the page is as it was", page_completed(page), 0u);

	mem_alloc(fd, PAGE, &handle);
	if (job_submit(fd, handle, &seqno))
		die("FAKEGPU_IOCTL_SUBMIT");
	close(fd);
	for (start = now_ns(); page_completed(page) < seqno && now_ns() - start < 10000000000ll;)
		;
	EQUAL("mmap: goes on after the descriptor is closed", page_completed(page), seqno);
	EQUAL("mmap: and keeps the context", device_info(reader).device_used, PAGE);
	munmap(page, PAGE);
	EQUAL("mmap: until it is unmapped", device_info(reader).device_used, 0u);
	close(reader);
	close(writer);
}

int main(int argc, char **argv)
{
	close(device_open(O_RDWR));
	if (argc < 2 || strcmp(argv[1], "race")) {
		test_pointers();
		test_commands();
		test_handles_and_sizes();
		test_descriptors();
		test_fork();
		test_signals();
		test_mmap();
	}
	test_races();
	return checks_done("evil");
}
