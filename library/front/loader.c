/* Finding, loading and, after a fork, replacing the core. */
#define _GNU_SOURCE
#include "front.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FRONT_NAME "libnvidia-ml"
#define CORE_NAME "libnvmlfab-core"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char own_path[PATH_MAX]; /* of this library, links resolved; empty if unknown */
static char core[PATH_MAX];     /* the core in use, absolute: a forked process may be in another folder */

void nvmlfab_lock(void) { pthread_mutex_lock(&lock); }
void nvmlfab_unlock(void) { pthread_mutex_unlock(&lock); }

void nvmlfab_complain(const char *format, ...)
{
    char line[PATH_MAX + 512] = "nvmlfab: ";
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    strcat(line, "\n");
    if (write(STDERR_FILENO, line, strlen(line)) < 0)
        return; /* nowhere left to say it */
}


/* The core stands beside the front under the front's own suffix: libnvidia-ml.so.V has
 * libnvmlfab-core.so.V. Container tooling collects *.so.V and so takes both along. */
static int core_path(char *path, size_t size)
{
    const char *named = secure_getenv("NVMLFAB_CORE");
    if (named != NULL && named[0] != '\0')
        return snprintf(path, size, "%s", named) < (int)size;
    const char *slash = strrchr(own_path, '/');
    if (slash == NULL)
        return 0;
    const char *base = slash + 1;
    const char *suffix = strncmp(base, FRONT_NAME, strlen(FRONT_NAME)) == 0 ? base + strlen(FRONT_NAME) : ".so";
    return snprintf(path, size, "%.*s/%s%s", (int)(slash - own_path), own_path, CORE_NAME, suffix) < (int)size;
}

/* The kernel's struct sigaction, which the C library refuses to touch for signals 32 and
 * 33: handler, flags, restorer, mask. */
struct disposition {
    unsigned long word[4];
};

/* What a Go library changes in a process as it loads: how signals are handled, and the
 * limit of open files. */
struct process {
    struct disposition signal[65];
    struct rlimit files;
};

static void save_process(struct process *host)
{
    for (int s = 1; s <= 64; s++)
        syscall(SYS_rt_sigaction, s, NULL, &host->signal[s], sizeof(unsigned long));
    getrlimit(RLIMIT_NOFILE, &host->files);
}

/* Signal 33 is the C library's own: it begins to handle it with the first thread, which may
 * be one of the core's, and setuid() would kill a process in which nobody handles it. */
#define SETXID 33

static void restore_process(const struct process *host)
{
    for (int s = 1; s <= 64; s++) {
        const struct disposition *was = &host->signal[s];
        struct disposition now;
        if (s == SETXID && was->word[0] == (unsigned long)SIG_DFL)
            continue;
        if (syscall(SYS_rt_sigaction, s, NULL, &now, sizeof(unsigned long)) == 0 && memcmp(&now, was, sizeof now) != 0)
            syscall(SYS_rt_sigaction, s, was, NULL, sizeof(unsigned long));
    }
    setrlimit(RLIMIT_NOFILE, &host->files);
}

/* What a Go runtime changes in a thread as they meet: it unblocks signals, SIGCHLD for one,
 * sets an alternate stack where there is none, and gives a pthread key of its own a value. */
struct thread {
    unsigned long mask;
    stack_t stack;
    unsigned char has[PTHREAD_KEYS_MAX];
};

/* The core's key, or none. A forked child has the value from a core whose threads are gone,
 * and would wait for them in that core's destructor at the end of the thread. */
static _Atomic pthread_key_t core_key = PTHREAD_KEYS_MAX;

static void forget_core_key(void)
{
    if (core_key < PTHREAD_KEYS_MAX)
        pthread_setspecific(core_key, NULL);
    core_key = PTHREAD_KEYS_MAX;
}

/* Blocks every signal but the C library's own two. Threads of the core inherit that, so
 * that the host's signals go to the host's threads. */
