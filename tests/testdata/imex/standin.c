/* Replaces NVIDIA's daemon and prints what it was given. Its arguments can also make it exit with a status (exit N),
 * end by a signal (die N), copy input to output (copy), or wait for a signal (wait). With "launch PROGRAM ARG..." it
 * executes PROGRAM under conditions that a Go program does not keep by itself; "launch-closed" also closes all
 * standard descriptors except standard output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static void ignore(int signal)
{
    struct {
        void *handler;
        unsigned long flags, restorer, mask;
    } how = {(void *)1, 0, 0, 0};
    syscall(SYS_rt_sigaction, signal, &how, NULL, sizeof how.mask);
}

static int launch(char **argv, int closed)
{
    static char *twice[] = {"A=1", "B=2", "A=3", "no value", "EMPTY=", "NEWLINE=a\nb", NULL, NULL};
    char real[4096];
    snprintf(real, sizeof real, "NVMLFAB_IMEX_REAL=%s", getenv("NVMLFAB_IMEX_REAL"));
    twice[6] = real;

    for (int s = 1; s <= 64; s++)
        if (s % 3 != 0 || s == SIGTERM)
            ignore(s);
    unsigned long blocked = 1UL << (SIGCHLD - 1) | 1UL << (SIGPROF - 1) | 1UL << (SIGUSR2 - 1) | 1UL << (SIGSEGV - 1) | 1UL << 33 | 1UL << 39;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, sizeof blocked);

    int null = open("/dev/null", O_RDONLY);
    dup2(null, 9);
    fcntl(9, F_SETFL, O_NONBLOCK);
    for (int fd = 3; fd < 100; fd++)
        if (fd != 9)
            close(fd);
    if (closed) {
        close(0);
        close(2);
    }
    struct rlimit files = {100, 200};
    setrlimit(RLIMIT_NOFILE, &files);
    umask(027);
    if (nice(3) == -1 && errno == EPERM)
        return 1;
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    execve(argv[0], argv, twice);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "launch") == 0)
        return launch(argv + 2, 0);
    if (argc > 2 && strcmp(argv[1], "launch-closed") == 0)
        return launch(argv + 2, 1);

    for (int i = 0; i < argc; i++)
        printf("argument %s\n", argv[i]);
    printf("pid %d\n", (int)getpid());
    for (char **e = environ; *e != NULL; e++)
        printf("environment %s\n", *e);
    unsigned long mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &mask, sizeof mask);
    printf("blocked %016lx\n", mask);
    for (int s = 1; s <= 64; s++) {
        unsigned long how[4] = {0};
        syscall(SYS_rt_sigaction, s, NULL, how, sizeof mask);
        if (how[0] != 0)
            printf("signal %d %lx\n", s, how[0]);
    }
    for (int fd = 0; fd < 100; fd++) {
        struct stat st;
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && fstat(fd, &st) == 0)
            printf("descriptor %d %x %o %lx\n", fd, flags, st.st_mode, (unsigned long)st.st_rdev);
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    printf("limit %lu %lu\n", (unsigned long)files.rlim_cur, (unsigned long)files.rlim_max);
    mode_t mode = umask(0);
    printf("umask %o nice %d\n", mode, getpriority(PRIO_PROCESS, 0));
    fflush(stdout);

    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "exit") == 0)
            return atoi(argv[i + 1]);
        if (strcmp(argv[i], "die") == 0)
            raise(atoi(argv[i + 1]));
    }
    if (argc > 1 && strcmp(argv[1], "copy") == 0) {
        char text[4096];
        ssize_t n;
        while ((n = read(0, text, sizeof text)) > 0)
            if (write(1, text, (size_t)n) != n)
                return 1;
        return write(2, "copied\n", 7) != 7;
    }
    if (argc > 1 && strcmp(argv[1], "wait") == 0)
        for (;;)
            pause();
    return 0;
}
