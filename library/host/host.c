#define _GNU_SOURCE
#include "host.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- Signals and limits -------------------------------------------------------------- */

/* These two signals belong to the C library: it cancels threads with the first, and changes the identity of all
 * threads with the second. If a thread blocked the second, setuid() would wait for ever. */
enum { CANCEL = 32, SETXID = 33, SIGNALS = 64 };

void host_save_process(struct host_process *was)
{
    for (int s = 1; s <= SIGNALS; s++)
        syscall(SYS_rt_sigaction, s, NULL, &was->signal[s], sizeof(unsigned long));
    getrlimit(RLIMIT_NOFILE, &was->files);
}

/* The base address of the library that has this address, or NULL. */
static const void *base_of(const void *address)
{
    Dl_info info;
    return address != NULL && dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

void host_restore_process(const struct host_process *was, const void *inside)
{
    const void *library = base_of(inside);
    for (int s = 1; library != NULL && s <= SIGNALS; s++) {
        struct host_disposition now;
        if (syscall(SYS_rt_sigaction, s, NULL, &now, sizeof(unsigned long)) == 0 &&
            memcmp(&now, &was->signal[s], sizeof now) != 0 && base_of((const void *)now.word[0]) == library)
            syscall(SYS_rt_sigaction, s, &was->signal[s], NULL, sizeof(unsigned long));
    }
    /* Go's package syscall raises the soft limit to one below the hard one. */
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_max == was->files.rlim_max &&
        now.rlim_cur == now.rlim_max - 1 && was->files.rlim_cur < now.rlim_cur)
        setrlimit(RLIMIT_NOFILE, &was->files);
}

unsigned long host_block_signals(void)
{
    const unsigned long all = ~(1UL << (CANCEL - 1) | 1UL << (SETXID - 1));
    unsigned long was = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &was, sizeof all);
    return was;
}

void host_set_signals(unsigned long mask)
{
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
}

void host_save_thread(struct host_thread *was)
{
    was->mask = host_block_signals();
    sigaltstack(NULL, &was->stack);
}

void host_restore_thread(const struct host_thread *was)
{
    sigaltstack(&was->stack, NULL);
    host_set_signals(was->mask);
}

/* ---- Forks --------------------------------------------------------------------------- */

_Atomic uint32_t *host_new_mark(uint32_t value)
{
    static _Atomic uint32_t plain;
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    _Atomic uint32_t *mark = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED)
        mark = &plain;
    else
        madvise(mark, size, MADV_WIPEONFORK); /* if this fails, the child reads the parent's number */
    atomic_store(mark, value);
    return mark;
}

/* ---- Stacks -------------------------------------------------------------------------- */

int host_has_stack(size_t size)
{
    pthread_attr_t attributes;
    void *low;
    size_t whole;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0;
    pthread_attr_getstack(&attributes, &low, &whole);
    pthread_attr_destroy(&attributes);
    uintptr_t here = (uintptr_t)&whole, bottom = (uintptr_t)low;
    return here > bottom && here - bottom <= whole && here - bottom >= size;
}

/* makecontext can pass only ints, so the work is passed here. Each thread has its own. */
static _Thread_local struct {
    void (*work)(void *);
    void *arg;
} errand __attribute__((tls_model("initial-exec")));

static void run_errand(void) { errand.work(errand.arg); }

int host_on_other_stack(void (*work)(void *), void *arg)
{
    const size_t size = 1 << 20;
    ucontext_t here, there;
    void *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return -1;
    int error = getcontext(&there);
    if (error == 0) {
        there.uc_stack.ss_sp = stack;
        there.uc_stack.ss_size = size;
        there.uc_link = &here;
        errand.work = work;
        errand.arg = arg;
        makecontext(&there, run_errand, 0);
        error = swapcontext(&here, &there);
    }
    munmap(stack, size);
    return error;
}

/* ---- Messages ------------------------------------------------------------------------ */

/* Writes without blocking. It cannot set O_NONBLOCK, since that would affect everybody who shares the open file. A
 * pipe that poll reports as writable has room for a page, and a line is shorter. */
static void write_at_once(const char *line, size_t size)
{
    if (send(STDERR_FILENO, line, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != ENOTSOCK)
        return;
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0)
        return;
    struct stat file;
    struct iovec part = {.iov_base = (void *)(uintptr_t)line, .iov_len = size};
    if (host_fstat(STDERR_FILENO, &file) == 0 && S_ISFIFO(file.st_mode) &&
        (pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT) >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)))
        return; /* EAGAIN: another thread has filled the pipe meanwhile */
    if (write(STDERR_FILENO, line, size) < 0)
        return; /* there is nowhere to report it */
}

/* A SIGPIPE from this write goes to this thread, which blocks it and takes it back. A SIGPIPE that was pending
 * before is the host's and stays. */
static void write_quietly(const char *line, size_t size)
{
    sigset_t pending;
    unsigned long mask = host_block_signals();
    sigpending(&pending);
    int waiting = sigismember(&pending, SIGPIPE) == 1;
    write_at_once(line, size);
    if (!waiting) {
        sigset_t broken;
        sigemptyset(&broken);
        sigaddset(&broken, SIGPIPE);
        while (sigtimedwait(&broken, NULL, &(struct timespec){0}) == -1 && errno == EINTR)
            ;
    }
    host_set_signals(mask);
}

void host_complain(const char *format, ...)
{
    int saved = errno;
    char line[1024] = "nvmlfab: ";
    const size_t prefix = strlen(line), room = sizeof line - prefix - 1;
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(line + prefix, room, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    size_t size = strlen(line);
    if (wanted >= (int)room) { /* cut between characters of UTF-8 */
        size -= 3;
        while (((unsigned char)line[size] & 0xc0) == 0x80)
            size--;
        memcpy(line + size, "...", 3);
        size += 3;
    }
    line[size++] = '\n';
    write_quietly(line, size);
    errno = saved;
}

int host_stat(const char *path, struct stat *st) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0); }
int host_fstat(int fd, struct stat *st) { return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH); }