static void save_thread(struct thread *host)
{
    const unsigned long all = ~(1UL << (32 - 1) | 1UL << (SETXID - 1));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &host->mask, sizeof all);
    sigaltstack(NULL, &host->stack);
    for (pthread_key_t k = 0; core_key == PTHREAD_KEYS_MAX && k < PTHREAD_KEYS_MAX; k++)
        host->has[k] = pthread_getspecific(k) != NULL;
}

static void restore_thread(const struct thread *host)
{
    for (pthread_key_t k = 0; core_key == PTHREAD_KEYS_MAX && k < PTHREAD_KEYS_MAX; k++)
        if (!host->has[k] && pthread_getspecific(k) != NULL)
            core_key = k;
    sigaltstack(&host->stack, NULL);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &host->mask, NULL, sizeof host->mask);
}

_Thread_local uint32_t nvmlfab_met __attribute__((tls_model("initial-exec")));

uint32_t nvmlfab_meet(uint32_t index, const uint64_t *args)
{
    struct thread host;
    save_thread(&host);
    uint32_t answer = atomic_load_explicit(&nvmlfab_front.call, memory_order_acquire)(index, args);
    restore_thread(&host);
    nvmlfab_met = nvmlfab_front.generation;
    return answer;
}

/* Opens a copy of the core under a path that no ancestor used: dlopen would otherwise
 * answer with the ancestor's core, whose threads are gone. */
static int open_copy(const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return -1;
    int to = (int)syscall(SYS_memfd_create, "nvmlfab-core", 1 /* MFD_CLOEXEC */);
    if (to < 0) {
        char name[] = "/tmp/nvmlfab-core.XXXXXX";
        to = mkostemp(name, O_CLOEXEC);
        if (to >= 0)
            unlink(name);
    }
    struct stat st;
    int whole = to >= 0 && fstat(from, &st) == 0;
    for (off_t left = whole ? st.st_size : 0; whole && left > 0;) {
        ssize_t n = sendfile(to, from, NULL, (size_t)left);
        whole = n > 0;
        left -= n > 0 ? n : 0;
    }
    close(from);
    if (!whole) {
        if (to >= 0)
            close(to);
        return -1;
    }
    /* a descriptor number of its own for each generation, in case a process id comes back */
    int own = fcntl(to, F_DUPFD_CLOEXEC, 100 + (int)(nvmlfab_front.generation % 800));
    if (own >= 0) {
        close(to);
        to = own;
    }
    return to;
}

static uint32_t reload(uint32_t index, const uint64_t *args);

static void before_fork(void) { nvmlfab_lock(); }
static void parent_after_fork(void) { nvmlfab_unlock(); }

static void child_after_fork(void)
{
    if (nvmlfab_loaded()) {
        nvmlfab_front.generation++;
        forget_core_key();
        atomic_store(&nvmlfab_front.call, reload);
    }
    nvmlfab_unlock();
}

