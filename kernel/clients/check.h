/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the test programs: a line PASS or FAIL for each check, a count at the end, and the calls of /dev/fakegpu
 * as functions. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../uapi/fakegpu.h"

#define DEVICE "/dev/fakegpu"
#define PAGE 4096ull		/* the device counts in pages */

static int checks_passed, checks_failed, checks_skipped;

/* Prints PASS and the name, or FAIL, the name, the place and the actual value. Returns ok. */
__attribute__((format(printf, 4, 5)))
static inline bool check_at(int line, const char *name, bool ok, const char *format, ...)
{
	va_list args;

	if (ok) {
		checks_passed++;
		printf("PASS: %s\n", name);
	} else {
		checks_failed++;
		printf("FAIL: %s: line %d: ", name, line);
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
		putchar('\n');
	}
	fflush(stdout);
	return ok;
}

#define CHECK(name, ok) check_at(__LINE__, name, ok, "not so: %s", #ok)
#define EQUAL(name, got, want) \
	do { \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		check_at(__LINE__, name, got_ == want_, "%s is %lld, want %lld", #got, got_, want_); \
	} while (0)
/* Requires that a call returns 0 or a certain errno. */
#define GIVES(name, want, call) \
	do { \
		int got_ = (call), want_ = (want); \
		check_at(__LINE__, name, got_ == want_, "%s gives %d (%s), want %d (%s)", #call, got_, strerror(got_), want_, strerror(want_)); \
	} while (0)

static inline void skip(const char *name, const char *why)
{
	checks_skipped++;
	printf("SKIP: %s: %s\n", name, why);
	fflush(stdout);
}

/* Prints the last line, and returns what main must return. */
static inline int checks_done(const char *program)
{
	printf("%s: %d passed, %d failed, %d skipped\n", program, checks_passed, checks_failed, checks_skipped);
	return checks_failed ? 1 : 0;
}

static inline _Noreturn void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static inline int device_open(int flags)
{
	int fd = open(DEVICE, flags | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == ENXIO)
		fprintf(stderr, "there is no " DEVICE ": load the module: make -C kernel load MODULE=fakegpu\n");
	else if (errno == EACCES || errno == EPERM)
		fprintf(stderr, DEVICE ": %s: run as root, or give yourself the right to open it\n", strerror(errno));
	else
		fprintf(stderr, DEVICE ": %s\n", strerror(errno));
	exit(2);
}

static inline int call(int fd, unsigned long cmd, const void *arg)
{
	return ioctl(fd, cmd, arg) ? errno : 0;
}

static inline struct fakegpu_info device_info(int fd)
{
	struct fakegpu_info info;

	memset(&info, 0xff, sizeof(info));
	if (call(fd, FAKEGPU_IOCTL_INFO, &info))
		die("FAKEGPU_IOCTL_INFO");
	return info;
}

static inline int mem_alloc(int fd, uint64_t size, uint32_t *handle)
{
	struct fakegpu_alloc arg = { .size = size };
	int err = call(fd, FAKEGPU_IOCTL_ALLOC, &arg);

	if (handle)
		*handle = err ? 0 : arg.handle;
	return err;
}

static inline int mem_free(int fd, uint32_t handle)
{
	struct fakegpu_free arg = { .handle = handle };

	return call(fd, FAKEGPU_IOCTL_FREE, &arg);
}

static inline int job_submit(int fd, uint32_t handle, uint64_t *seqno)
{
	struct fakegpu_submit arg = { .handle = handle };
	int err = call(fd, FAKEGPU_IOCTL_SUBMIT, &arg);

	if (seqno)
		*seqno = err ? 0 : arg.seqno;
	return err;
}

static inline int job_wait(int fd, uint64_t seqno, int64_t timeout_ns, uint64_t *completed)
{
	struct fakegpu_wait arg = { .seqno = seqno, .timeout_ns = timeout_ns, .completed_seq = UINT64_MAX };
	int err = call(fd, FAKEGPU_IOCTL_WAIT, &arg);

	if (completed)
		*completed = arg.completed_seq;
	return err;
}

/* Submits jobs until the running ones take that long or no more fit. Returns whether they take at least a third of
 * that time. */
static inline bool submit_long(int fd, uint32_t handle, int64_t ns, uint64_t *last)
{
	int64_t latency = device_info(fd).job_latency_us * 1000ll, n;
	uint64_t seqno, completed;

	for (n = 0; n * latency < ns && n < 1 << 16 && !job_submit(fd, handle, &seqno); n++)
		*last = seqno;
	job_wait(fd, *last, 0, &completed);
	return (int64_t)(*last - completed) * latency >= ns / 3;
}

static inline const struct fakegpu_page *page_map(int fd)
{
	void *p = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		die("mmap of " DEVICE);
	return p;
}

static inline uint64_t page_completed(const struct fakegpu_page *page)
{
	return __atomic_load_n(&page->completed_seq, __ATOMIC_ACQUIRE);
}

static inline uint64_t page_submitted(const struct fakegpu_page *page)
{
	return __atomic_load_n(&page->submitted_seq, __ATOMIC_ACQUIRE);
}

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

#endif
