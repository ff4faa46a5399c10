/* Waiting for events. The core never blocks: it answers TIMEOUT if there is no event yet. The sleep is here, where the
 * thread holds no lock and is in no call. So a signal handler that interrupts it may call NVML or fork, and no thread of
 * the Go runtime has to wait. */
#define _GNU_SOURCE
#include "front.h"
#include "host.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long a thread sleeps before it looks for itself whether there is news: for the case that nobody could wake it, since
 * the number cannot be mapped, is in another file now, or was not raised because the writer was killed. It is more than
 * the 250 ms for which the core does not look at the state directory a second time. */
#define NAP_NS INT64_C(500000000)

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What tells a file from what it was before. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

/* What a thread knows before it asks the core. If the core has no event, only something that differs can bring one. The
 * thread looks at it by itself, since a call into Go keeps Go's own threads awake for some 10 ms. */
struct known {
    uint32_t seen;    /* the number of the newest change in the state directory */
    uint32_t changes; /* that of the newest change that this process made by itself */
    uint32_t level;
    struct stamp file;
};

static struct known look(void)
{
    struct known k;
    memset(&k, 0, sizeof k); /* the padding too, for memcmp */
    k.seen = atomic_load(&nvmlfab_watch.seen);
    k.changes = atomic_load(&nvmlfab_watch.changes);
    k.level = atomic_load(&nvmlfab_front.level);
    const char *path = atomic_load(&nvmlfab_watch.file);
    struct stat st;
    if (path != NULL && host_stat(path, &st) == 0) {
        k.file.device = st.st_dev;
        k.file.inode = st.st_ino;
        k.file.size = st.st_size;
        k.file.changed = st.st_ctim;
    }
    return k;
}

/* Sleeps for as long as *word is value, for at most some time. Returns errno's value, 0 after a wake. */
static int sleep_on(const void *word, int operation, uint32_t value, int64_t most)
{
    const struct timespec limit = {.tv_sec = most / 1000000000, .tv_nsec = most % 1000000000};
    return syscall(SYS_futex, word, operation, value, &limit, NULL, 0) == 0 ? 0 : errno;
}

/* A thread sleeps on the number of the state directory's newest change, which a writer in any process raises. Where that
 * is not mapped, or not any more (EFAULT), it sleeps on the number of changes that this process makes. A change that
 * came after *k was taken ends the sleep at once. */
static int nap(const struct known *k, int64_t most)
{
    const uint32_t *word = atomic_load(&nvmlfab_watch.word);
    int error = EFAULT;
    if (word != NULL)
        error = sleep_on(word, FUTEX_WAIT, k->seen, most);
    if (error == EFAULT)
        error = sleep_on(&nvmlfab_watch.changes, FUTEX_WAIT_PRIVATE, k->changes, most);
    return error;
}

/* Sleeps until the core is worth asking again, which the result says, or until the end of the wait. *twice asks for a
 * second time even if nothing differs: when the file was replaced, the core may have looked so shortly before that it
 * does not look again now. A signal handler ends the wait, as nvml.h says, so that Ctrl-C works. */
static int sleep_until_news(struct known *k, int *twice, int64_t end)
{
    for (;;) {
        int64_t left = end - now();
        if (left <= 0)
            return 0;
        int64_t most = atomic_load(&nvmlfab_watch.file) != NULL || *twice ? NAP_NS : left;
        int error = nap(k, left < most ? left : most);
        if (error == EINTR)
            return 0;
        struct known fresh = look();
        int replaced = memcmp(&k->file, &fresh.file, sizeof fresh.file) != 0;
        int woken = error != ETIMEDOUT;
        int news = woken || replaced || *twice || fresh.changes != k->changes || fresh.level != k->level;
        *twice = replaced || (*twice && woken);
        *k = fresh;
        if (news)
            return 1;
    }
}

/* The core's first answer comes before *timeout is read, a 32-bit number of ms: it refuses a struct that has none. */
nvmlReturn_t nvmlfab_wait(uint32_t index, uint32_t since, const uint64_t *args, const void *timeout)
{
    int saved = errno, twice = 1;
    const int64_t began = now();
    struct known known = look();
    nvmlReturn_t answer = nvmlfab_gate(index, since, args);
    if (answer == NVML_ERROR_TIMEOUT) {
        uint32_t ms;
        memcpy(&ms, timeout, sizeof ms);
        const int64_t end = began + (int64_t)ms * 1000000;
        while (answer == NVML_ERROR_TIMEOUT && ms > 0 && sleep_until_news(&known, &twice, end))
            answer = nvmlfab_gate(index, since, args);
    }
    errno = saved;
    return answer;
}
