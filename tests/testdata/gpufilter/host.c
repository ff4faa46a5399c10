/* A program that loads libraries, installs the filter, and makes calls. Its ioctl emulates the resource manager:
 *   filter PATH      load libnvgpufilter.so, and print what that changed in the process
 *   load PATH        load a library
 *   unload PATH      unload it
 *   install          nvgpufilter_install()
 *   mark             note the memory of all loaded libraries of this folder, and its protection
 *   changes          print what differs from the mark
 *   undo             write back what differs
 *   remove PATH      unlink a file
 *   bound NAME SYM   print what nvgpufilter_bound_import returns for an import
 *   ask PATH DEV REQUEST CMD SIZE FLAGS HOW    make a call; DEV may be none or closed, HOW is ok, status or error
 *   fork             go on in a child; the parent exits with its status
 * Loading and installing also print other changes in the process, and the signals that Go's threads would take.
 * Each command is one argument; its words are separated by spaces. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct control {
    uint32_t hClient, hObject, cmd, flags;
    void *params;
    uint32_t paramsSize, status;
};
typedef int ask_fn(int, unsigned long, struct control *);

static const char *how = "ok";

/* Answers each enumeration with the GPUs 0x100, 0x200, 0x10100 and 0x300. Each flag is its own index. */
int ioctl(int fd, unsigned long request, ...)
{
    (void)request;
    va_list args;
    va_start(args, request);
    struct control *c = va_arg(args, struct control *);
    va_end(args);
    if (strcmp(how, "error") == 0) {
        errno = EINTR;
        return -1;
    }
    if (fd < 0) {
        errno = EBADF;
        return -1;
    }
    uint32_t *words = c->params;
    static const uint32_t ids[] = {0x100, 0x200, 0x10100, 0x300};
    memset(words, 0xff, 4 * 32);
    memcpy(words, ids, sizeof ids);
    for (uint32_t i = 32; i < c->paramsSize / 4; i++)
        words[i] = i < 64 ? (i == 32 ? 0x200 : 0xffffffff) : i - 63;
    c->status = strcmp(how, "status") == 0 ? 0x1f : 0;
    return 0;
}

static char folder[4096];
static int (*install)(void);
static void *(*bound_import)(const char *, const char *);

struct state {
    unsigned long how[65][4], mask;
    stack_t stack;
    struct rlimit files;
    int descriptors;
};

static void look(struct state *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 1; i <= 64; i++)
        syscall(SYS_rt_sigaction, i, NULL, s->how[i], 8ul);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &s->mask, 8ul);
    sigaltstack(NULL, &s->stack);
    getrlimit(RLIMIT_NOFILE, &s->files);
    for (int fd = 0; fd < 100; fd++)
        s->descriptors += fcntl(fd, F_GETFD) >= 0;
}

/* Prints the differences. Signal 33 is ignored, since the C library handles it when there are threads. */
static void compare(const char *when, const struct state *was)
{
    struct state now;
    look(&now);
    for (int i = 1; i <= 64; i++)
        if (i != 33 && memcmp(was->how[i], now.how[i], sizeof was->how[i]) != 0)
            printf("%s changed signal %d\n", when, i);
    if (was->mask != now.mask)
        printf("%s changed the signal mask\n", when);
    if (was->stack.ss_sp != now.stack.ss_sp || was->stack.ss_flags != now.stack.ss_flags)
        printf("%s changed the signal stack\n", when);
    if (was->files.rlim_cur != now.files.rlim_cur)
        printf("%s changed the limit of open files\n", when);
    if (was->descriptors != now.descriptors)
        printf("%s left %d descriptors open\n", when, now.descriptors - was->descriptors);
}

/* Prints the signals that other threads do not block, apart from those of faults and libc's own. */
static void threads(const char *when)
{
#ifdef __x86_64__ /* qemu has threads of its own */
    const uint64_t allowed = 1u << (SIGILL - 1) | 1u << (SIGTRAP - 1) | 1u << (SIGBUS - 1) | 1u << (SIGFPE - 1) | 1u << (SIGSEGV - 1) |
                             1u << (SIGKILL - 1) | 1u << (SIGSTOP - 1) | 3ul << 31;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[300], line[256];
        if (task->d_name[0] == '.' || atoi(task->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        uint64_t blocked;
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (sscanf(line, "SigBlk: %" SCNx64, &blocked) == 1 && (blocked | allowed) != ~(uint64_t)0)
                printf("%s left a thread that takes %016" PRIx64 "\n", when, ~(blocked | allowed));
        if (status != NULL)
            fclose(status);
    }
    if (tasks != NULL)
        closedir(tasks);
#else
    (void)when;
#endif
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *where(const void *address)
{
    Dl_info info;
    return address == NULL ? "nowhere" : dladdr(address, &info) != 0 ? base(info.dli_fname) : "unknown";
}

/* The memory of libraries: each mapping, with its line in /proc/self/maps. */
static struct region {
    char line[4352];
    uint64_t start, words;
    uint64_t *copy;
} regions[1000];
static int marked;

static int regions_of(struct region *list, int room)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4352];
    int n = 0;
    while (maps != NULL && n < room && fgets(line, sizeof line, maps) != NULL) {
        uint64_t start, end;
        char r, w;
        if (strstr(line, folder) == NULL || strstr(line, ".so") == NULL || sscanf(line, "%" SCNx64 "-%" SCNx64 " %c%c", &start, &end, &r, &w) != 4 || r != 'r')
            continue;
        strcpy(list[n].line, line);
        list[n].start = start;
        list[n].words = (end - start) / 8;
        n++;
    }
    if (maps != NULL)
        fclose(maps);
    return n;
}

