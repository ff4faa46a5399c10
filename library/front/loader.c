/* Finding and loading the core, and replacing it after a fork. */
#define _GNU_SOURCE
#include "front.h"
#include "host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define FRONT_NAME "libnvidia-ml"
#define CORE_NAME "libnvmlfab-core"

static char own_path[PATH_MAX]; /* this library's path without links; empty if unknown */

/* The path of the core, and a mapping of its file. A forked process loads a copy from the mapping, since its root
 * may have changed, or the file at the path. */
static struct {
    char path[PATH_MAX];
    void *image;
    size_t size;
} core;

/* ---- The lock, and the generations of cores ------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The state to restore at the unlock. */
static struct {
    unsigned long mask;
    int cancel;
} holder;

static uint32_t generation = 1; /* the generation if no fork empties the mark */

static uint32_t reload(uint32_t index, const uint64_t *args);
static void forget_core_key(void);

/* Runs in a forked child, where the Go runtime has lost its threads. */
static void begin_generation(void)
{
    if (nvmlfab_started() || nvmlfab_loaded()) {
        generation++;
        nvmlfab_forget_threads();
        forget_core_key();
        atomic_store(&nvmlfab_front.call, reload);
    }
    atomic_store(nvmlfab_front.generation, generation);
}

/* Detects a fork that called no handlers by its empty mark. The thread that held the lock does not exist in this
 * child, so the lock is made anew. Signals are blocked. */
static void notice_fork(void)
{
    const uint32_t noticing = UINT32_MAX;
    uint32_t emptied = 0;
    if (atomic_compare_exchange_strong(nvmlfab_front.generation, &emptied, noticing)) {
        pthread_mutex_init(&lock, NULL);
        begin_generation();
    }
    while (atomic_load(nvmlfab_front.generation) == noticing) /* another thread of the child is doing it */
        sched_yield();
}

int nvmlfab_inside(void)
{
    if (atomic_load(nvmlfab_front.generation) == 0) {
        unsigned long mask = host_block_signals();
        notice_fork();
        host_set_signals(mask);
    }
    return nvmlfab_met == (atomic_load(nvmlfab_front.generation) | NVMLFAB_INSIDE);
}

/* Takes the lock, and returns whether it is held. With try it does not wait. */
static int take_lock(int try)
{
    int cancel;
    unsigned long mask = host_block_signals();
    notice_fork();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (try && pthread_mutex_trylock(&lock) != 0) {
        pthread_setcancelstate(cancel, NULL);
        host_set_signals(mask);
        return 0;
    }
    if (!try)
        pthread_mutex_lock(&lock);
    holder.mask = mask;
    holder.cancel = cancel;
    return 1;
}

void nvmlfab_lock(void) { take_lock(0); }

void nvmlfab_unlock(void)
{
    unsigned long mask = holder.mask;
    int cancel = holder.cancel;
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(cancel, NULL);
    host_set_signals(mask);
}

/* A fork takes the lock first, so that the child finds its data complete. In a signal handler that interrupted a
 * call it must not wait for the lock, since the holder may be waiting for that call. */
static _Thread_local int fork_holds __attribute__((tls_model("initial-exec")));

static void before_fork(void) { fork_holds = take_lock(nvmlfab_inside()); }

static void parent_after_fork(void)
{
    if (fork_holds)
        nvmlfab_unlock();
}

static void child_after_fork(void)
{
    begin_generation();
    if (fork_holds)
        nvmlfab_unlock();
    else
        pthread_mutex_init(&lock, NULL);
}

/* The path is determined at load time, since a relative path would be wrong after a chdir. */
__attribute__((constructor)) static void set_up(void)
{
    Dl_info info;
    if (dladdr(&nvmlfab_front, &info) == 0 || realpath(info.dli_fname, own_path) == NULL)
        own_path[0] = '\0';
    nvmlfab_space()->path = own_path;
    nvmlfab_front.generation = host_new_mark(generation);
    pthread_atfork(before_fork, parent_after_fork, child_after_fork);
}

/* ---- A thread's first call ------------------------------------------------------------ */

/* A Go runtime sets a value of its own pthread key in each thread that calls it. A forked child has the value of the
 * old core, whose threads are gone. At the end of the thread the old core's destructor would wait for them for ever,
 * so the value must be removed. */
