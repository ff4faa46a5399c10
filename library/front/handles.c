/* The memory of the handles. */
#define _GNU_SOURCE
#include "front.h"
#include "host.h"

#include <sys/mman.h>

_Static_assert(sizeof(struct nvmlfab_slot) == 64, "the core counts on it");

static int grow(struct nvmlfab_space *space, uint32_t region);

/* Slot 0 is never taken: its address equals that of the region. */
static struct nvmlfab_space space = {.generation = 1, .next = 1, .start = 1, .grow = grow, .watch = &nvmlfab_watch};

struct nvmlfab_space *nvmlfab_space(void) { return &space; }

static uint64_t slots_of(uint32_t region) { return NVMLFAB_FIRST << region; }

/* The number of a region's first slot. */
static uint64_t first_of(uint32_t region) { return (NVMLFAB_FIRST << region) - NVMLFAB_FIRST; }

/* The region of a slot. */
static uint32_t region_of(uint64_t number)
{
    uint32_t region = 0;
    while (number >= first_of(region + 1))
        region++;
    return region;
}

/* Maps a region. It reserves addresses only; a page gets memory when a slot of it is taken. A region is never
 * unmapped, so that no address is used twice. If two threads call this at once, the second uses the region of the
 * first. */
static int grow(struct nvmlfab_space *s, uint32_t region)
{
    if (region >= NVMLFAB_REGIONS)
        return 0;
    size_t size = slots_of(region) * sizeof(struct nvmlfab_slot);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return atomic_load(&s->region[region]) != NULL;
    struct nvmlfab_slot *none = NULL;
    if (!atomic_compare_exchange_strong(&s->region[region], &none, memory))
        munmap(memory, size);
    return 1;
}

nvmlReturn_t nvmlfab_begin_handles(void)
{
    uint32_t region = region_of(space.next);
    if ((region < NVMLFAB_REGIONS && atomic_load(&space.region[region]) != NULL) || grow(&space, region))
        return NVML_SUCCESS;
    host_complain("no room for handles: %s", strerror(errno));
    return NVML_ERROR_MEMORY;
}

/* Gives back the pages of a region on which all slots are between two numbers. */
static void forget(uint32_t region, uint64_t from, uint64_t to)
{
    const uint64_t page = 4096;
    struct nvmlfab_slot *slots = atomic_load(&space.region[region]);
    uint64_t first = first_of(region), end = first_of(region + 1);
    if (slots == NULL || from >= end || to <= first)
        return;
    uint64_t low = (uint64_t)(uintptr_t)&slots[from > first ? from - first : 0] & ~(page - 1);
    uint64_t high = (uint64_t)(uintptr_t)&slots[(to < end ? to : end) - first] & ~(page - 1);
    if (high > low)
        madvise((void *)(uintptr_t)low, high - low, MADV_DONTNEED);
}

/* A thread that is still in a call may take a slot after this. That slot has the number of the ended generation, so
 * it is not a valid handle. */
void nvmlfab_end_handles(void)
{
    atomic_fetch_add(&space.generation, 1);
    uint64_t from = space.start, to = space.next;
    space.start = to;
    for (uint32_t region = 0; region < NVMLFAB_REGIONS; region++)
        forget(region, from, to);
}