static void mark(void)
{
    for (int i = 0; i < marked; i++)
        free(regions[i].copy);
    marked = regions_of(regions, 1000);
    for (int i = 0; i < marked; i++) {
        regions[i].copy = malloc(8 * regions[i].words);
        memcpy(regions[i].copy, (void *)regions[i].start, 8 * regions[i].words);
    }
}

static void changes(int undo)
{
    static struct region now[1000];
    int n = regions_of(now, 1000), changed = 0;
    if (n != marked)
        printf("%d regions, were %d\n", n, marked);
    for (int i = 0; i < n && i < marked; i++) {
        if (strcmp(now[i].line, regions[i].line) != 0)
            printf("now %swas %s", now[i].line, regions[i].line);
        if (strstr(now[i].line, "libnvgpufilter") != NULL || now[i].start != regions[i].start)
            continue;
        const uint64_t *word = (const uint64_t *)now[i].start;
        for (uint64_t j = 0; j < now[i].words; j++)
            if (word[j] != regions[i].copy[j]) {
                if (undo) {
                    ((uint64_t *)now[i].start)[j] = regions[i].copy[j];
                    continue;
                }
                char *end = strchr(now[i].line, '\n');
                if (end != NULL)
                    *end = '\0';
                printf("%s: a word now points into %s\n", base(now[i].line), where((void *)word[j]));
                changed++;
            }
    }
    if (!undo)
        printf("%d words changed\n", changed);
}

static void ask(char *path, char *device, unsigned long request, uint32_t cmd, uint32_t size, uint32_t flags, const char *answer)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    uint32_t params[96];
    struct control control = {.cmd = cmd, .params = params, .paramsSize = size, .flags = flags};
    int fd = strcmp(device, "none") == 0 ? -1 : strcmp(device, "closed") == 0 ? 60 : open(device, O_RDWR | O_CLOEXEC);
    static const char *const names[] = {"ask", "ask_by_address"};
    for (int i = 0; i < 2; i++) {
        void *symbol = dlsym(library, names[i]);
        ask_fn *function;
        memcpy(&function, &symbol, sizeof function);
        if (function == NULL)
            continue;
        memset(params, 0xee, sizeof params);
        how = answer;
        errno = 77;
        int result = function(fd, request, &control);
        int error = errno;
        how = "ok";
        printf("%s %d errno %d:", base(path), result, error);
        for (int j = 0; j < 32 && params[j] != 0xffffffff && params[j] != 0xeeeeeeee; j++) {
            printf(" %x", params[j]);
            if (size == 384)
                printf("/%u", params[64 + j]);
        }
        if (size >= 256 && result == 0)
            printf(" excluded %x", params[32]);
        printf("\n");
    }
    if (fd >= 0)
        close(fd);
    dlclose(library);
}

static void handler(int signal) { (void)signal; }

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, handler);
    signal(SIGSEGV, handler);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &files);
    if (realpath(argv[0], folder) == NULL)
        return 1;
    *strrchr(folder, '/') = '\0';

    for (int i = 1; i < argc; i++) {
        char *word[8] = {0};
        int n = 0;
        for (char *w = strtok(argv[i], " "); w != NULL && n < 8; w = strtok(NULL, " "))
            word[n++] = w;
        if (strcmp(word[0], "filter") == 0) {
            struct state was;
            look(&was);
            void *filter = dlopen(word[1], RTLD_NOW | RTLD_LOCAL), *symbol;
            if (filter == NULL) {
                printf("%s\n", dlerror());
                return 1;
            }
            compare("loading", &was);
            threads("loading");
            symbol = dlsym(filter, "nvgpufilter_install");
            memcpy(&install, &symbol, sizeof install);
            symbol = dlsym(filter, "nvgpufilter_bound_import");
            memcpy(&bound_import, &symbol, sizeof bound_import);
        } else if (strcmp(word[0], "load") == 0) {
            if (dlopen(word[1], RTLD_LAZY | RTLD_LOCAL) == NULL)
                printf("%s\n", dlerror());
        } else if (strcmp(word[0], "unload") == 0) {
            void *library = dlopen(word[1], RTLD_LAZY | RTLD_NOLOAD);
            dlclose(library);
            dlclose(library);
        } else if (strcmp(word[0], "install") == 0) {
            struct state was;
            look(&was);
            errno = 77;
            int status = install();
            if (errno != 77)
                printf("install changed errno\n");
            compare("installing", &was);
            threads("installing");
            printf("install %d\n", status);
        } else if (strcmp(word[0], "mark") == 0) {
            mark();
        } else if (strcmp(word[0], "changes") == 0) {
            changes(0);
        } else if (strcmp(word[0], "undo") == 0) {
            changes(1);
        } else if (strcmp(word[0], "remove") == 0) {
            unlink(word[1]);
        } else if (strcmp(word[0], "bound") == 0) {
            printf("%s in %s: %s\n", word[2], word[1], where(bound_import(word[1], word[2])));
        } else if (strcmp(word[0], "ask") == 0) {
            ask(word[1], word[2], strtoul(word[3], NULL, 0), (uint32_t)strtoul(word[4], NULL, 0), (uint32_t)strtoul(word[5], NULL, 0),
                (uint32_t)strtoul(word[6], NULL, 0), word[7]);
        } else if (strcmp(word[0], "fork") == 0) {
            pid_t child = fork();
            int status = 0;
            if (child != 0) {
                waitpid(child, &status, 0);
                return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
            }
        } else {
            return 2;
        }
    }
    return 0;
}
