/* The hook that replaces ioctl, and functions by which Go uses the dynamic linker. */
#ifndef NVMLFAB_GPUFILTER_HOOK_H
#define NVMLFAB_GPUFILTER_HOOK_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The address of the hook. */
uintptr_t gpufilter_hook(void);

/* Sets the ids that the hook keeps, and the device number of nvidiactl, or 0 if it is not known. Returns 0 if there
 * is no memory. */
int gpufilter_publish(const uint32_t *ids, uint32_t count, uint64_t control);

/* Removes all ids that are not in keep from an array of 32 ids, together with their flags unless flags is NULL. */
void gpufilter_filter(uint32_t *ids, uint32_t *flags, const uint32_t *keep, uint32_t count);

/* Writes a slot on a page whose protection is given; the page gets it back. Returns 0 or an error number. */
int gpufilter_store(uintptr_t slot, uintptr_t value, int protection);

/* How many objects have been loaded and unloaded so far. */
struct gpufilter_generation {
    uint64_t loaded, unloaded;
};

/* All loaded objects in one block that the caller frees. Each has its base, number of program headers and length of
 * the name (three words), then the headers and the name. NULL if there is no memory. */
void *gpufilter_objects(size_t *size, struct gpufilter_generation *generation);

/* Stores the slots that have the hook, and the generation. If there are too many slots, it stores nothing. */
void gpufilter_remember(struct gpufilter_generation generation, const uint64_t *slots, size_t count);

/* Whether no object was loaded or unloaded since then and all slots still have the hook. A slot may have lost it: a
 * thread that was resolving a lazy import at that time writes the slot afterwards. */
int gpufilter_unchanged(void);

#pragma GCC visibility pop

#endif
