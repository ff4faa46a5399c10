/* What a library does that lives in somebody else's process: it leaves signals, limits and
 * stacks as they were, notices forks, and says what is wrong without doing harm. The front
 * and the two Go libraries share it. */
#ifndef NVMLFAB_HOST_H
#define NVMLFAB_HOST_H

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* The kernel's struct sigaction, which the C library refuses to touch for signals 32 and
 * 33: handler, flags, restorer, mask. */
struct host_disposition {
    unsigned long word[4];
};

/* What a Go library may change in a process as it loads: how signals are handled, and the
 * limit of open files. */
struct host_process {
    struct host_disposition signal[65];
    struct rlimit files;
};

void host_save_process(struct host_process *was);

/* Takes back what the Go library changed, and only that: other threads of the host may have
 * set handlers and limits meanwhile. inside is an address in the library. */
void host_restore_process(const struct host_process *was, const void *inside);

/* What a Go runtime changes in a thread as they meet: it unblocks signals, SIGCHLD for one,
 * and sets an alternate stack where there is none. */
struct host_thread {
    unsigned long mask;
    stack_t stack;
};

/* Saving also blocks every signal but the C library's own two. Threads of the Go runtime
 * inherit that, so that the host's signals go to the host's threads. */
void host_save_thread(struct host_thread *was);
void host_restore_thread(const struct host_thread *was);

unsigned long host_block_signals(void);
void host_set_signals(unsigned long mask);

/* A process is told by a number on a page that the kernel empties in each forked child, also
 * in one that calls no fork handlers (_Fork, the bare system call). Where the kernel cannot
 * do that (before Linux 4.14), fork handlers alone must do. */
_Atomic uint32_t *host_new_mark(uint32_t value);

/* Whether as many threads can be made as a Go runtime needs. If not it would end the process. */
int host_has_threads(void);

/* Whether the calling thread has size bytes of stack left. */
int host_has_stack(size_t size);

/* Runs work(arg) on a stack of its own, in the same thread. Answers 0, or -1 without memory. */
int host_on_other_stack(void (*work)(void *arg), void *arg);

/* Says one line on stderr, at most 1 KB of it. It never blocks, and sends the host no
 * SIGPIPE: where nobody listens, the line is lost. */
void host_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
