/* The time, for a core that follows directories. */
#define _GNU_SOURCE
#include "front.h"

#include <time.h>

struct nvmlfab_watch nvmlfab_watch;

/* Threads share the note, so it is only written when it differs. */
void nvmlfab_note_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (atomic_load_explicit(&nvmlfab_watch.clock, memory_order_relaxed) < ms)
        atomic_store_explicit(&nvmlfab_watch.clock, ms, memory_order_relaxed);
}
