// SPDX-License-Identifier: GPL-2.0-only
/* fuzz SECONDS [SEED]: makes random calls on the devices of fakegpu.ko, and on NVIDIA's if they exist, from
 * processes whose threads share descriptors and that are killed at any moment. The kernel must not report anything
 * and must get everything back; whoever starts fuzz checks that. fuzz counts the calls that succeed, since a run in
 * which all calls fail would show little. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "fuzz.h"
#include "fuzz_nvidia.h"

/* ---- /dev/fakegpu ------------------------------------------------------------------------------------------------- */

static void call_fakegpu(struct source *s, int fd)
{
	struct fakegpu_alloc alloc = { .size = below(s, 2) ? PAGE * below(s, 64) : number(s), .flags = !below(s, 30) };
	struct fakegpu_info info = {};
	struct fakegpu_free free = { .handle = below(s, 20) };
	struct fakegpu_submit submit = { .handle = below(s, 20) };
	struct fakegpu_wait wait = { .seqno = below(s, 20), .timeout_ns = below(s, 4) ? below(s, 3000000) : number(s) };

	switch (below(s, 8)) {
	case 0:
		done(ioctl(fd, FAKEGPU_IOCTL_INFO, put(s, &info, sizeof(info))), NULL);
		break;
	case 1:
	case 2:
		done(ioctl(fd, FAKEGPU_IOCTL_ALLOC, put(s, &alloc, sizeof(alloc))), NULL);
		break;
	case 3:
		done(ioctl(fd, FAKEGPU_IOCTL_FREE, put(s, &free, sizeof(free))), NULL);
		break;
	case 4:
		/* Never waits without a time limit: that could block the thread for the rest of the
		 * run. */
		if (wait.timeout_ns < 0 || wait.timeout_ns > 10000000)
			wait.timeout_ns = 0;
		done(ioctl(fd, FAKEGPU_IOCTL_WAIT, put(s, &wait, sizeof(wait))), &counts->waited);
		break;
	default:
		done(ioctl(fd, FAKEGPU_IOCTL_SUBMIT, put(s, &submit, sizeof(submit))), NULL);
	}
}

/* ---- Other operations on descriptors
 * ---------------------------------------------------------------------------------- */

/* Sends a descriptor over a socket and drops it, or receives it again. */
static void pass(struct source *s, int fd)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {};
	struct iovec byte = { .iov_base = "", .iov_len = 1 };
	struct msghdr m = { .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
		return;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(pair[0], &m, 0) == 1 && below(s, 2) && recvmsg(pair[1], &m, 0) == 1 && m.msg_controllen && CMSG_FIRSTHDR(&m)) {
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
		close(fd);
	}
	close(pair[0]);
	close(pair[1]);
}

static void open_at(struct source *s, int slot)
{
	static const int flags[] = { O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY, O_PATH, O_RDWR | O_NONBLOCK };
	unsigned int device = below(s, sizeof(devices) / sizeof(devices[0]));
	int fd = open(devices[device], PICK(s, flags) | O_CLOEXEC);

	if (fd >= 0 && !strcmp(devices[device], "/dev/nvidiactl") && below(s, 3))
		settle(fd, CLIENTS + s->process * SLOTS + slot);

	if (fd < 0)
		return;
	opened[slot] = device;
	dup3(fd, slots[slot], O_CLOEXEC);
	close(fd);
}

