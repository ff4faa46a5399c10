/* Prints how many times as much eight threads do in the same time as one: first of asking the library argv[1] with every getter about
 * each GPU, then of computing, which is what the machine itself can gain. The two take turns, since the machine may have other work. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The roles of arguments are the generator's. */
enum role { HANDLE, VALUE, TEXT, OUT, IN, BUFFER, FIXED, SIZED, BYTES, LIST, ALSO, SLICE, STRUCT, CONST, VERSIONED, RAW };

struct arg {
    enum role role;
    int at, size_at; /* positions; size_at is -1 without a length */
    size_t bytes;    /* that the pointer points to, or of one element */
    uint32_t version;
};

struct getter {
    const char *name;
    int nargs;
    struct arg args[6];
};

#include "getters.h"

enum { NGETTERS = sizeof getters / sizeof getters[0], GPUS = 64, READERS = 8, ROUNDS = 6, TURNS = 6, ELEMENTS = 16, ROOM = 1 << 21 };

typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static function functions[NGETTERS];
static uint64_t gpus[GPUS];
static char answers[GPUS][NGETTERS]; /* of a single thread */

static void die(const char *what)
{
    fprintf(stderr, "readers: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t address(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ask calls a getter with memory from the room of its thread. */
static int ask(const struct getter *g, function f, uint64_t gpu, char *room)
{
    uint64_t word[8] = { 0 };
    char *next = room;
    for (int i = 0; i < g->nargs; i++) {
        const struct arg *a = &g->args[i];
        uint32_t n = ELEMENTS;
        size_t size = a->bytes;
        switch (a->role) {
        case HANDLE:
            word[a->at] = gpu;
            continue;
        case VALUE:
            continue;
        case BUFFER:
        case SIZED:
        case BYTES:
            size = n = 4096;
            break;
        case LIST:
        case ALSO:
        case SLICE:
            size *= ELEMENTS;
            break;
        default:
            memset(next, 0, size);
            memcpy(next, &a->version, a->version == 0 ? 0 : sizeof a->version);
        }
        if (a->role == SLICE)
            for (uint32_t k = 0; k < ELEMENTS && a->bytes >= sizeof k; k++)
                memcpy(next + k * a->bytes, &(uint32_t){ k + 1 }, sizeof k); /* these may be numbers of fields */
        word[a->at] = address(next);
        next += (size + 63) / 64 * 64;
        if (a->role == BUFFER || a->role == SLICE) {
            word[a->size_at] = n;
        } else if (a->size_at >= 0) {
            memcpy(next, &n, sizeof n);
            word[a->size_at] = address(next);
            next += 64;
        }
    }
    if (next > room + ROOM)
        die("not enough room");
    return f(word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]);
}

static void *reads(void *at)
{
    char *room = calloc(1, ROOM);
    if (room == NULL)
        die("no memory");
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < GPUS; i++) {
            int gpu = (i + *(int *)at * GPUS / READERS) % GPUS; /* each begins with another */
            for (int k = 0; k < NGETTERS; k++)
                if (ask(&getters[k], functions[k], gpus[gpu], room) != answers[gpu][k])
                    die(getters[k].name);
        }
    free(room);
    return NULL;
}

static void *computes(void *unused)
{
    (void)unused;
    volatile uint64_t x = 1;
    for (int i = 0; i < 30000000; i++)
        x = x * 6364136223846793005u + 1;
    return NULL;
}

static double seconds(void *(*work)(void *), int n)
{
    static int number[READERS];
    pthread_t t[READERS];
    double start = now();
    for (int i = 0; i < n; i++) {
        number[i] = i;
        if (pthread_create(&t[i], NULL, work, &number[i]) != 0)
            die("pthread_create");
    }
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    return now() - start;
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        die(name);
    return symbol;
}

int main(int argc, char **argv)
{
    int (*init)(void), (*shutdown)(void), (*by_index)(unsigned, uint64_t *);
    if (argc != 2)
        die("usage: readers LIBRARY");
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL)
        die(dlerror());
    *(void **)&init = find(library, "nvmlInit_v2");
    *(void **)&shutdown = find(library, "nvmlShutdown");
    *(void **)&by_index = find(library, "nvmlDeviceGetHandleByIndex_v2");
    for (int k = 0; k < NGETTERS; k++)
        *(void **)&functions[k] = find(library, getters[k].name);
    if (init() != 0)
        die("init");
    char *room = calloc(1, ROOM);
    int answered = 0;
    for (int i = 0; i < GPUS; i++) {
        if (room == NULL || by_index((unsigned)i, &gpus[i]) != 0)
            die("no such GPU");
        for (int k = 0; k < NGETTERS; k++) {
            answers[i][k] = (char)ask(&getters[k], functions[k], gpus[i], room);
            answered += answers[i][k] == 0;
        }
    }
    free(room);
    if (answered < GPUS * NGETTERS / 4)
        die("most getters refuse");
    double asking[2] = { 0 }, computing[2] = { 0 };
    for (int turn = 0; turn < TURNS; turn++)
        for (int many = 0; many < 2; many++) {
            asking[many] += seconds(reads, many ? READERS : 1);
            computing[many] += seconds(computes, many ? READERS : 1);
        }
    printf("%.3f %.3f\n", READERS * asking[0] / asking[1], READERS * computing[0] / computing[1]);
    return shutdown();
}
