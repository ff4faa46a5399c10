/* The start of the core's Go runtime, and its threads. A Go runtime starts as soon as it is loaded, and ends its process if it
 * cannot make a thread. So the core is linked with --wrap=pthread_create: its runtime starts when the front says so, and runs in
 * threads that the front has made. */
#include "shared.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static _Atomic(nvmlfab_give_fn) give;

/* What the runtime has handed to threads. Each of them frees it first of all, and with its first free a thread gets an arena
 * of its own from glibc, which takes longer than to make the thread. So these few bytes are kept. */
static _Atomic(void *) handed[32];

/* What the runtime's constructor wants to run. The dynamic linker calls that before the front can call anything. */
static struct {
    void *(*run)(void *);
    void *arg;
} first;

/* libc's own. A name with a version is not wrapped. */
extern int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#ifdef __x86_64__
__asm__(".symver create, pthread_create@GLIBC_2.2.5");
#else
__asm__(".symver create, pthread_create@GLIBC_2.17");
#endif

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    if (give == NULL) {
        first.run = run;
        first.arg = arg;
        return 0;
    }
    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++) {
        void *nothing = NULL;
        if (atomic_compare_exchange_strong(&handed[i], &nothing, arg))
            break;
    }
    return give(thread, attributes, run, arg) == 0 ? 0 : create(thread, attributes, run, arg);
}

extern void __real_free(void *) __attribute__((weak));

void __wrap_free(void *memory)
{
    for (size_t i = 0; memory != NULL && i < sizeof handed / sizeof *handed; i++)
        if (atomic_load(&handed[i]) == memory)
            return;
    __real_free(memory);
}

__attribute__((visibility("default"))) int nvmlfab_start(nvmlfab_give_fn from)
{
    pthread_t thread;
    give = from;
    if (first.run == NULL || give(&thread, NULL, first.run, first.arg) != 0)
        return 0;
    first.run = NULL;
    return 1;
}