static _Atomic pthread_key_t core_key = PTHREAD_KEYS_MAX; /* PTHREAD_KEYS_MAX means none */

static void forget_core_key(void)
{
    if (core_key < PTHREAD_KEYS_MAX)
        pthread_setspecific(core_key, NULL);
    core_key = PTHREAD_KEYS_MAX;
}

struct thread {
    struct host_thread host;
    unsigned char has[PTHREAD_KEYS_MAX];
};

static void save_thread(struct thread *was)
{
    host_save_thread(&was->host);
    for (pthread_key_t k = 0; core_key == PTHREAD_KEYS_MAX && k < PTHREAD_KEYS_MAX; k++)
        was->has[k] = pthread_getspecific(k) != NULL;
}

static void restore_thread(const struct thread *was)
{
    for (pthread_key_t k = 0; core_key == PTHREAD_KEYS_MAX && k < PTHREAD_KEYS_MAX; k++)
        if (!was->has[k] && pthread_getspecific(k) != NULL)
            core_key = k;
    host_restore_thread(&was->host);
}

_Thread_local uint32_t nvmlfab_met __attribute__((tls_model("initial-exec"))) = NVMLFAB_INSIDE;

uint32_t nvmlfab_meet(uint32_t index, const uint64_t *args)
{
    if (nvmlfab_inside())
        return NVML_ERROR_IN_USE;
    struct thread thread;
    save_thread(&thread);
    uint32_t answer = atomic_load_explicit(&nvmlfab_front.call, memory_order_acquire)(index, args);
    nvmlfab_met = atomic_load(nvmlfab_front.generation);
    restore_thread(&thread);
    return answer;
}

/* ---- Loading ------------------------------------------------------------------------- */

int nvmlfab_loaded(void)
{
    nvmlfab_call_fn call = atomic_load(&nvmlfab_front.call);
    return call != NULL && call != reload;
}

/* The core is in the front's folder and has the front's suffix: libnvidia-ml.so.V loads libnvmlfab-core.so.V.
 * Container tooling collects *.so.V and so gets both. */
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

enum { HUGE = 2 << 20 }; /* the size of a huge page */

/* Has the kernel read the core in huge pages, if it has to read it at all, into its cache for all processes: where a mapping asks
 * for huge pages, Linux reads that much at a time, and maps code from them by one page fault instead of hundreds. Pages that the
 * cache has already stay as they are, and file systems without huge pages ignore this, as does Linux before 5.14. An error (the
 * file may have been truncated) does not matter here. */
static void read_core(void)
{
    madvise(core.image, core.size, MADV_HUGEPAGE);
    for (size_t at = 0; at < core.size; at += HUGE)
        madvise((char *)core.image + at, 1, MADV_POPULATE_READ);
    madvise(core.image, core.size, MADV_NOHUGEPAGE);
    madvise(core.image, core.size, MADV_DONTNEED);
}

