// nvmlfab-call calls functions of a libnvidia-ml that it loads, for nvmlfab, which is a static program and cannot load one.
//
// It is a process of its own so that a library that crashes or hangs takes nothing else along. It knows no prototypes: who asks gives
// the argument words and the memory that they point to, and gets back the return value and that memory.
//
// All numbers are of 32 bits in the machine's order, unless something else is said. A question is its length in bytes and then
//
//     the length of the function's name, the name; or 0 and the number of an entry of the unnamed table
//     the number of words; for each its kind (0 a value, 1 a buffer) and 64 bits: the value, or the buffer's number
//     the number of buffers; for each its size, the number of bytes that are given, and these bytes; the rest is 0
//     the number of pointers in buffers; for each a buffer, a place in it, and the number of the buffer to point to
//
// An answer is its length and then a status (one of those below), the return value, and the content of each buffer. The first answer is
// given without a question. It has no return value, and text in place of buffers: the library's path, or why it cannot be loaded.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLED, MISSING, UNLOADABLE };
enum { WORDS = 12, BUFFERS = 16, LARGEST = 64 << 20, SPARE = 4096 };

// The unnamed table that nvidia-smi asks for: its first word is its size in bytes, the others are functions.
static const unsigned char table_id[16] = {
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
};

typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t);

static int answers;

static int readAll(void *to, size_t n)
{
    for (char *at = to; n > 0;) {
        ssize_t got = read(0, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        n -= (size_t)got;
    }
    return 1;
}

static void writeAll(const void *from, size_t n)
{
    for (const char *at = from; n > 0;) {
        ssize_t put = write(answers, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            _exit(1);
        at += put;
        n -= (size_t)put;
    }
}

static void say(uint32_t status, const char *text)
{
    uint32_t head[3] = {(uint32_t)(8 + strlen(text)), status, 0};
    writeAll(head, sizeof head);
    writeAll(text, strlen(text));
}

struct question {
    unsigned char *at, *end;
};

static uint32_t number(struct question *q)
{
    uint32_t n;
    if (q->end - q->at < 4)
        _exit(2);
    memcpy(&n, q->at, 4);
    q->at += 4;
    return n;
}

static unsigned char *bytes(struct question *q, size_t n)
{
    if ((size_t)(q->end - q->at) < n)
        _exit(2);
    q->at += n;
    return q->at - n;
}

static void *entry(void *library, uint32_t slot)
{
    int (*get)(const void **, const void *);
    const void *found = NULL;
    *(void **)&get = dlsym(library, "nvmlInternalGetExportTable");
    if (!get || get(&found, table_id) != 0 || !found)
        return NULL;
    void *const *table = found;
    return slot < (uintptr_t)table[0] / sizeof *table ? table[slot] : NULL;
}

static void answer(void *library, struct question q)
{
    uint64_t word[WORDS] = {0};
    uint32_t kind[WORDS] = {0};
    unsigned char *buffer[BUFFERS] = {NULL};
    uint32_t size[BUFFERS] = {0};
    char name[256];

    uint32_t length = number(&q);
    void *called;
    if (length >= sizeof name)
        _exit(2);
    if (length > 0) {
        memcpy(name, bytes(&q, length), length);
        name[length] = '\0';
        called = dlsym(library, name);
    } else {
        called = entry(library, number(&q));
    }
    if (!called) {
        say(MISSING, "");
        return;
    }
    uint32_t words = number(&q);
    if (words > WORDS)
        _exit(2);
    for (uint32_t i = 0; i < words; i++) {
        kind[i] = number(&q);
        memcpy(&word[i], bytes(&q, 8), 8);
    }
    uint32_t buffers = number(&q);
    if (buffers > BUFFERS)
        _exit(2);
    size_t total = 0;
    for (uint32_t i = 0; i < buffers; i++) {
        size[i] = number(&q);
        uint32_t given = number(&q);
        if (size[i] > LARGEST || given > size[i])
            _exit(2);
        // A library that is newer than the table may write more than it says.
        if (!(buffer[i] = calloc(1, (size_t)size[i] + SPARE)))
            _exit(3);
        memcpy(buffer[i], bytes(&q, given), given);
        total += size[i];
    }
    for (uint32_t i = 0; i < words; i++)
        if (kind[i] == 1) {
            if (word[i] >= buffers)
                _exit(2);
            word[i] = (uintptr_t)buffer[word[i]];
        }
    for (uint32_t n = number(&q); n > 0; n--) {
        uint32_t from = number(&q), place = number(&q), to = number(&q);
        if (from >= buffers || to >= buffers || size[from] < 8 || place > size[from] - 8)
            _exit(2);
        memcpy(buffer[from] + place, &buffer[to], sizeof buffer[to]);
    }
    function call;
    *(void **)&call = called;
    int32_t result = call(word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7], word[8], word[9], word[10],
                          word[11]);
    uint32_t head[3] = {(uint32_t)(8 + total), CALLED, (uint32_t)result};
    writeAll(head, sizeof head);
    for (uint32_t i = 0; i < buffers; i++) {
        writeAll(buffer[i], size[i]);
        free(buffer[i]);
    }
}

// A program that is linked with glibc 2.34 or later asks for that version of the function that starts it (the linker calls this one
// in its place). The oldest version runs main too, and is in every glibc.
#if defined __x86_64__
__asm__(".symver old_start, __libc_start_main@GLIBC_2.2.5");
#elif defined __aarch64__
__asm__(".symver old_start, __libc_start_main@GLIBC_2.17");
#endif
typedef int (*starts)(int, char **, char **);
int old_start(starts, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __wrap___libc_start_main(starts, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

int __wrap___libc_start_main(starts start, int argc, char **argv, void (*init)(void), void (*fini)(void), void (*loader)(void), void *stack)
{
    return old_start(start, argc, argv, init, fini, loader, stack);
}

int main(int argc, char **argv)
{
    // What the library prints on standard output must not come between the answers.
    if (argc != 2 || (answers = dup(1)) < 0 || dup2(2, 1) < 0) {
        fprintf(stderr, "nvmlfab-call is part of nvmlfab capture: usage: nvmlfab-call LIBRARY\n");
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    struct link_map *map = NULL;
    if (!library) {
        say(UNLOADABLE, dlerror());
        return 0;
    }
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    say(CALLED, map && map->l_name ? map->l_name : argv[1]);
    for (uint32_t length; readAll(&length, sizeof length);) {
        if (length > LARGEST)
            return 2;
        unsigned char *text = malloc(length ? length : 1);
        if (!text)
            return 3;
        if (!readAll(text, length))
            return 0;
        answer(library, (struct question){text, text + length});
        free(text);
    }
    return 0;
}
