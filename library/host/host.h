/* Functions for a library that lives in somebody else's process: they keep signals, limits and stacks unchanged,
 * detect forks, and print messages without doing harm. The front and the two Go libraries use them. */
#ifndef NVMLFAB_HOST_H
#define NVMLFAB_HOST_H

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The kernel's struct sigaction: handler, flags, restorer, mask. The C library's sigaction refuses signals 32 and
 * 33. */
struct host_disposition {
    unsigned long word[4];
};

/* What a Go library may change in the process when it is loaded: how signals are handled, and the limit of open
 * files. */
struct host_process {
    struct host_disposition signal[65];
    struct rlimit files;
};

void host_save_process(struct host_process *was);

/* Undoes what the Go library changed, and only that, since other threads of the host may have set handlers and
 * limits meanwhile. inside is an address in the library. */
void host_restore_process(const struct host_process *was, const void *inside);

/* What a Go runtime changes in a thread that calls it for the first time: it unblocks signals such as SIGCHLD, and
 * sets an alternate stack if there is none. */
struct host_thread {
    unsigned long mask;
    stack_t stack;
};

/* Saves the state and blocks every signal but the C library's two. Threads of the Go runtime inherit that mask, so
 * the host's signals go to the host's threads. */
void host_save_thread(struct host_thread *was);
void host_restore_thread(const struct host_thread *was);

unsigned long host_block_signals(void);
void host_set_signals(unsigned long mask);

/* A mark is a number on a page that the kernel empties in each forked child, also if the fork called no fork
 * handlers (_Fork, the bare system call). Before Linux 4.14 the kernel cannot do that, and only the fork handlers
 * detect a fork. */
_Atomic uint32_t *host_new_mark(uint32_t value);

/* Whether the calling thread has size bytes of stack left. */
int host_has_stack(size_t size);

/* Runs work(arg) in the same thread, on another stack. Returns 0, or -1 without memory. */
int host_on_other_stack(void (*work)(void *arg), void *arg);

/* Prints one line of at most 1 KB on stderr. It never blocks and never raises SIGPIPE: if nobody reads, the line is
 * lost. */
void host_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* stat and fstat, which are in glibc only since 2.33. */
int host_stat(const char *path, struct stat *st);
int host_fstat(int fd, struct stat *st);

#endif
