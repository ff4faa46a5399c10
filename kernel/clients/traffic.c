// SPDX-License-Identifier: GPL-2.0-only
/* Uses /dev/fakegpu for a number of seconds, while the module may be loaded and removed. It prints how often the
 * device existed. */
#include "check.h"

/* Uses an open device in one of several ways, and leaves the cleaning up to close(), munmap() or exit(). */
static void use(int fd, int n)
{
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	uint32_t handle;
	uint64_t seqno = 0;
	int i;

	if (page == MAP_FAILED || mem_alloc(fd, PAGE, &handle))
		die("a context that is open does not work");
	for (i = 0; i < n % 5; i++)
		job_submit(fd, handle, &seqno);
	if (n % 2)
		mem_free(fd, handle);
	if (n % 3 == 0 && seqno && job_wait(fd, seqno, FAKEGPU_WAIT_FOREVER, NULL))
		die("a job does not complete");
	if (n % 4)
		close(fd);
	munmap(page, PAGE);
	if (n % 4 == 0)
		close(fd);
}

int main(int argc, char **argv)
{
	int64_t end = now_ns() + (argc > 1 ? atoi(argv[1]) : 1) * 1000000000ll;
	unsigned int used = 0, absent = 0;
	int fd, n;

	for (n = getpid(); now_ns() < end; n++) {
		fd = open(DEVICE, O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			use(fd, n);
			used++;
		} else if (errno == ENOENT || errno == ENXIO || errno == ENODEV) {
			absent++;
		} else {
			die(DEVICE);
		}
		nanosleep(&(struct timespec){ .tv_nsec = n % 7 * 1000000 }, NULL);
	}
	printf("traffic: used %u, absent %u\n", used, absent);
	return 0;
}
