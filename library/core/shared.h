/* The memory that front and core share, and the messages between them. library/core has all of it in Go. The hash that
 * they compare at load covers the text of this file, so a front never meets a core with other structs. */
#ifndef NVMLFAB_SHARED_H
#define NVMLFAB_SHARED_H

#include <pthread.h>
#include <stdint.h>

/* Numbers greater than those of all symbols are messages from the front to the core. */
enum {
    NVMLFAB_HELLO = 0xffffff00u,   /* hash, struct nvmlfab_space *, uint64_t *core_hash */
    NVMLFAB_LEVEL = 0xffffff01u,   /* answers the NVML version of the configured driver */
    NVMLFAB_RESTORE = 0xffffff02u, /* makes the objects of the existing handles again after a fork */
};

/* Starts something in a thread that waits for it, as pthread_create does. Answers an errno if no such thread is left, or if
 * its stack has another size than attributes (NULL: the usual ones) ask for. */
typedef int (*nvmlfab_give_fn)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);

/* The core's export in C: starts its Go runtime, which takes its threads from give as long as there are any. Only then the
 * export in Go can be called. Answers 1, or 0 if the runtime had been started before. */
int nvmlfab_start(nvmlfab_give_fn give);

/* The core fills a block once and then sets a pointer to it. A process that is forked at any instant therefore finds
 * the old block or the new one, and never half of one. */
struct nvmlfab_block {
    uint64_t size;
    unsigned char bytes[];
};

/* A handle is the address of a slot, which has the key of the handle's object. The core writes kind last; 0 means
 * that the slot is free. */
struct nvmlfab_slot {
    _Atomic uint32_t kind;
    uint32_t device;
    uint64_t serial;
    _Atomic uint64_t generation;
    _Atomic(struct nvmlfab_block *) record; /* the content of an object of the process, such as an event set */
    uint64_t unused[4];
};

#define NVMLFAB_FREED UINT32_MAX /* the kind of a slot whose handle was released */
#define NVMLFAB_REGIONS 24

/* What the core tells the front about the directories that it follows, so that it need not ask
 * for the time, and a waiter need not ask the core. */
struct nvmlfab_watch {
    _Atomic uint32_t follows;          /* 1 if there are any: then calls bring the time along */
    _Atomic uint32_t seen;             /* the number of the newest change when the files were last read */
    _Atomic(const uint32_t *) word;    /* where that number lies, NULL where it cannot be mapped */
    _Atomic uint32_t changes;          /* rises with each change that this process makes, and wakes who waits */
    _Atomic(const char *) file;        /* the path of the file that a change replaces, NULL if nobody else changes the node */
    _Atomic int64_t clock;             /* CLOCK_MONOTONIC_COARSE at the newest call, in ms */
};

/* Slots lie in regions; region i has NVMLFAB_FIRST << i slots. The core takes the slot with the number next, and
 * takes each number only once. If the slot's region does not exist, the core calls grow, which answers 0 if there is
 * no memory.
 *
 * A generation starts with the first nvmlInit and ends with the last nvmlShutdown. Its slots have its number; all of
 * them have slot numbers from start on. */
struct nvmlfab_space {
    _Atomic uint64_t generation;
    _Atomic uint64_t next;
    uint64_t start;
    _Atomic(struct nvmlfab_slot *) region[NVMLFAB_REGIONS];
    int (*grow)(struct nvmlfab_space *space, uint32_t region);
    _Atomic(struct nvmlfab_block *) config; /* the node's configuration, for forked processes */
    struct nvmlfab_watch *watch;
    const char *path; /* of this library, without links; empty if unknown */
};

#define NVMLFAB_FIRST (UINT64_C(1) << 16)

#endif
