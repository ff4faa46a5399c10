/* The front is the libnvidia-ml.so.1 that programs load. It is linked to libc alone. At the first nvmlInit it loads
 * the core, which is a Go library. */
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
#include "../core/shared.h"

/* Identifies what front and core must agree on. They compare it when the core is loaded. */
extern const uint64_t nvmlfab_model_hash;

/* The core's only export. It takes the symbol's number and a block of argument words. */
typedef uint32_t (*nvmlfab_call_fn)(uint32_t number, const uint64_t *args);

extern struct nvmlfab_watch nvmlfab_watch;

/* Notes the time for the core. */
void nvmlfab_note_time(void);

/* level is 0 while NVML is not initialised, otherwise the NVML version of the configured driver as an integer:
 * 12004127 for 12.4.127. generation points to the number of the present core, counted from 1; a new core is loaded
 * after each fork that is followed by a call. It reads 0 in a child whose fork called no fork handlers, until the
 * front notices that. */
struct nvmlfab_front {
    _Atomic(nvmlfab_call_fn) call;
    _Atomic uint32_t level;
    _Atomic uint32_t *generation;
};

extern struct nvmlfab_front nvmlfab_front;

/* The generation of the core that this thread has called before. NVMLFAB_INSIDE is added while the thread is in a
 * call, so that a call from a signal handler that interrupted it can be refused. A new thread starts with
 * NVMLFAB_INSIDE and generation 0, which no core has. */
#define NVMLFAB_INSIDE UINT32_C(0x80000000)
extern _Thread_local uint32_t nvmlfab_met __attribute__((tls_model("initial-exec")));

/* Prepares the thread for its first call of this core and makes the call. Answers IN_USE if the thread is in a call
 * already. */
uint32_t nvmlfab_meet(uint32_t index, const uint64_t *args);

/* Whether the calling thread is in a call. */
int nvmlfab_inside(void);

nvmlReturn_t nvmlfab_init(uint32_t index, const uint64_t *args);
nvmlReturn_t nvmlfab_shutdown(uint32_t index, const uint64_t *args);
const char *nvmlfab_error_string(nvmlReturn_t code);
nvmlReturn_t nvmlfab_export_table(const void **table, const void *guid);

/* The number of words in nvidia-smi's table, with word 0, its size. Driver 550 has 251 words, 535 has 245, 470 has
 * 213. */
#define NVMLFAB_WORDS 256
union nvmlfab_word_or_slot {
    uint64_t size;
    void (*slot)(void);
};
extern const union nvmlfab_word_or_slot nvmlfab_slots[NVMLFAB_WORDS];
nvmlReturn_t nvmlfab_unknown_slot(void);

/* Loads a core if this process has none; the caller holds the lock. */
nvmlReturn_t nvmlfab_load(struct nvmlfab_space *space, int restore);
void nvmlfab_drop_code(void);

/* Starts the core's Go runtime in a thread, and meanwhile makes the others that it needs, which inherit the caller's blocked
 * signals; the caller holds the lock. Answers 0, or an errno if a thread cannot be made. Then those that have no work have ended,
 * and the runtime waits in its only thread, if it has one, until another start of the same core succeeds. */
int nvmlfab_start_core(int (*start)(nvmlfab_give_fn give));

/* Ends the threads that have no work. */
void nvmlfab_end_threads(void);

/* Whether a Go runtime was started in this process, whatever became of its core. It does not survive a fork. */
int nvmlfab_started(void);
void nvmlfab_forget_threads(void); /* in a forked child, which has none of them */

/* The lock for all that nvmlInit and nvmlShutdown change. Its holder gets no signals and cannot be cancelled: a
 * signal handler may fork, and a fork waits for the lock. */
void nvmlfab_lock(void);
void nvmlfab_unlock(void);
int nvmlfab_in_use(void);
int nvmlfab_loaded(void);
struct nvmlfab_space *nvmlfab_space(void);

/* Start and end a generation of handles; the caller holds the lock. */
nvmlReturn_t nvmlfab_begin_handles(void);
void nvmlfab_end_handles(void);

/* Converts an argument of at most eight bytes to a word. */
static inline uint64_t nvmlfab_word(const void *arg, size_t size)
{
    uint64_t word = 0;
    memcpy(&word, arg, size);
    return word;
}

#define NVMLFAB_WORD(arg) nvmlfab_word(&(arg), sizeof(arg))

/* The error for a symbol of NVML version since (an integer, as level) that cannot be called now; NVML_SUCCESS if it
 * can. */
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
    if (atomic_load_explicit(&nvmlfab_watch.follows, memory_order_relaxed))
        nvmlfab_note_time();
    uint32_t answer = atomic_load_explicit(&nvmlfab_front.call, memory_order_acquire)(index, args);
    nvmlfab_met = met;
    return answer;
}

/* The answer to a caller without the right to what it asks for. */
nvmlReturn_t nvmlfab_refuse(void);

/* A call does not change the caller's errno. */
static inline nvmlReturn_t nvmlfab_gate(uint32_t index, uint32_t since, const uint64_t *args)
{
    nvmlReturn_t closed = nvmlfab_closed(since);
    if (closed != NVML_SUCCESS)
        return closed;
    int saved = errno;
    nvmlReturn_t answer = (nvmlReturn_t)nvmlfab_ask(index, args);
    if (answer == NVML_ERROR_NO_PERMISSION)
        answer = nvmlfab_refuse();
    errno = saved;
    return answer;
}

/* The gate for symbols that are answered before nvmlInit too. init and shutdown are the numbers of nvmlInit_v2 and nvmlShutdown. */
nvmlReturn_t nvmlfab_anytime(uint32_t index, uint32_t since, const uint64_t *args, uint32_t init, uint32_t shutdown);

/* Waits for what the core may have to tell: asks it, and as long as it answers TIMEOUT sleeps and asks again, for at
 * most timeout ms. */
nvmlReturn_t nvmlfab_wait(uint32_t index, uint32_t since, const uint64_t *args, const void *timeout);

/* Whether the calling thread may administer GPUs. */
int nvmlfab_admin(void);

/* The gate for symbols that only administrators may call: NO_PERMISSION comes before any check of the arguments. */
static inline nvmlReturn_t nvmlfab_admin_gate(uint32_t index, uint32_t since, const uint64_t *args)
{
    nvmlReturn_t closed = nvmlfab_closed(since);
    if (closed != NVML_SUCCESS)
        return closed;
    if (!nvmlfab_admin())
        return nvmlfab_refuse();
    return nvmlfab_gate(index, since, args);
}

#endif
