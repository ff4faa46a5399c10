/* nvmlInit and nvmlShutdown: the reference count, and the generations of handles. */
#define _GNU_SOURCE
#include "front.h"
#include "host.h"

#include <sys/mman.h>

#define REGION (UINT64_C(1) << 28) /* address space only; pages appear as handles are given out */
#define SLOT 16

static _Atomic uint32_t first = 1; /* until the library's constructor has run */
struct nvmlfab_front nvmlfab_front = {.generation = &first};

static struct nvmlfab_space space;
static unsigned references;

int nvmlfab_in_use(void) { return references > 0; }

struct nvmlfab_space *nvmlfab_space(void) { return &space; }

/* Makes room for a generation. An exhausted region stays mapped, so that its addresses
 * are never given out again. */
static nvmlReturn_t reserve(void)
{
    if (space.base != 0 && space.next < space.limit / 2)
        return NVML_SUCCESS;
    void *region = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) {
        host_complain("no room for handles: %s", strerror(errno));
        return NVML_ERROR_MEMORY;
    }
    space.base = (uint64_t)(uintptr_t)region;
    space.limit = REGION / SLOT;
    space.start = space.next = 1; /* number 0 would make the region's base a handle */
    return NVML_SUCCESS;
}

/* Gives back the pages whose handles are all of past generations. */
static void forget(uint64_t from, uint64_t to)
{
    const uint64_t page = 4096;
    uint64_t first = (space.base + from * SLOT) & ~(page - 1);
    uint64_t end = (space.base + to * SLOT) & ~(page - 1);
    if (end > first)
        madvise((void *)(uintptr_t)first, end - first, MADV_DONTNEED);
}

static nvmlReturn_t start(uint32_t index, const uint64_t *args)
{
    nvmlReturn_t answer = reserve();
    if (answer == NVML_SUCCESS)
        answer = nvmlfab_load(&space, 0);
    if (answer != NVML_SUCCESS)
        return answer;
    answer = (nvmlReturn_t)nvmlfab_ask(index, args);
    if (answer == NVML_SUCCESS)
        atomic_store_explicit(&nvmlfab_front.level, nvmlfab_ask(NVMLFAB_LEVEL, NULL), memory_order_release);
    return answer;
}

nvmlReturn_t nvmlfab_init(uint32_t index, const uint64_t *args)
{
    int saved = errno;
    nvmlReturn_t answer = NVML_SUCCESS;
    if (nvmlfab_inside()) /* who holds the lock may be waiting for the call that was interrupted */
        return NVML_ERROR_IN_USE;
    nvmlfab_lock();
    if (references == 0)
        answer = start(index, args);
    if (answer == NVML_SUCCESS)
        references++;
    nvmlfab_unlock();
    errno = saved;
    return answer;
}

nvmlReturn_t nvmlfab_shutdown(uint32_t index, const uint64_t *args)
{
    int saved = errno;
    nvmlReturn_t answer = NVML_SUCCESS;
    if (nvmlfab_inside()) /* who holds the lock may be waiting for the call that was interrupted */
        return NVML_ERROR_IN_USE;
    nvmlfab_lock();
    if (references == 0) {
        answer = NVML_ERROR_UNINITIALIZED;
    } else if (--references == 0) {
        atomic_store_explicit(&nvmlfab_front.level, 0, memory_order_release);
        if (nvmlfab_loaded()) /* a forked child that has not called yet has nothing to stop */
            answer = (nvmlReturn_t)nvmlfab_ask(index, args);
        uint64_t from = space.start;
        space.start = space.next;
        forget(from, space.start);
    }
    nvmlfab_unlock();
    errno = saved;
    return answer;
}
