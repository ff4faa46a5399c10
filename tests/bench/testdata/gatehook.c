/* The filter's hook, with a table of ids to keep. */
#include "hook.c"

__attribute__((visibility("default"))) uintptr_t bench_hook(const uint32_t *keep, uint32_t count);

uintptr_t bench_hook(const uint32_t *keep, uint32_t count)
{
    return gpufilter_publish(keep, count, 0) ? gpufilter_hook() : 0;
}
