/* The front: the libnvidia-ml.so.1 that programs load. It is linked to libc alone and
 * loads the core, a Go library, at the first nvmlInit. */
#ifndef NVMLFAB_FRONT_H
#define NVMLFAB_FRONT_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include "nvml.h"
#include "internal.h"
#include "slots.h"
#pragma GCC visibility pop

/* Identifies what front and core have to agree on; they compare it at load. */
extern const uint64_t nvmlfab_model_hash;

/* What the core exports: the symbol's number and a block of argument words. */
typedef uint32_t (*nvmlfab_call_fn)(uint32_t number, const uint64_t *args);

/* Numbers beyond every symbol are spoken between front and core alone. */
enum {
    NVMLFAB_HELLO = 0xffffff00u,   /* hash, struct nvmlfab_space *, uint64_t *core_hash */
    NVMLFAB_LEVEL = 0xffffff01u,   /* answers the NVML version of the configured driver */
    NVMLFAB_RESTORE = 0xffffff02u, /* rebuilds after a fork what the handles in use stand for */
};

/* Memory that the core fills once and then points to, so that a process which is forked at
 * any instant finds an old one or a new one, and no half of either. */
struct nvmlfab_block {
    uint64_t size;
    unsigned char bytes[];
};

/* What lies behind a handle: the key of the object that it stands for. The core writes kind
 * last; 0 is a slot that nobody has taken. */
struct nvmlfab_slot {
    _Atomic uint32_t kind;
    uint32_t device;
    uint64_t serial;
    _Atomic uint64_t generation;
    _Atomic(struct nvmlfab_block *) record; /* what belongs to the process: an event set's content */
    uint64_t unused[4];
};

#define NVMLFAB_FREED UINT32_MAX /* the kind of a slot whose handle was given back */
#define NVMLFAB_REGIONS 24

/* The handles are the addresses of slots, which lie in regions. The core takes slot number
 * next and never a number twice; when its region is not there yet, it asks for it by grow,
 * which answers 0 if there is no memory. Region i has NVMLFAB_FIRST << i slots.
 * A generation begins with the first nvmlInit and ends with the last nvmlShutdown. Its slots
 * bear its number, and those from start on may be of this one. */
struct nvmlfab_space {
    _Atomic uint64_t generation;
    _Atomic uint64_t next;
    uint64_t start;
    _Atomic(struct nvmlfab_slot *) region[NVMLFAB_REGIONS];
    int (*grow)(struct nvmlfab_space *space, uint32_t region);
    _Atomic(struct nvmlfab_block *) config; /* what the node is made of, for a forked process */
};

#define NVMLFAB_FIRST (UINT64_C(1) << 16)

/* level is 0 while NVML is not initialised, otherwise the NVML version of the configured
 * driver as an integer: 12004127 for 12.4.127. The mark generation counts cores from 1: each
 * fork that is followed by a call brings one. It reads 0 in a child that called no fork
 * handlers, until that is noticed. */
struct nvmlfab_front {
    _Atomic(nvmlfab_call_fn) call;
    _Atomic uint32_t level;
    _Atomic uint32_t *generation;
};

extern struct nvmlfab_front nvmlfab_front;

/* The generation whose core this thread has met. NVMLFAB_INSIDE is added while the thread is
 * in a call, so that one from a signal handler which interrupted it is told apart. A new
 * thread begins inside generation 0, which no core has. */
#define NVMLFAB_INSIDE UINT32_C(0x80000000)
extern _Thread_local uint32_t nvmlfab_met __attribute__((tls_model("initial-exec")));

/* Calls the core from a thread that has not met it, or answers IN_USE inside a call. */
uint32_t nvmlfab_meet(uint32_t index, const uint64_t *args);

/* Whether the calling thread is in a call already. */
int nvmlfab_inside(void);

nvmlReturn_t nvmlfab_init(uint32_t index, const uint64_t *args);
nvmlReturn_t nvmlfab_shutdown(uint32_t index, const uint64_t *args);
const char *nvmlfab_error_string(nvmlReturn_t code);
nvmlReturn_t nvmlfab_export_table(const void **table, const void *guid);

/* nvidia-smi's table, its size included: driver 550 has 251 words, 535 has 245, 470 has 213. */
#define NVMLFAB_WORDS 256
union nvmlfab_word_or_slot {
    uint64_t size;
    void (*slot)(void);
};
extern const union nvmlfab_word_or_slot nvmlfab_slots[NVMLFAB_WORDS];
nvmlReturn_t nvmlfab_unknown_slot(void);

/* Loads a core if none serves this process; the caller holds the lock. */
nvmlReturn_t nvmlfab_load(struct nvmlfab_space *space, int restore);

/* The lock on what nvmlInit and nvmlShutdown change. Who holds it gets no signal and cannot
 * be cancelled: a handler may fork, and a fork waits for the lock. */
void nvmlfab_lock(void);
void nvmlfab_unlock(void);
int nvmlfab_in_use(void);
int nvmlfab_loaded(void);
struct nvmlfab_space *nvmlfab_space(void);

/* Begin and end a generation of handles; the caller holds the lock. */
nvmlReturn_t nvmlfab_begin_handles(void);
void nvmlfab_end_handles(void);

/* Any argument of at most eight bytes as a word. */
static inline uint64_t nvmlfab_word(const void *arg, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, arg, size);
    return word;
}

#define NVMLFAB_WORD(arg) nvmlfab_word(&(arg), sizeof(arg))

/* Why a symbol that came with NVML version since, an integer as level is, cannot be asked; or
 * NVML_SUCCESS. */
static inline nvmlReturn_t nvmlfab_closed(uint32_t since)
{
    uint32_t level = atomic_load_explicit(&nvmlfab_front.level, memory_order_acquire);
    if (since <= level)
        return NVML_SUCCESS;
    return level == 0 ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_FUNCTION_NOT_FOUND;
}

static inline nvmlReturn_t nvmlfab_stub(uint32_t since)
{
    nvmlReturn_t closed = nvmlfab_closed(since);
    return closed != NVML_SUCCESS ? closed : NVML_ERROR_NOT_SUPPORTED;
}

static inline uint32_t nvmlfab_ask(uint32_t index, const uint64_t *args)
{
    uint32_t met = nvmlfab_met;
    if (met != atomic_load_explicit(nvmlfab_front.generation, memory_order_relaxed))
        return nvmlfab_meet(index, args);
    nvmlfab_met = met | NVMLFAB_INSIDE;
    uint32_t answer = atomic_load_explicit(&nvmlfab_front.call, memory_order_acquire)(index, args);
    nvmlfab_met = met;
    return answer;
}

/* Calls keep the caller's errno. */
static inline nvmlReturn_t nvmlfab_gate(uint32_t index, uint32_t since, const uint64_t *args)
{
    nvmlReturn_t closed = nvmlfab_closed(since);
    if (closed != NVML_SUCCESS)
        return closed;
    int saved = errno;
    nvmlReturn_t answer = (nvmlReturn_t)nvmlfab_ask(index, args);
    errno = saved;
    return answer;
}

/* Whether the calling thread may administer GPUs. */
int nvmlfab_admin(void);

/* The gate of symbols that are for administrators: NO_PERMISSION comes before arguments are looked at. */
static inline nvmlReturn_t nvmlfab_admin_gate(uint32_t index, uint32_t since, const uint64_t *args)
{
    nvmlReturn_t closed = nvmlfab_closed(since);
    if (closed != NVML_SUCCESS)
        return closed;
    if (!nvmlfab_admin())
        return NVML_ERROR_NO_PERMISSION;
    return nvmlfab_gate(index, since, args);
}

#endif
