/* The hook that replaces ioctl, and what Go needs from the dynamic linker. */
#ifndef NVMLFAB_GPUFILTER_HOOK_H
#define NVMLFAB_GPUFILTER_HOOK_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The address of the hook. */
uintptr_t gpufilter_hook(void);

/* The ids that the hook keeps, from now on, and the device number of nvidiactl, or 0 if it is not known. Returns 0 when
 * there is no memory. */
int gpufilter_publish(const uint32_t *ids, uint32_t count, uint64_t control);

/* Takes what is not in keep out of an array of 32 ids, and the flags along unless NULL. */
void gpufilter_filter(uint32_t *ids, uint32_t *flags, const uint32_t *keep, uint32_t count);

/* Writes a slot on a page of the given protection, which stays. Returns 0 or an error number. */
int gpufilter_store(uintptr_t slot, uintptr_t value, int protection);

/* How many objects have been loaded and unloaded so far. */
struct gpufilter_generation {
    uint64_t loaded, unloaded;
};

/* All loaded objects in one block to be freed, each as base, number of program headers, length of the name (three words),
 * the headers, and the name. NULL when there is no memory. */
void *gpufilter_objects(size_t *size, struct gpufilter_generation *generation);

/* Remembers slots that hold the hook, and when. With more slots than there is room for, nothing is remembered. */
void gpufilter_remember(struct gpufilter_generation generation, const uint64_t *slots, size_t count);

/* Whether no object has come or gone since then and the slots still hold the hook: a thread that was resolving a lazy
 * import at the time may have written over it. */
int gpufilter_unchanged(void);

#pragma GCC visibility pop

#endif
