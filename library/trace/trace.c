/* Finds the library after this one, passes calls on to it, and counts and writes them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "trace.h"

/* nvmlfab writes the session's folder over this text, in its copy of this library. The folder has the shared file, a link to
 * where lines go, a pipe to nvmlfab, and a link to the library after this one. */
__attribute__((used)) static volatile char session[256] = TRACE_SESSION;

static struct shared *shared;
static word (*after[TRACE_FUNCTIONS])(word, word, word, word, word, word, word, word);

/* nvidia-smi's table as the library after this one has it, and as the program gets it. */
static word (*slots_after[TRACE_SLOTS])(word, word, word, word, word, word, word, word, word, word);
static union {
    uint64_t size;
    void *slot;
} slots_here[TRACE_SLOTS];

/* ---- Where lines go ---------------------------------------------------------------------------------------------------- */

static struct {
    int fd;
    dev_t device;
    ino_t file;
    int bounded; /* only lines of up to 4096 bytes are written whole */
} lines = {.fd = -1};

static char *path_in_session(char *path, size_t room, const char *name)
{
    size_t n = 0;
    while (n + strlen(name) + 2 < room && session[n] != 0) {
        path[n] = session[n];
        n++;
    }
    path[n++] = '/';
    strcpy(path + n, name);
    return path;
}

