/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls of the resource manager, made as NVIDIA's libraries make them, for the example programs. All of these take
 * the options
 *
 *   -d N   the Nth GPU, from 0
 *   -x     wrap every call in NV_ESC_IOCTL_XFER_CMD
 *   -c     make every call as a 32-bit program does
 *   -u     put all arguments on pages that were never touched before the call
 *
 * and print a line for each call with its answer. The exit status is 0 if all went well, 3 if the driver refused
 * something, 1 if a system call failed, and 2 for wrong use. */
#ifndef EXAMPLES_RM_H
#define EXAMPLES_RM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../uapi/nvrm.h"

struct rm {
	int ctl, gpu;
	bool xfer, compat, untouched;
	unsigned int instance;
	__u32 client, device, subdevice;
	bool refused;
};

__attribute__((noreturn)) static inline void rm_die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Puts arguments of a call on pages of their own: below 4 GiB for 32-bit calls, and untouched with -u. */
static inline void *rm_place(const struct rm *rm, const void *data, size_t size)
{
	int flags = rm->compat ? MAP_32BIT : 0, fd = memfd_create("rm", 0);
	void *page;

	if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		rm_die("cannot write the arguments to a memfd");
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
	if (page == MAP_FAILED)
		rm_die("cannot map the arguments");
	close(fd);
	if (!rm->untouched)
		*(volatile char *)page = *(volatile char *)page;
	return page;
}

static inline void rm_take(void *page, void *data, size_t size)
{
	if (data)
		memcpy(data, page, size);
	munmap(page, size);
}

static inline int rm_syscall(const struct rm *rm, int fd, unsigned int cmd, void *arg)
{
#ifdef __x86_64__
	if (rm->compat) {
		long ret = 54;	/* ioctl's number for 32-bit programs */

		__asm__ volatile("int $0x80" : "+a"(ret) : "b"((long)fd), "c"((long)cmd), "d"(arg) : "memory", "r8", "r9", "r10", "r11");
		if (ret >= 0)
			return ret;
		errno = -ret;
		return -1;
	}
#endif
	return ioctl(fd, cmd, arg);
}

/* Calls the driver with number nr and a structure, which the driver may change. */
static inline int rm_call(const struct rm *rm, int fd, unsigned int nr, void *arg, unsigned int size)
{
	void *page = rm_place(rm, arg, size);
	int ret, err;

	if (rm->xfer) {
		struct nv_xfer xfer = { .cmd = nr, .size = size, .ptr = (uintptr_t)page };
		void *outer = rm_place(rm, &xfer, sizeof(xfer));

		ret = rm_syscall(rm, fd, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, NV_ESC_IOCTL_XFER_CMD, sizeof(xfer)), outer);
		err = errno;
		rm_take(outer, NULL, sizeof(xfer));
	} else {
		ret = rm_syscall(rm, fd, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, nr, size), page);
		err = errno;
	}
	rm_take(page, arg, size);
	errno = err;
	return ret;
}

/* These return the driver's status. For a handle of 0 the driver chooses one and writes it back. */
static inline __u32 rm_alloc(struct rm *rm, __u32 parent, __u32 *object, __u32 class, void *params, unsigned int size)
{
	void *page = params ? rm_place(rm, params, size) : NULL;
	struct nvos64 call = {
		.hRoot = rm->client, .hObjectParent = parent, .hObjectNew = *object, .hClass = class,
		.pAllocParms = (uintptr_t)page, .paramsSize = size,
	};

	if (rm_call(rm, rm->ctl, NV_ESC_RM_ALLOC, &call, sizeof(call)))
		rm_die("RM_ALLOC");
	if (page)
		rm_take(page, params, size);
	*object = call.hObjectNew;
	rm->refused |= call.status != NV_OK;
	return call.status;
}

static inline __u32 rm_free(struct rm *rm, __u32 object)
{
	struct nvos00 call = { .hRoot = rm->client, .hObjectOld = object };

	if (rm_call(rm, rm->ctl, NV_ESC_RM_FREE, &call, sizeof(call)))
		rm_die("RM_FREE");
	rm->refused |= call.status != NV_OK;
	return call.status;
}

static inline __u32 rm_control(struct rm *rm, __u32 object, __u32 cmd, void *params, unsigned int size)
{
	void *page = rm_place(rm, params, size);
	struct nvos54 call = { .hClient = rm->client, .hObject = object, .cmd = cmd, .params = (uintptr_t)page, .paramsSize = size };

	if (rm_call(rm, rm->ctl, NV_ESC_RM_CONTROL, &call, sizeof(call)))
		rm_die("RM_CONTROL");
	rm_take(page, params, size);
	rm->refused |= call.status != NV_OK;
	return call.status;
}

/* Allocates physical memory on the GPU. *bytes becomes the size as rounded by the driver. */
static inline __u32 rm_memory(struct rm *rm, __u32 *object, __u64 *bytes)
{
	struct nv_memory_allocation params = { .owner = 0x736d6f6b, .size = *bytes };
	__u32 status = rm_alloc(rm, rm->device, object, NV01_MEMORY_LOCAL_USER, &params, sizeof(params));

	*bytes = params.size;
	return status;
}