static void other(struct source *s, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };
	char byte;
	void *page;

	switch (below(s, 10)) {
	case 0:
	case 1:
		open_at(s, below(s, SLOTS - INHERITED));
		break;
	case 2:
		close(slots[below(s, SLOTS - INHERITED)]);
		break;
	case 3:
		dup3(fd, slots[below(s, SLOTS - INHERITED)], 0);
		break;
	case 4:
		page = mmap(NULL, below(s, 2) ? PAGE : 1 + number(s) % (1 << 20), PROT_READ | (below(s, 4) ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
		if (page != MAP_FAILED && below(s, 4))
			munmap(page, PAGE);
		break;
	case 5:
		poll(&p, 1, below(s, 3));
		break;
	case 6:
		if (read(fd, &byte, 1) == 1 || pwrite(fd, &byte, 1, number(s)) == 1 || lseek(fd, number(s), SEEK_SET) == 1)
			done(0, NULL);
		break;
	case 7:
		pass(s, fd);
		break;
	case 8:
		done(ioctl(fd, any(s), put(s, &s->state, sizeof(s->state))), NULL);
		break;
	case 9:
		if (below(s, 10))
			break;
		if (!fork())
			_exit(0);
		waitpid(-1, NULL, WNOHANG);
	}
}

static void *act(void *arg)
{
	static void (*const calls[])(struct source *s, int fd) = {
		call_fakegpu, call_fakegpu, call_uvm, call_nvidia, call_nvidia, call_nvidia, call_nvidia, call_nvidia,
	};
	struct source *s = arg;

	for (;;) {
		int fd;

		s->slot = below(s, SLOTS);
		fd = slots[s->slot];

		changing[below(s, BUFFER)] = any(s);
		if (!below(s, 30))
			other(s, fd);
		else if (below(s, 20))
			calls[opened[s->slot]](s, fd);
		else
			PICK(s, calls)(s, fd);
	}
	return NULL;
}

static char *memory(size_t bytes, int rights)
{
	char *p = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* A process with several threads that runs until it is killed. */
static _Noreturn void live(unsigned int process, uint64_t seed)
{
	static struct source sources[THREADS];
	pthread_t thread;
	int n;

	changing = memory(BUFFER, PROT_READ | PROT_WRITE);
	read_only = memory(BUFFER, PROT_READ);
	last_page = memory(2 * PAGE, PROT_READ | PROT_WRITE);
	mprotect(last_page + PAGE, PAGE, PROT_NONE);
	for (n = 0; n < THREADS; n++)
		sources[n] = (struct source){ (seed * THREADS + n + 1) * 0x9e3779b97f4a7c15ull, memory(BUFFER, PROT_READ | PROT_WRITE), 0, process, 0 };
	for (n = 0; n < SLOTS - INHERITED; n++)
		open_at(&sources[0], n);
	for (n = 1; n < THREADS; n++)
		if (pthread_create(&thread, NULL, act, &sources[n]))
			die("pthread_create");
	act(&sources[0]);
	exit(0);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)now_ns();
	int64_t end = now_ns() + (argc > 1 ? atoi(argv[1]) : 5) * 1000000000ll;
	struct source s = { (seed + 1) * 0x9e3779b97f4a7c15ull, NULL, 0, 0, 0 };
	pid_t children[PROCESSES] = {};
	unsigned int lives = 0;
	int n;

	close(device_open(O_RDWR));
	printf("fuzz: seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	counts = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (counts == MAP_FAILED)
		die("mmap");
	for (n = 0; n < SLOTS; n++) {
		slots[n] = 100 + n;
		if (n >= SLOTS - INHERITED)
			open_at(&s, n);
	}
	while (now_ns() < end) {
		n = below(&s, PROCESSES);
		if (children[n]) {
			kill(children[n], SIGKILL);
			waitpid(children[n], NULL, 0);
		}
		children[n] = fork();
		if (!children[n])
			live(n, seed + ++lives);
		lives++;
		nanosleep(&(struct timespec){ .tv_nsec = below(&s, 300) * 1000000 }, NULL);
	}
	for (n = 0; n < PROCESSES; n++)
		if (children[n] > 0) {
			kill(children[n], SIGKILL);
			waitpid(children[n], NULL, 0);
		}
	printf("fuzz: %u processes made %llu calls, of which %llu succeeded; %llu objects made, %llu mappings, %llu waits\n", lives,
	       (unsigned long long)counts->calls, (unsigned long long)counts->succeeded, (unsigned long long)counts->made,
	       (unsigned long long)counts->mapped, (unsigned long long)counts->waited);
	return 0;
}
