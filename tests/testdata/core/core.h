// Shared by the programs in this folder: checks that print their line, and the GPUs that the programs expect.
#ifndef CORE_H
#define CORE_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvml.h"

// fail prints where a program failed and ends it. It does not use stdio, whose buffer a fork may have copied.
static inline void fail(const char *file, int line, const char *format, ...)
{
	char text[512];
	int n = snprintf(text, sizeof text, "%s:%d: process %d: ", file, line, getpid());
	va_list args;
	va_start(args, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, args);
	va_end(args);
	n = n < (int)sizeof text - 1 ? n : (int)sizeof text - 2;
	text[n] = '\n';
	if (write(STDOUT_FILENO, text, (size_t)n + 1) < 0)
		_exit(3);
	_exit(1);
}

#define check(condition) ((condition) ? (void)0 : fail(__FILE__, __LINE__, "%s is false, errno %d", #condition, errno))

#define answers(want, call) \
	do { \
		int answer_ = (int)(call); \
		if (answer_ != (int)(want)) \
			fail(__FILE__, __LINE__, "%s = %d, want %s", #call, answer_, #want); \
	} while (0)

#define ok(call) answers(NVML_SUCCESS, call)

// go-nvml's header wraps a handle in a struct and NVIDIA's own does not. These functions work with both.
static inline nvmlDevice_t at(const void *address)
{
	nvmlDevice_t dev;
	memcpy(&dev, &address, sizeof dev);
	return dev;
}

static inline char *address(nvmlDevice_t dev)
{
	char *p;
	memcpy(&p, &dev, sizeof p);
	return p;
}

// What NVML answered for each GPU when learn was called.
static struct {
	nvmlDevice_t dev;
	char uuid[96], name[96];
} gpu[64];
static unsigned int gpus;

static inline void learn(void)
{
	ok(nvmlDeviceGetCount_v2(&gpus));
	check(gpus > 0 && gpus <= sizeof gpu / sizeof gpu[0]);
	for (unsigned int i = 0; i < gpus; i++) {
		ok(nvmlDeviceGetHandleByIndex_v2(i, &gpu[i].dev));
		ok(nvmlDeviceGetUUID(gpu[i].dev, gpu[i].uuid, sizeof gpu[i].uuid));
		ok(nvmlDeviceGetName(gpu[i].dev, gpu[i].name, sizeof gpu[i].name));
	}
}

// Makes n calls and compares every answer with what learn stored. Looking up a GPU by its UUID makes a string, and
// reading field values makes a list, so that the core has garbage to collect.
static inline void calls(long n)
{
	for (long i = 0; i < n; i++) {
		unsigned int which = (unsigned int)(i / 4) % gpus, index;
		char text[96];
		nvmlDevice_t dev;
		nvmlFieldValue_t field[4] = { 0 };
		switch (i % 4) {
		case 0:
			ok(nvmlDeviceGetHandleByUUID(gpu[which].uuid, &dev));
			check(address(dev) == address(gpu[which].dev));
			break;
		case 1:
			ok(nvmlDeviceGetName(gpu[which].dev, text, sizeof text));
			check(strcmp(text, gpu[which].name) == 0);
			break;
		case 2:
			ok(nvmlDeviceGetIndex(gpu[which].dev, &index));
			check(index == which);
			break;
		case 3:
			for (int f = 0; f < 4; f++)
				field[f].fieldId = NVML_FI_MAX; // an invalid field: each field has a result of its own
			ok(nvmlDeviceGetFieldValues(gpu[which].dev, 4, field));
			check(field[3].nvmlReturn != NVML_SUCCESS);
			break;
		}
	}
}

// finish waits for a child and fails if the child failed.
static inline void finish(pid_t child)
{
	int status;
	check(child > 0);
	check(waitpid(child, &status, 0) == child);
	if (status != 0)
		fail(__FILE__, __LINE__, "child %d ended with status %#x", child, status);
}

// GODEBUG=gctrace=1 makes the core print a line for each collection. listen_to_collections redirects standard error to
// a file, and collections counts these lines and accepts no others.
static int caught = -1;

static inline void listen_to_collections(void)
{
	caught = memfd_create("stderr", MFD_CLOEXEC);
	check(caught >= 0 && fcntl(caught, F_SETFL, O_APPEND) == 0 && dup2(caught, STDERR_FILENO) == STDERR_FILENO);
}

// A collection may be printing its line in pieces. So the file is read by offset, and an unfinished line does not count
// yet.
static inline long collections(void)
{
	long n = 0;
	off_t size = lseek(caught, 0, SEEK_END);
	char *text = malloc((size_t)size + 1);
	check(text != NULL && pread(caught, text, (size_t)size, 0) == size);
	text[size] = '\0';
	for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		if (strncmp(line, "gc ", 3) != 0)
			fail(__FILE__, __LINE__, "on stderr: %s", line);
		n++;
	}
	free(text);
	return n;
}

// The resources that a process uses.
struct holdings {
	long descriptors, mappings, resident; // resident in KiB
};

static inline long lines_of(const char *path)
{
	long n = 0;
	FILE *f = fopen(path, "r");
	check(f != NULL);
	for (int c; (c = getc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

static inline struct holdings holdings(void)
{
	struct holdings h = { 0 };
	for (int fd = 0; fd < 4096; fd++)
		h.descriptors += dup2(fd, fd) == fd;
	h.mappings = lines_of("/proc/self/maps");
	FILE *f = fopen("/proc/self/statm", "r");
	check(f != NULL && fscanf(f, "%*d %ld", &h.resident) == 1);
	fclose(f);
	h.resident *= sysconf(_SC_PAGESIZE) / 1024;
	return h;
}

#endif