/* Reserves a range of the GPU's addresses. *address becomes its start. */
static inline __u32 rm_reserve(struct rm *rm, __u32 *object, __u64 bytes, __u64 *address)
{
	struct nv_memory_allocation params = { .owner = 0x736d6f6b, .size = bytes, .flags = NVOS32_ALLOC_FLAGS_VIRTUAL };
	__u32 status = rm_alloc(rm, rm->device, object, NV50_MEMORY_VIRTUAL, &params, sizeof(params));

	*address = params.offset;
	return status;
}

static inline __u32 rm_map(struct rm *rm, __u32 range, __u32 memory, __u64 bytes, __u64 *address)
{
	struct nvos46 call = { .hClient = rm->client, .hDevice = rm->device, .hDma = range, .hMemory = memory, .length = bytes };

	struct nvos46_580 longer = { .hClient = rm->client, .hDevice = rm->device, .hDma = range, .hMemory = memory, .length = bytes };

	if (rm_call(rm, rm->ctl, NV_ESC_RM_MAP_MEMORY_DMA, &call, sizeof(call))) {
		if (errno != EINVAL || rm_call(rm, rm->ctl, NV_ESC_RM_MAP_MEMORY_DMA, &longer, sizeof(longer)))
			rm_die("RM_MAP_MEMORY_DMA");
		call.dmaOffset = longer.dmaOffset;
		call.status = longer.status;
	}
	*address = call.dmaOffset;
	rm->refused |= call.status != NV_OK;
	return call.status;
}

static inline __u32 rm_unmap(struct rm *rm, __u32 range, __u32 memory, __u64 address)
{
	struct nvos47 call = { .hClient = rm->client, .hDevice = rm->device, .hDma = range, .hMemory = memory, .dmaOffset = address };

	struct nvos47_535 shorter = { .hClient = rm->client, .hDevice = rm->device, .hDma = range, .hMemory = memory, .dmaOffset = address };

	if (rm_call(rm, rm->ctl, NV_ESC_RM_UNMAP_MEMORY_DMA, &call, sizeof(call))) {
		if (errno != EINVAL || rm_call(rm, rm->ctl, NV_ESC_RM_UNMAP_MEMORY_DMA, &shorter, sizeof(shorter)))
			rm_die("RM_UNMAP_MEMORY_DMA");
		call.status = shorter.status;
	}
	rm->refused |= call.status != NV_OK;
	return call.status;
}

/* Makes an object that the program needs, or exits. */
static inline void rm_need(const char *what, struct rm *rm, __u32 parent, __u32 *object, __u32 class, void *params, unsigned int size)
{
	__u32 status = rm_alloc(rm, parent, object, class, params, size);

	printf("%s: status %#x, object %#x\n", what, status, *object);
	if (status != NV_OK)
		exit(3);
}

/* Opens the driver's devices and makes a client, the device and its subdevice. */
static inline void rm_start(struct rm *rm)
{
	struct nv0080_alloc device = { .deviceId = rm->instance };
	struct nv2080_alloc subdevice = { 0 };
	struct nv_card_info cards[NV_GPU_IDS] = { 0 };
	struct nv_register_fd link;
	char node[32];

	setvbuf(stdout, NULL, _IOLBF, 0);
	rm->ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
	if (rm->ctl < 0)
		rm_die("cannot open /dev/nvidiactl; load the driver, or fakegpu.ko with nvidia=1");
	if (rm_call(rm, rm->ctl, NV_ESC_CARD_INFO, cards, sizeof(cards)))
		rm_die("CARD_INFO");
	if (rm->instance >= NV_GPU_IDS || !cards[rm->instance].valid) {
		fprintf(stderr, "there is no GPU %u; give another with -d\n", rm->instance);
		exit(1);
	}
	snprintf(node, sizeof(node), "/dev/nvidia%u", cards[rm->instance].minor_number);
	rm->gpu = open(node, O_RDWR | O_CLOEXEC);
	if (rm->gpu < 0)
		rm_die(node);
	link.ctl_fd = rm->ctl;
	if (rm_call(rm, rm->gpu, NV_ESC_REGISTER_FD, &link, sizeof(link)))
		rm_die("REGISTER_FD");
	rm_need("client", rm, 0, &rm->client, NV01_ROOT_CLIENT, NULL, 0);
	rm_need("device", rm, rm->client, &rm->device, NV01_DEVICE_0, &device, sizeof(device));
	rm_need("subdevice", rm, rm->device, &rm->subdevice, NV20_SUBDEVICE_0, &subdevice, sizeof(subdevice));
}

/* Reads the options. Returns the index of the first of count arguments. */
static inline int rm_options(struct rm *rm, int argc, char **argv, int count, const char *arguments)
{
	int c;

	memset(rm, 0, sizeof(*rm));
	while ((c = getopt(argc, argv, "d:xcu")) != -1) {
		switch (c) {
		case 'd':
			rm->instance = strtoul(optarg, NULL, 0);
			break;
		case 'x':
			rm->xfer = true;
			break;
		case 'c':
			rm->compat = true;
			break;
		case 'u':
			rm->untouched = true;
			break;
		default:
			goto usage;
		}
	}
	if (argc - optind == count)
		return optind;
usage:
	fprintf(stderr, "usage: %s [-d N] [-x] [-c] [-u] %s\n", argv[0], arguments);
	exit(2);
}

static inline __u64 rm_number(const char *text)
{
	char *end;
	__u64 value = strtoull(text, &end, 0);

	if (*text < '0' || *text > '9' || *end) {
		fprintf(stderr, "%s is no number\n", text);
		exit(2);
	}
	return value;
}

#endif
