/* This code never enters Go, so it works in every thread and in a forked child. */
#define _GNU_SOURCE
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* _IOWR('F', 0x2A, NVOS54_PARAMETERS) without the size. */
#define IOC_SIZE (0x3fffu << 16)
#define NV_ESC_RM_CONTROL 0xC000462Au

#define NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS 0x201
#define NV0000_CTRL_CMD_GPU_GET_PROBED_IDS 0x214
#define NVOS54_FLAGS_FINN_SERIALIZED 4
#define MAX_GPUS 32
#define INVALID_ID 0xffffffffu

typedef struct {
    uint32_t hClient, hObject, cmd, flags;
    uint32_t *params;
    uint32_t paramsSize, status;
} NVOS54_PARAMETERS;
_Static_assert(sizeof(NVOS54_PARAMETERS) == 32 && offsetof(NVOS54_PARAMETERS, status) == 28, "NVOS54_PARAMETERS");

/* A table is replaced as a whole and never freed, since a call may still be reading it. */
struct table {
    uint64_t control;
    uint32_t count;
    uint32_t id[];
};
static _Atomic(struct table *) current;

static int kept(uint32_t id, const uint32_t *keep, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (keep[i] == id)
            return 1;
    return 0;
}

void gpufilter_filter(uint32_t *ids, uint32_t *flags, const uint32_t *keep, uint32_t count)
{
    uint32_t live = 0, left = 0; /* left has a bit for each id that stays */
    for (; live < MAX_GPUS && ids[live] != INVALID_ID; live++)
        left |= (uint32_t)kept(ids[live], keep, count) << live;
    if (left == 0 || left == (uint32_t)((1ull << live) - 1))
        return;
    uint32_t to = 0;
    for (uint32_t from = 0; from < live; from++) {
        if ((left >> from & 1) == 0)
            continue;
        ids[to] = ids[from];
        if (flags != NULL)
            flags[to] = flags[from];
        to++;
    }
    if (flags != NULL)
        memset(flags + to, 0, (live - to) * sizeof *flags);
    memset(ids + to, 0xff, (MAX_GPUS - to) * sizeof *ids); /* INVALID_ID */
}

/* An answer about attached GPUs has gpuIds. An answer about probed GPUs also has excludedGpuIds and, from driver 580
 * on, gpuFlags. */
static int is_enumeration(const NVOS54_PARAMETERS *call)
{
    if (call->cmd == NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS)
        return call->paramsSize == 4 * MAX_GPUS;
    if (call->cmd == NV0000_CTRL_CMD_GPU_GET_PROBED_IDS)
        return call->paramsSize == 2 * 4 * MAX_GPUS || call->paramsSize == 3 * 4 * MAX_GPUS;
    return 0;
}

static __attribute__((noinline, cold)) void rewrite(int fd, const NVOS54_PARAMETERS *call)
{
    const struct table *table = atomic_load_explicit(&current, memory_order_acquire);
    if (table == NULL || call->status != 0 || (call->flags & NVOS54_FLAGS_FINN_SERIALIZED) != 0 || call->params == NULL)
        return;
    if (table->control != 0) {
        int error = errno;
        struct stat st;
        int other = syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH) != 0 || /* fstat is in glibc only since 2.33 */
            !S_ISCHR(st.st_mode) || st.st_rdev != table->control;
        errno = error;
        if (other)
            return;
    }
    gpufilter_filter(call->params, call->paramsSize == 3 * 4 * MAX_GPUS ? call->params + 2 * MAX_GPUS : NULL, table->id, table->count);
}

extern int ioctl(int fd, unsigned long request, ...) __attribute__((noplt)); /* saves a fifth of the cost */

/* Reads the argument only if the kernel accepted it, since otherwise it may not be a pointer. It is a separate
 * function so that other calls need not save registers. */
static __attribute__((noinline)) int control(int fd, unsigned long request, const void *arg)
{
    int result = ioctl(fd, request, arg);
    if (result == 0 && arg != NULL && is_enumeration(arg))
        rewrite(fd, arg);
    return result;
}

