/* nvmlInit and nvmlShutdown, and the reference count. */
#define _GNU_SOURCE
#include "front.h"
#include "host.h"

static _Atomic uint32_t first = 1; /* until the library's constructor has run */
struct nvmlfab_front nvmlfab_front = {.generation = &first};

static unsigned references;

int nvmlfab_in_use(void) { return references > 0; }

static nvmlReturn_t start(uint32_t index, const uint64_t *args)
{
    nvmlReturn_t answer = nvmlfab_begin_handles();
    if (answer == NVML_SUCCESS)
        answer = nvmlfab_load(nvmlfab_space(), 0);
    if (answer != NVML_SUCCESS)
        return answer;
    answer = (nvmlReturn_t)nvmlfab_ask(index, args);
    if (answer == NVML_SUCCESS)
        atomic_store_explicit(&nvmlfab_front.level, nvmlfab_ask(NVMLFAB_LEVEL, NULL), memory_order_release);
    nvmlfab_drop_code();
    return answer;
}

nvmlReturn_t nvmlfab_init(uint32_t index, const uint64_t *args)
{
    int saved = errno;
    nvmlReturn_t answer = NVML_SUCCESS;
    if (nvmlfab_inside()) /* the holder of the lock may be waiting for the interrupted call */
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
    if (nvmlfab_inside()) /* the holder of the lock may be waiting for the interrupted call */
        return NVML_ERROR_IN_USE;
    nvmlfab_lock();
    /* One nvmlShutdown too many succeeds, as with every driver that was tried, from 390 to 555. */
    if (references > 0 && --references == 0) {
        atomic_store_explicit(&nvmlfab_front.level, 0, memory_order_release);
        if (nvmlfab_loaded()) /* a forked child that has made no call has no core to stop */
            answer = (nvmlReturn_t)nvmlfab_ask(index, args);
        nvmlfab_end_handles();
    }
    nvmlfab_unlock();
    errno = saved;
    return answer;
}

/* The first NVML version, as level, whose drivers answer before nvmlInit: 535 does, and 470 does not. */
enum { FIRST_ANYTIME = 12002140 };

nvmlReturn_t nvmlfab_anytime(uint32_t index, uint32_t since, const uint64_t *args, uint32_t init, uint32_t shutdown)
{
    if (nvmlfab_closed(since) != NVML_ERROR_UNINITIALIZED)
        return nvmlfab_gate(index, since, args);
    /* Only the core knows the answer, so this call begins a generation of its own and ends it. */
    if (nvmlfab_init(init, NULL) != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    nvmlReturn_t answer = NVML_ERROR_UNINITIALIZED;
    if (atomic_load_explicit(&nvmlfab_front.level, memory_order_acquire) >= FIRST_ANYTIME)
        answer = nvmlfab_gate(index, since, args);
    nvmlfab_shutdown(shutdown, NULL);
    return answer;
}
