// SPDX-License-Identifier: GPL-2.0-only
/* Measures how often a second a program can learn that a job has completed: by the ioctl WAIT, and by polling the
 * mapped page.
 *
 * completed: the job has completed long before, so this measures the question alone. The page exists for this case.
 * completing: the job is submitted and then waited for. The job takes the same time both ways; the difference is how
 * soon its end is seen.
 *
 * Rounds of both kinds alternate, and the median round counts. Lines that begin with BENCH are for programs to read. */
#include "check.h"

enum { ROUNDS = 15 };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

static void must(int err, const char *what)
{
	if (!err)
		return;
	errno = err;
	die(what);
}

static void wait_ioctl(int fd, const struct fakegpu_page *page, uint64_t seqno)
{
	(void)page;
	must(job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, NULL), "FAKEGPU_IOCTL_WAIT");
}

static void wait_page(int fd, const struct fakegpu_page *page, uint64_t seqno)
{
	(void)fd;
	while (page_completed(page) < seqno)
		;
}

typedef void wait_function(int fd, const struct fakegpu_page *page, uint64_t seqno);

/* Counts how often a second it can wait for a job that has completed. */
static double completed_round(wait_function *wait, int fd, const struct fakegpu_page *page, int waits)
{
	int64_t start = now_ns();

	for (int n = 0; n < waits; n++)
		wait(fd, page, 1);
	return waits * 1e9 / (now_ns() - start);
}

/* The same for jobs submitted one at a time. */
static double completing_round(wait_function *wait, int fd, const struct fakegpu_page *page, uint32_t handle, int waits)
{
	int64_t start = now_ns();
	uint64_t seqno;

	for (int n = 0; n < waits; n++) {
		must(job_submit(fd, handle, &seqno), "FAKEGPU_IOCTL_SUBMIT");
		wait(fd, page, seqno);
	}
	return waits * 1e9 / (now_ns() - start);
}

static void report(const char *what, unsigned int latency_us, double *with_ioctl, double *with_page)
{
	double a = median(with_ioctl), b = median(with_page);

	printf("BENCH wait=%s job_latency_us=%u ioctl_per_s=%.0f mmap_per_s=%.0f ratio=%.2f\n", what, latency_us, a, b, b / a);
	fflush(stdout);
}

int main(void)
{
	int fd = device_open(O_RDWR), n;
	const struct fakegpu_page *page = page_map(fd);
	unsigned int latency_us = device_info(fd).job_latency_us;
	double with_ioctl[ROUNDS], with_page[ROUNDS];
	uint32_t handle;

	must(mem_alloc(fd, PAGE, &handle), "FAKEGPU_IOCTL_ALLOC");
	must(job_submit(fd, handle, NULL), "FAKEGPU_IOCTL_SUBMIT");
	wait_ioctl(fd, page, 1);
	for (n = 0; n < ROUNDS; n++) {
		with_ioctl[n] = completed_round(wait_ioctl, fd, page, 2000);
		with_page[n] = completed_round(wait_page, fd, page, 200000);
	}
	report("completed", latency_us, with_ioctl, with_page);
	for (n = 0; n < ROUNDS; n++) {
		with_ioctl[n] = completing_round(wait_ioctl, fd, page, handle, 20);
		with_page[n] = completing_round(wait_page, fd, page, handle, 20);
	}
	report("completing", latency_us, with_ioctl, with_page);
	return 0;
}