/* ioctl is variadic. On these architectures its variable argument is passed in the same way as a third fixed one. */
static int hook(int fd, unsigned long request, void *arg)
{
    if (((uint32_t)request & ~IOC_SIZE) != NV_ESC_RM_CONTROL)
        return ioctl(fd, request, arg);
    return control(fd, request, arg);
}

uintptr_t gpufilter_hook(void) { return (uintptr_t)hook; }

int gpufilter_publish(const uint32_t *ids, uint32_t count, uint64_t control)
{
    struct table *was = atomic_load(&current);
    if (was != NULL && was->count == count && was->control == control && memcmp(was->id, ids, count * sizeof *ids) == 0)
        return 1;
    struct table *now = malloc(sizeof *now + count * sizeof *ids);
    if (now == NULL)
        return 0;
    now->control = control;
    now->count = count;
    memcpy(now->id, ids, count * sizeof *ids);
    atomic_store_explicit(&current, now, memory_order_release);
    return 1;
}

int gpufilter_store(uintptr_t slot, uintptr_t value, int protection)
{
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)(slot & ~(size - 1));
    int closed = (protection & PROT_WRITE) == 0;
    if (closed && mprotect(page, size, protection | PROT_WRITE) != 0)
        return errno;
    __atomic_store_n((uintptr_t *)slot, value, __ATOMIC_RELEASE);
    if (closed && mprotect(page, size, protection) != 0)
        return errno;
    return 0;
}

struct block {
    char *bytes;
    size_t size;
    int failed;
    struct gpufilter_generation generation;
};

static void append(struct block *block, const void *bytes, size_t size)
{
    char *grown = block->failed ? NULL : realloc(block->bytes, block->size + size + 1);
    if (grown == NULL) {
        block->failed = 1;
        return;
    }
    memcpy(grown + block->size, bytes, size);
    block->bytes = grown;
    block->size += size;
}

static int collect(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    struct block *block = data;
    uint64_t head[] = {info->dlpi_addr, info->dlpi_phnum, strlen(info->dlpi_name)};
    append(block, head, sizeof head);
    append(block, info->dlpi_phdr, info->dlpi_phnum * sizeof *info->dlpi_phdr);
    append(block, info->dlpi_name, head[2]);
    block->generation = (struct gpufilter_generation){info->dlpi_adds, info->dlpi_subs};
    return 0;
}

void *gpufilter_objects(size_t *size, struct gpufilter_generation *generation)
{
    struct block block = {0};
    dl_iterate_phdr(collect, &block);
    if (block.failed) {
        free(block.bytes);
        return NULL;
    }
    *size = block.size;
    *generation = block.generation;
    return block.bytes;
}

/* Read and written under the caller's lock. */
static struct {
    int valid;
    struct gpufilter_generation generation;
    size_t count;
    uintptr_t slot[64];
} seen;

void gpufilter_remember(struct gpufilter_generation generation, const uint64_t *slots, size_t count)
{
    seen.valid = count <= sizeof seen.slot / sizeof seen.slot[0];
    if (!seen.valid)
        return;
    seen.generation = generation;
    seen.count = count;
    for (size_t i = 0; i < count; i++)
        seen.slot[i] = (uintptr_t)slots[i];
}

/* The dynamic linker unloads nothing while this callback runs. */
static int compare(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    int *same = data;
    *same = info->dlpi_adds == seen.generation.loaded && info->dlpi_subs == seen.generation.unloaded;
    for (size_t i = 0; *same && i < seen.count; i++)
        *same = __atomic_load_n((uintptr_t *)seen.slot[i], __ATOMIC_RELAXED) == (uintptr_t)hook;
    return 1;
}

int gpufilter_unchanged(void)
{
    int same = 0;
    if (seen.valid)
        dl_iterate_phdr(compare, &same);
    return same;
}