/* The path is taken at load time, because a relative one means nothing after a chdir. */
__attribute__((constructor)) static void set_up(void)
{
    Dl_info info;
    if (dladdr(&nvmlfab_front, &info) == 0 || realpath(info.dli_fname, own_path) == NULL)
        own_path[0] = '\0';
    pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

int nvmlfab_loaded(void)
{
    nvmlfab_call_fn call = atomic_load(&nvmlfab_front.call);
    return call != NULL && call != reload;
}

/* The Go runtime ends a process in which it finds no room: it reserves nearly 2 GB of
 * addresses, of which a few MB become memory. */
static int has_room(void)
{
    const size_t need = (size_t)2 << 30;
    void *room = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room != MAP_FAILED && munmap(room, need) == 0;
}

/* Gives back the pages of the core's relocations, a third of a megabyte, which the dynamic linker
 * has read and nobody reads again. They are those of a file, so a page that somebody does look at
 * comes back from there. */
static void drop_relocations(void *core)
{
    struct link_map *map;
    if (dlinfo(core, RTLD_DI_LINKMAP, &map) != 0)
        return;
    uintptr_t start = 0, size = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_RELA)
            start = d->d_un.d_ptr;
        if (d->d_tag == DT_RELASZ)
            size = d->d_un.d_val;
    }
    if (start < map->l_addr) /* a C library that leaves the address as the file has it */
        start += map->l_addr;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (start + page - 1) / page * page, end = (start + size) / page * page;
    if (size > 0 && first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* Loads path and exchanges hashes. */
static nvmlReturn_t greet(const char *path, const char *shown, struct nvmlfab_space *space, nvmlfab_call_fn *out)
{
    void *core = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (core == NULL) {
        nvmlfab_complain("cannot load the core %s: %s", shown, dlerror());
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    drop_relocations(core);
    nvmlfab_call_fn call;
    void *symbol = dlsym(core, "nvmlfab_call");
    memcpy(&call, &symbol, sizeof call);
    if (call == NULL) {
        nvmlfab_complain("%s is no nvmlfab core; put the core of this library beside it or name it in NVMLFAB_CORE", shown);
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    uint64_t hash = 0;
    const uint64_t args[] = {NVMLFAB_MODEL_HASH, (uint64_t)(uintptr_t)space, (uint64_t)(uintptr_t)&hash};
    if (call(NVMLFAB_HELLO, args) != NVML_SUCCESS || hash != NVMLFAB_MODEL_HASH) {
        nvmlfab_complain("the core %s was built for another model (%016llx) than this library (%016llx); take both from one build",
                         shown, (unsigned long long)hash, (unsigned long long)NVMLFAB_MODEL_HASH);
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    *out = call;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlfab_load(struct nvmlfab_space *space, int restore)
{
    if (nvmlfab_loaded())
        return NVML_SUCCESS;

    char path[PATH_MAX], copy[64];
    int forked = atomic_load(&nvmlfab_front.call) == reload;
    if (forked) {
        memcpy(path, core, sizeof path);
    } else if (!core_path(path, sizeof path)) {
        nvmlfab_complain("cannot tell where this library lies; name the core in NVMLFAB_CORE");
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    struct stat st;
    if (access(path, R_OK) != 0 || stat(path, &st) != 0) {
        nvmlfab_complain("no core at %s; put it there or name it in NVMLFAB_CORE", path);
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    if (!S_ISREG(st.st_mode)) { /* opening a pipe might never end */
        nvmlfab_complain("the core %s is not a regular file", path);
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    if (!has_room()) {
        nvmlfab_complain("the limit on addresses (ulimit -v) leaves less than the 2 GB that the core reserves");
        return NVML_ERROR_MEMORY;
    }
    const char *name = path;
    int fd = -1;
    if (forked) {
        fd = open_copy(path);
        if (fd < 0) {
            nvmlfab_complain("cannot copy the core %s for a forked process: %s", path, strerror(errno));
            return NVML_ERROR_UNKNOWN;
        }
        snprintf(copy, sizeof copy, "/proc/%ld/fd/%d", (long)getpid(), fd);
        name = copy;
        if (access(name, R_OK) != 0) {
            nvmlfab_complain("a forked process loads its core by way of /proc, which is not mounted here");
            close(fd);
            return NVML_ERROR_UNKNOWN;
        }
    }

    struct process process;
    struct thread thread;
    save_process(&process);
    save_thread(&thread);
    nvmlfab_call_fn call = NULL;
    nvmlReturn_t answer = greet(name, path, space, &call);
    restore_thread(&thread);
    restore_process(&process);
    if (fd >= 0)
        close(fd);
    if (answer == NVML_SUCCESS && restore)
        answer = (nvmlReturn_t)call(NVMLFAB_RESTORE, NULL);
    if (answer != NVML_SUCCESS)
        return answer;
    if (!forked && realpath(path, core) == NULL)
        memcpy(core, path, sizeof core);
    atomic_store_explicit(&nvmlfab_front.call, call, memory_order_release);
    return NVML_SUCCESS;
}

/* Stands in for the core in a forked child until its first call. */
static uint32_t reload(uint32_t index, const uint64_t *args)
{
    nvmlfab_lock();
    nvmlReturn_t answer = nvmlfab_load(nvmlfab_space(), nvmlfab_in_use());
    nvmlfab_unlock();
    if (answer != NVML_SUCCESS)
        return NVML_ERROR_UNKNOWN;
    return atomic_load(&nvmlfab_front.call)(index, args);
}