static int open_output(const char *name, struct stat *st)
{
    char path[512];
    int fd = open(path_in_session(path, sizeof path, name), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0 && host_fstat(fd, st) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Opens the file for lines, at a high number, where a program does not expect it. The link may lead elsewhere, as in another
 * namespace of processes, or may not be followed, as in another one of users; then nvmlfab passes the lines on. */
static int open_lines(void)
{
    struct stat st;
    int fd = open_output("out", &st);
    if (fd >= 0 && (st.st_dev != (dev_t)shared->device || st.st_ino != (ino_t)shared->file)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        fd = open_output("relay", &st);
    if (fd < 0)
        return -1;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    lines.device = st.st_dev;
    lines.file = st.st_ino;
    lines.bounded = !S_ISREG(st.st_mode);
    lines.fd = fd;
    return 0;
}

/* The program may have closed the descriptor, and opened another file that got its number. */
static int is_open(void)
{
    struct stat st;
    return lines.fd >= 0 && host_fstat(lines.fd, &st) == 0 && st.st_dev == lines.device && st.st_ino == lines.file;
}

/* Writes a line with one call, so that it is whole among those of others. A full pipe is waited for; nobody on its other side
 * is no reason for the program to get a SIGPIPE. */
static void write_line(const char *text, size_t n)
{
    sigset_t broken, pending, was;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &was);
    sigpending(&pending);
    ssize_t written = -1;
    errno = EBADF;
    if (is_open() || open_lines() == 0)
        while ((written = write(lines.fd, text, n)) < 0 && (errno == EAGAIN || errno == EINTR))
            poll(&(struct pollfd){.fd = lines.fd, .events = POLLOUT}, 1, 1000);
    int error = written < 0 ? errno : ENOSPC;
    if (written != (ssize_t)n) {
        atomic_store(&shared->error, (uint64_t)error);
        atomic_fetch_add(&shared->lost, 1);
    }
    if (error == EPIPE && sigismember(&pending, SIGPIPE) != 1) /* it is this write's */
        while (sigtimedwait(&broken, NULL, &(struct timespec){0}) == -1 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
}

static _Atomic int counted_process;

/* ---- The call ---------------------------------------------------------------------------------------------------------- */

static uint64_t now(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static word pass_on(unsigned index, const word *a)
{
    if (index >= TRACE_FUNCTIONS)
        return slots_after[index - TRACE_FUNCTIONS](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    if (after[index] == NULL)
        return 13; /* FUNCTION_NOT_FOUND: only for a program that was linked to what the library does not have */
    return after[index](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

/* An entry of nvidia-smi's table that nobody has described. Its arguments are shown as the words they may be. */
static const struct param unknown_params[] = {
    {.name = "a", .role = WORD}, {.name = "b", .role = WORD}, {.name = "c", .role = WORD}, {.name = "d", .role = WORD},
};

static struct function function(unsigned index, char *name)
{
    struct function f = index < TRACE_FUNCTIONS ? trace_functions[index] : trace_slots[index - TRACE_FUNCTIONS];
    if (f.name == NULL) {
        unsigned n = index - TRACE_FUNCTIONS;
        char *at = name + strlen(strcpy(name, "nvmlInternalSlot"));
        if (n >= 100)
            *at++ = (char)('0' + n / 100);
        if (n >= 10)
            *at++ = (char)('0' + n / 10 % 10);
        *at++ = (char)('0' + n % 10);
        *at = 0;
        f = (struct function){.name = name, .count = 4, .params = unknown_params};
    }
    return f;
}

/* Memory for a line comes from the kernel, since the caller's stack may be small, and the caller may be a signal handler that
 * interrupted malloc. */
#define LONG_LINE (32 << 10)
#define LINE_OF_PIPE 4096
#define SCRATCH (2 * LONG_LINE + COPY_OF_STRUCT + COPY_OF_ELEMENT)

/* Memory that no call uses now. New pages are expensive, so they are kept. */
static _Atomic(char *) spare[64];
#define SPARES (sizeof spare / sizeof spare[0])

static char *take_memory(void)
{
    for (size_t i = 0; i < SPARES; i++) {
        char *memory = atomic_load(&spare[i]) != NULL ? atomic_exchange(&spare[i], NULL) : NULL;
        if (memory != NULL)
            return memory;
    }
    void *memory = mmap(NULL, SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_memory(char *memory)
{
    for (size_t i = 0; i < SPARES; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&spare[i], &none, memory))
            return;
    }
    munmap(memory, SCRATCH);
}

word trace_call(unsigned index, const word *args)
{
    int saved = errno;
    if (shared == NULL) {
        errno = saved;
        return pass_on(index, args);
    }
    struct entry *e = &shared->entry[index];
    const int pid = (int)syscall(SYS_getpid);
    if (atomic_exchange(&counted_process, pid) != pid) /* a fork */
        atomic_fetch_add(&shared->processes, 1);
    char number[32];
    const struct function f = function(index, number);
    struct line l = {0};
    struct out o = {0};
    char *memory = take_memory();
    atomic_fetch_add(&e->calls, 1);
    if (memory != NULL) {
        uint32_t room = lines.bounded ? LINE_OF_PIPE : LONG_LINE;
        l.out = (struct out){.text = memory, .room = room - 512, .json = shared->json != 0, .copy = (unsigned char *)memory + 2 * LONG_LINE};
        o = (struct out){.text = memory + LONG_LINE, .room = room, .json = l.out.json};
        trace_before(&l, &f, args);
    }

    errno = saved;
    uint64_t from = now();
    word result = pass_on(index, args);
    uint64_t ns = now() - from;
    saved = errno;

    uint32_t code = f.text ? 0 : (uint32_t)result;
    atomic_fetch_add(&e->codes[code < TRACE_CODES ? code : TRACE_CODES - 1], 1);
    atomic_fetch_add(&e->ns, ns);
    for (uint64_t longest = atomic_load(&e->longest); ns > longest && !atomic_compare_exchange_weak(&e->longest, &longest, ns);)
        ;
    if (memory != NULL) {
        trace_after(&l, &f, args, result);
        trace_finish(&l, &o, &f, pid, (int)syscall(SYS_gettid), result, ns, e->stub != 0);
        write_line(o.text, o.size);
        give_memory(memory);
    } else
        atomic_fetch_add(&shared->lost, 1);
    atomic_fetch_add(&e->ended, 1);
    errno = saved;
    return result;
}

/* ---- nvidia-smi's table ------------------------------------------------------------------------------------------------ */

#define SLOT(n) \
    static word slot_##n(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j) \
    { \
        return trace_call(TRACE_FUNCTIONS + 0x##n, (const word[TRACE_WORDS]){a, b, c, d, e, f, g, h, i, j}); \
    }
#define SLOTS(tens) \
    EACH(tens##0) EACH(tens##1) EACH(tens##2) EACH(tens##3) EACH(tens##4) EACH(tens##5) EACH(tens##6) EACH(tens##7) \
    EACH(tens##8) EACH(tens##9) EACH(tens##a) EACH(tens##b) EACH(tens##c) EACH(tens##d) EACH(tens##e) EACH(tens##f)
#define ALL \
    SLOTS(0) SLOTS(1) SLOTS(2) SLOTS(3) SLOTS(4) SLOTS(5) SLOTS(6) SLOTS(7) \
    SLOTS(8) SLOTS(9) SLOTS(a) SLOTS(b) SLOTS(c) SLOTS(d) SLOTS(e) SLOTS(f)

#define EACH SLOT
ALL
#undef EACH
#define EACH(n) [0x##n] = slot_##n,
static word (*const slots[TRACE_SLOTS])(word, word, word, word, word, word, word, word, word, word) = {ALL};

/* The table that the program gets has this library's functions in place of the functions of the library after it, and
 * everything else as it is. */
static const void *traced_table(const void *table)
{
    const uint64_t *words = table;
    Dl_info library, entry;
    size_t n = words[0] / sizeof(uint64_t);
    if (n < 2 || n > TRACE_SLOTS || dladdr(table, &library) == 0)
        return table;
    for (size_t i = 1; i < n; i++) {
        slots_here[i].size = words[i];
        if (words[i] != 0 && dladdr((void *)(uintptr_t)words[i], &entry) != 0 && entry.dli_fbase == library.dli_fbase) {
            memcpy(&slots_after[i], &words[i], sizeof slots_after[i]);
            memcpy(&slots_here[i], &slots[i], sizeof slots_here[i]);
        }
    }
    slots_here[0].size = words[0];
    return slots_here;
}

/* The GUIDs by which nvidia-smi asks for the table. Another table may have other things in it, and is given out as it is. */
static const unsigned char smi_guid[16] = {
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

/* The generated wrapper of nvmlInternalGetExportTable is this one. */
word trace_export_table(unsigned index, const word *args)
{
    word result = trace_call(index, args);
    if (shared != NULL && (uint32_t)result == 0 && memcmp((const void *)(uintptr_t)args[1], smi_guid, sizeof smi_guid) == 0) {
        const void **table = (const void **)(uintptr_t)args[0];
        *table = traced_table(*table);
    }
    return result;
}

/* ---- The start --------------------------------------------------------------------------------------------------------- */

static void open_shared(void)
{
    char path[512];
    int fd = open(path_in_session(path, sizeof path, "shared"), O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return;
    if (host_fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof *shared) {
        struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (s != MAP_FAILED && s->magic == TRACE_MAGIC)
            shared = s;
    }
    close(fd);
}

__attribute__((constructor)) static void start(void)
{
    char path[512];
    int saved = errno;
    void *library = dlopen(path_in_session(path, sizeof path, "lib/libnvmlfab-traced.so.1"), RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        host_complain("trace: %s", dlerror());
        errno = saved;
        return;
    }
    for (unsigned i = 0; i < TRACE_FUNCTIONS; i++)
        if (trace_functions[i].name != NULL) {
            void *f = dlsym(library, trace_functions[i].name);
            memcpy(&after[i], &f, sizeof f);
        }
    dlerror();
    open_shared();
    if (shared == NULL)
        host_complain("trace: %s cannot be used, so no calls of process %d are traced", path_in_session(path, sizeof path, "shared"), (int)getpid());
    else {
        atomic_store(&counted_process, (int)getpid());
        atomic_fetch_add(&shared->processes, 1);
        open_lines();
    }
    errno = saved;
}
