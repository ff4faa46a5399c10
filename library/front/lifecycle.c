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
    if (references == 0) {
        answer = NVML_ERROR_UNINITIALIZED;
    } else if (--references == 0) {
        atomic_store_explicit(&nvmlfab_front.level, 0, memory_order_release);
        if (nvmlfab_loaded()) /* a forked child that has made no call has no core to stop */
            answer = (nvmlReturn_t)nvmlfab_ask(index, args);
        nvmlfab_end_handles();
    }
    nvmlfab_unlock();
    errno = saved;
    return answer;
}
