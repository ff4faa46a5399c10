/* The functions of libnvgpufilter.so, and what keeps Go's runtime from showing: loading one changes how signals are
 * handled and the limit of open files, and its threads would take signals that are the host's. All of that is put back
 * before dlopen returns. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void nvgpufilterReady(void);
extern int nvgpufilterInstall(void);
extern uintptr_t nvgpufilterBoundImport(const char *object, const char *symbol);

/* The kernel's struct sigaction: handler, flags, restorer, mask. glibc would refuse signals 32 and 33. */
struct disposition {
    unsigned long word[4];
};

/* glibc's own, which it handles from the first thread on; setuid() would kill a process in which nobody does. */
#define SETXID 33

struct thread {
    unsigned long mask;
    stack_t stack;
    int error;
};

static struct {
    struct disposition signal[65];
    struct rlimit files;
    struct thread thread;
} host;

static int forked;

static void save_thread(struct thread *thread)
{
    const unsigned long all = ~(1UL << (32 - 1) | 1UL << (SETXID - 1));
    thread->error = errno;
    sigaltstack(NULL, &thread->stack);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &thread->mask, sizeof all);
}

static void restore_thread(const struct thread *thread)
{
    sigaltstack(&thread->stack, NULL);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &thread->mask, NULL, sizeof thread->mask);
    errno = thread->error;
}

/* Before the constructor by which Go's runtime starts. */
__attribute__((constructor(101))) static void before_go(void)
{
    for (int s = 1; s <= 64; s++)
        syscall(SYS_rt_sigaction, s, NULL, &host.signal[s], sizeof(unsigned long));
    getrlimit(RLIMIT_NOFILE, &host.files);
    save_thread(&host.thread);
}

static void in_child(void) { forked = 1; }

/* Behind it, since what Go links comes before what C does. A first call returns when the runtime is complete. */
__attribute__((constructor)) static void after_go(void)
{
    nvgpufilterReady();
    restore_thread(&host.thread);
    for (int s = 1; s <= 64; s++) {
        const struct disposition *was = &host.signal[s];
        struct disposition now;
        if (s == SETXID && was->word[0] == (unsigned long)SIG_DFL)
            continue;
        if (syscall(SYS_rt_sigaction, s, NULL, &now, sizeof(unsigned long)) == 0 && memcmp(&now, was, sizeof now) != 0)
            syscall(SYS_rt_sigaction, s, was, NULL, sizeof(unsigned long));
    }
    setrlimit(RLIMIT_NOFILE, &host.files);
    pthread_atfork(NULL, NULL, in_child);
}

int nvgpufilter_install(void);
void *nvgpufilter_bound_import(const char *object, const char *symbol);

/* Of a forked process's Go runtime nothing is left to answer. */
static int refuse(void)
{
    static const char line[] = "nvmlfab: gpufilter: the process has forked since libnvgpufilter.so was loaded; what it changed before "
                               "still works, more cannot be changed\n";
    int error = errno;
    if (forked && write(STDERR_FILENO, line, sizeof line - 1) < 0)
        errno = error; /* nowhere left to say it */
    return forked;
}

int nvgpufilter_install(void)
{
    if (refuse())
        return -1;
    struct thread thread;
    save_thread(&thread);
    int status = nvgpufilterInstall();
    restore_thread(&thread);
    return status;
}

void *nvgpufilter_bound_import(const char *object, const char *symbol)
{
    if (object == NULL || symbol == NULL || refuse())
        return NULL;
    struct thread thread;
    save_thread(&thread);
    uintptr_t address = nvgpufilterBoundImport(object, symbol);
    restore_thread(&thread);
    return (void *)address;
}