/* Finds the core's file and maps it, once for a process and its children. */
static nvmlReturn_t find_core(void)
{
    if (core.image != NULL)
        return NVML_SUCCESS;
    if (!core_path(core.path, sizeof core.path)) {
        host_complain("cannot tell where this library lies; name the core in NVMLFAB_CORE");
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }
    struct stat st;
    int fd = open(core.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: opening a pipe must not wait */
    if (fd < 0 || host_fstat(fd, &st) != 0) {
        host_complain("no core at %s; put it there or name it in NVMLFAB_CORE", core.path);
    } else if (!S_ISREG(st.st_mode)) {
        host_complain("the core %s is not a regular file", core.path);
    } else {
        core.size = (size_t)st.st_size;
        core.image = mmap(NULL, core.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (core.image == MAP_FAILED) {
            host_complain("cannot load the core %s: %s", core.path, strerror(errno));
            core.image = NULL;
        } else {
            read_core();
        }
    }
    if (fd >= 0)
        close(fd);
    return core.image != NULL ? NVML_SUCCESS : NVML_ERROR_LIBRARY_NOT_FOUND;
}

/* The Go runtime ends its process if it finds too little address space. It reserves nearly 2 GB, of which a few MB
 * get memory. */
static int has_room(void)
{
    const size_t need = (size_t)2 << 30;
    void *room = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room != MAP_FAILED && munmap(room, need) == 0;
}

/* Writes the core to fd from its mapping. If somebody has truncated the file, write returns an error, where reading
 * the mapping would cause a SIGBUS. */
static int write_core(int fd)
{
    for (size_t done = 0; done < core.size;) {
        ssize_t n = write(fd, (const char *)core.image + done, core.size - done);
        if (n < 0 && errno != EINTR)
            return 0;
        done += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* Copies the core to a path that no ancestor used, since dlopen would otherwise return the ancestor's core. The
 * first choice is a file in memory, whose path needs a mounted /proc; the second is a file that is removed as soon
 * as it is loaded. Returns a descriptor or -1. */
static int copy_core(char *path, size_t size, int *named)
{
    int fd = (int)syscall(SYS_memfd_create, "nvmlfab-core", 1 /* MFD_CLOEXEC */);
    /* a number that differs between generations, in case a process id is used again */
    int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 100 + (int)(generation % 800));
    if (own >= 0) {
        close(fd);
        fd = own;
    }
    snprintf(path, size, "/proc/%ld/fd/%d", (long)getpid(), fd);
    *named = 0;
    if (fd >= 0 && access(path, R_OK) == 0 && write_core(fd))
        return fd;
    if (fd >= 0)
        close(fd);

    static const char *const folder[] = {"/tmp", "/dev/shm", "/var/tmp", "/run", ""};
    for (size_t i = 0; i < sizeof folder / sizeof folder[0]; i++) {
        snprintf(path, size, "%s/.nvmlfab-core.XXXXXX", folder[i]);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
            continue;
        if (write_core(fd)) {
            *named = 1;
            return fd;
        }
        unlink(path);
        close(fd);
    }
    return -1;
}

/* The arguments and result of a dlopen that may run on another stack. */
struct opening {
    const char *path;
    void *core;
};

static void open_core(void *arg)
{
    struct opening *opening = arg;
    opening->core = dlopen(opening->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static const ElfW(Dyn) *loaded; /* the dynamic section of a core that still has all pages of its load; NULL if there is none */

static int drop_code(struct dl_phdr_info *library, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const uintptr_t base = library->dlpi_addr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int found = 0;
    for (unsigned i = 0; i < library->dlpi_phnum; i++)
        found |= library->dlpi_phdr[i].p_type == PT_DYNAMIC && base + library->dlpi_phdr[i].p_vaddr == (uintptr_t)loaded;
    if (!found)
        return 0;
    for (unsigned i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
        const uintptr_t start = (base + segment->p_vaddr) / page * page, end = base + segment->p_vaddr + segment->p_filesz;
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) != 0)
            continue;
        madvise((void *)start, end - start, MADV_DONTNEED);
        /* Linux maps a whole huge page of the file again if only a byte is read, unless the mapping ends within it. */
        for (uintptr_t half = (start + HUGE - 1) / HUGE * HUGE + HUGE / 2; half < end; half += 2 * HUGE)
            madvise((void *)half, end - half < HUGE ? end - half : HUGE, MADV_NOHUGEPAGE);
    }
    return 1;
}

/* Gives back, once for each core, its pages that nobody can write: code and tables, most of which only the start of Go's
 * runtime needs. That is four megabytes. The pages are the file's, so that the kernel maps one again when somebody needs it. */
void nvmlfab_drop_code(void)
{
    if (loaded != NULL)
        dl_iterate_phdr(drop_code, NULL);
    loaded = NULL; /* a later nvmlInit of this core needs what is mapped by then */
}

static nvmlReturn_t no_threads(int error)
{
    host_complain("the core cannot have the threads that it needs: %s; a limit on tasks (ulimit -u, pids.max) or a "
                  "seccomp filter is in the way",
                  strerror(error));
    return NVML_ERROR_MEMORY;
}

/* Loads path and compares hashes. The dynamic linker needs some 20 KB of stack, which the calling thread may not
 * have. */
static nvmlReturn_t greet(const char *path, struct nvmlfab_space *space, nvmlfab_call_fn *out)
{
    static struct host_process process;
    struct opening opening = {.path = path};
    int unstacked = 0;
    host_save_process(&process);
    if (host_has_stack(256 << 10))
        open_core(&opening);
    else if (host_on_other_stack(open_core, &opening) != 0)
        unstacked = errno;
    if (unstacked != 0) {
        host_complain("no memory for the stack that loading the core takes: %s", strerror(unstacked));
        return NVML_ERROR_MEMORY;
    }
    if (opening.core == NULL) {
        host_complain("cannot load the core %s: %s", core.path, dlerror());
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    }

    struct link_map *map;
    int mapped = dlinfo(opening.core, RTLD_DI_LINKMAP, &map) == 0;
    loaded = mapped ? map->l_ld : NULL;
    nvmlReturn_t answer = NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlfab_call_fn call;
    int (*begin)(nvmlfab_give_fn);
    void *symbol = dlsym(opening.core, "nvmlfab_start");
    memcpy(&begin, &symbol, sizeof begin);
    if (begin != NULL) {
        int error = nvmlfab_start_core(begin);
        if (error != 0 && mapped)
            host_restore_process(&process, map->l_ld);
        if (error != 0)
            return no_threads(error);
    }
    symbol = dlsym(opening.core, "nvmlfab_answer");
    memcpy(&call, &symbol, sizeof call);
    uint64_t hash = 0;
    const uint64_t args[] = {nvmlfab_model_hash, (uint64_t)(uintptr_t)space, (uint64_t)(uintptr_t)&hash};
    if (call == NULL) {
        host_complain("%s is no nvmlfab core; put the core of this library beside it or name it in NVMLFAB_CORE", core.path);
    } else if (call(NVMLFAB_HELLO, args) != NVML_SUCCESS || hash != nvmlfab_model_hash) {
        host_complain("the core %s was built for another model (%016llx) than this library (%016llx); take both from one build",
                      core.path, (unsigned long long)hash, (unsigned long long)nvmlfab_model_hash);
    } else {
        *out = call;
        answer = NVML_SUCCESS;
    }
    if (begin == NULL || answer != NVML_SUCCESS)
        nvmlfab_end_threads();
    if (mapped)
        host_restore_process(&process, map->l_ld);
    return answer;
}

nvmlReturn_t nvmlfab_load(struct nvmlfab_space *space, int restore)
{
    if (nvmlfab_loaded())
        return NVML_SUCCESS;
    int forked = atomic_load(&nvmlfab_front.call) == reload;
    nvmlReturn_t answer = find_core();
    if (answer != NVML_SUCCESS)
        return answer;
    if (!has_room()) {
        host_complain("the limit on addresses (ulimit -v) leaves less than the 2 GB that the core reserves");
        return NVML_ERROR_MEMORY;
    }
    static char copy[64];
    const char *path = core.path;
    int fd = -1, named = 0;
    if (forked) {
        path = copy;
        fd = copy_core(copy, sizeof copy, &named);
        if (fd < 0) {
            host_complain("cannot copy the core %s for a forked process: %s", core.path, strerror(errno));
            return NVML_ERROR_UNKNOWN;
        }
    }

    struct thread thread;
    save_thread(&thread);
    nvmlfab_call_fn call = NULL;
    answer = greet(path, space, &call);
    restore_thread(&thread);
    if (named)
        unlink(copy);
    if (fd >= 0)
        close(fd);
    if (answer == NVML_SUCCESS && restore) {
        answer = (nvmlReturn_t)call(NVMLFAB_RESTORE, NULL);
        nvmlfab_drop_code();
    }
    if (answer == NVML_SUCCESS) {
        atomic_store_explicit(&nvmlfab_front.call, call, memory_order_release);
    } else if (!forked) { /* the next nvmlInit searches again */
        munmap(core.image, core.size);
        core.image = NULL;
    }
    return answer;
}

/* Replaces the core in a forked child until its first call. */
static uint32_t reload(uint32_t index, const uint64_t *args)
{
    nvmlfab_lock();
    nvmlReturn_t answer = nvmlfab_load(nvmlfab_space(), nvmlfab_in_use());
    nvmlfab_unlock();
    if (answer != NVML_SUCCESS)
        return NVML_ERROR_UNKNOWN;
    return atomic_load(&nvmlfab_front.call)(index, args);
}
