/* gate library|kernel hook|direct CASE: measures an ioctl in nanoseconds, direct or through the filter's hook. The
 * kernel's work is left out: either a function that returns 0 replaces the C library's ioctl, or seccomp answers at
 * the entry of the kernel. hook.c is in a library of its own, so that it calls ioctl as libnvgpufilter.so does. */
#define _GNU_SOURCE
#include "hook.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int ioctl_fn(int, unsigned long, ...);
uintptr_t bench_hook(const uint32_t *keep, uint32_t count);

struct control {
    uint32_t hClient, hObject, cmd, flags;
    uint32_t *params;
    uint32_t paramsSize, status;
};
static uint32_t ids[32];
static ioctl_fn *volatile slot;

/* Makes a call as a library does, through a slot. */
static __attribute__((noinline)) int call(int fd, unsigned long request, struct control *control)
{
    int result = slot(fd, request, control);
    return result < 0 ? result : (int)control->status;
}

#ifdef STUB
int ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    va_list args;
    va_start(args, request);
    va_arg(args, struct control *)->status = 0;
    va_end(args);
    return 0;
}

int fstat(int fd, struct stat *st)
{
    (void)fd;
    st->st_mode = S_IFCHR;
    st->st_rdev = 259;
    return 0;
}
#else
/* ioctl and fstat succeed without doing anything. */
static int close_door(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    static const uint32_t keep[] = {0x100, 0x300, 0x500, 0x700};
    slot = strcmp(argv[1], "hook") == 0 ? (ioctl_fn *)bench_hook(keep, 4) : ioctl;
    unsigned long request = strcmp(argv[2], "other") == 0 ? 0xC030462B : 0xC020462A;
    uint32_t cmd = strcmp(argv[2], "enumeration") == 0 ? 0x201 : 0x20800102;
    struct control control = {.cmd = cmd, .params = ids, .paramsSize = sizeof ids};
    int n = 2000000;
#ifndef STUB
    n = 200000;
    if (close_door())
        return 3;
#endif
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        double start = now();
        for (int i = 0; i < n / 5; i++) {
            for (int j = 0; j < 9; j++)
                ids[j] = j < 8 ? (uint32_t)(j + 1) << 8 : 0xffffffff;
            call(3, request, &control);
        }
        double took = (now() - start) / (n / 5);
        if (took < best)
            best = took;
    }
    printf("%f\n", best);
    return 0;
}
