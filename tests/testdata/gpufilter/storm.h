/* 16 threads make 100,000 calls each, while four more fork children that make calls too. The emulator is that of
 * host.c. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct control {
    uint32_t hClient, hObject, cmd, flags;
    void *params;
    uint32_t paramsSize, status;
};
typedef int ask_fn(int, unsigned long, struct control *);

int ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    (void)request;
    va_list args;
    va_start(args, request);
    struct control *c = va_arg(args, struct control *);
    va_end(args);
    static const uint32_t ids[] = {0x100, 0x200, 0x10100, 0x300};
    memset(c->params, 0xff, 4 * 32);
    memcpy(c->params, ids, sizeof ids);
    c->status = 0;
    return 0;
}

static ask_fn *storm_ask;
static int storm_fd;
static atomic_int storm_wrong, storm_running;

static void storm_calls(int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t ids[32];
        struct control c = {.cmd = 0x201, .params = ids, .paramsSize = sizeof ids};
        int error = i % 100 + 1;
        errno = error;
        int result = storm_ask(storm_fd, 0xC020462A, &c);
        if (result != 0 || errno != error || ids[0] != 0x100 || ids[1] != 0x300 || ids[2] != 0xffffffff || ids[31] != 0xffffffff)
            atomic_fetch_add(&storm_wrong, 1);
    }
}

static void *storm_thread(void *forks)
{
    if (forks == NULL)
        storm_calls(100000);
    for (int i = 0; forks != NULL && i < 25; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(240);
            storm_calls(2000);
            _exit(atomic_load(&storm_wrong) != 0);
        }
        int status = -1;
        if (child > 0)
            waitpid(child, &status, 0);
        if (status != 0)
            atomic_fetch_add(&storm_wrong, 1);
    }
    atomic_fetch_sub(&storm_running, 1);
    return NULL;
}

static void storm_load(const char *library)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    void *symbol = handle != NULL ? dlsym(handle, "ask") : NULL;
    memcpy(&storm_ask, &symbol, sizeof storm_ask);
    storm_fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
}

static void storm_start(void)
{
    static int yes;
    atomic_store(&storm_running, 20);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, storm_thread, i < 16 ? NULL : &yes) != 0)
            abort();
        pthread_detach(thread);
    }
}

static int storm_over(void) { return atomic_load(&storm_running) == 0; }
static int storm_result(void) { return atomic_load(&storm_wrong); }
