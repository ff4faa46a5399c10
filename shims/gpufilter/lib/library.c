/* The functions of libnvgpufilter.so. They also keep Go's runtime from changing the process: its threads would take
 * signals that are the host's, and a build with an unchanged runtime changes signal handlers and the limit of open
 * files. All of that is restored before dlopen returns. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "host.h"
#include "nvgpufilter.h"

extern void nvgpufilterReady(void);
extern int nvgpufilterInstall(void);
extern uintptr_t nvgpufilterBoundImport(const char *object, const char *symbol);

static struct host_process process;
static struct host_thread loader;
static int loader_error;
static _Atomic uint32_t *mark; /* the kernel empties it in a forked child */

/* Runs before the constructor that starts Go's runtime. */
__attribute__((constructor(101))) static void before_go(void)
{
    loader_error = errno;
    host_save_process(&process);
    host_save_thread(&loader);
}

static void in_child(void) { atomic_store(mark, 0); }

/* Runs after Go's constructor, since the linker puts Go's constructors before those of C. The first call into Go
 * returns when the runtime is ready. */
__attribute__((constructor)) static void after_go(void)
{
    nvgpufilterReady();
    host_restore_process(&process, (const void *)(uintptr_t)nvgpufilterReady);
    mark = host_new_mark(1);
    pthread_atfork(NULL, NULL, in_child);
    host_restore_thread(&loader);
    errno = loader_error;
}

/* In a forked child nothing is left of Go's runtime, so the call is refused. */
static int refuse(void)
{
    if (atomic_load(mark) != 0)
        return 0;
    host_complain("gpufilter: the process has forked since libnvgpufilter.so was loaded; what it changed before still works, "
                  "more cannot be changed");
    return 1;
}

int nvgpufilter_install(void)
{
    if (refuse())
        return -1;
    struct host_thread thread;
    int error = errno;
    host_save_thread(&thread);
    int status = nvgpufilterInstall();
    host_restore_thread(&thread);
    errno = error;
    return status;
}

void *nvgpufilter_bound_import(const char *object, const char *symbol)
{
    if (object == NULL || symbol == NULL || refuse())
        return NULL;
    struct host_thread thread;
    int error = errno;
    host_save_thread(&thread);
    uintptr_t address = nvgpufilterBoundImport(object, symbol);
    host_restore_thread(&thread);
    errno = error;
    return (void *)address;
}
