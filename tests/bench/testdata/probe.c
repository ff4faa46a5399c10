/* Loads the library argv[1] and measures what argv[2] asks for; prints one number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

static nvmlReturn_t (*init)(void), (*shutdown)(void), (*count)(unsigned int *);
static nvmlReturn_t (*by_index)(unsigned int, nvmlDevice_t *);
static nvmlReturn_t (*temperature)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *);
static nvmlReturn_t (*stub)(nvmlDevice_t, nvmlBridgeChipHierarchy_t *);

static nvmlDevice_t device;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "probe: %s\n", what);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        die(name);
    return symbol;
}

enum { CALLS = 300000 };

static void *getters(void *unused)
{
    unsigned int value = 0;
    for (int i = 0; i < CALLS; i++)
        if (temperature(device, NVML_TEMPERATURE_GPU, &value) != NVML_SUCCESS || value == 0)
            die("temperature");
    return unused;
}

static double stubs(void)
{
    enum { MANY = 20000000 };
    double start = now();
    for (int i = 0; i < MANY; i++)
        if (stub(device, NULL) != NVML_ERROR_NOT_SUPPORTED)
            die("nvmlDeviceGetBridgeChipInfo is not a stub any more: measure another one here and in the floors");
    return (now() - start) / MANY;
}

/* The time per call and thread, so that waiting shows if there are more threads than processors. */
static double threads(int n)
{
    pthread_t t[16];
    double start = now();
    for (int i = 0; i < n; i++)
        if (pthread_create(&t[i], NULL, getters, NULL) != 0)
            die("pthread_create");
    for (int i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    return (now() - start) / CALLS;
}

static double resident(void)
{
    long pages = 0, size = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &size, &pages) != 2)
        die("/proc/self/statm");
    fclose(f);
    return (double)pages * 4;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: probe LIBRARY process|init|stub|getter1|getter4|rss");
    void *library = dlopen(argv[1], RTLD_NOW);
    if (library == NULL)
        die(dlerror());
    *(void **)&init = find(library, "nvmlInit_v2");
    *(void **)&shutdown = find(library, "nvmlShutdown");
    *(void **)&count = find(library, "nvmlDeviceGetCount_v2");
    *(void **)&by_index = find(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&temperature = find(library, "nvmlDeviceGetTemperature");
    *(void **)&stub = find(library, "nvmlDeviceGetBridgeChipInfo");
    unsigned int n = 0;
    double before = now();
    nvmlReturn_t begun = init();
    double took = now() - before;
    if (begun != NVML_SUCCESS || count(&n) != NVML_SUCCESS || n == 0 || by_index(0, &device) != NVML_SUCCESS)
        die("init");
    double result = strcmp(argv[2], "init") == 0 ? took : 0;
    if (strcmp(argv[2], "stub") == 0)
        result = stubs();
    else if (strcmp(argv[2], "getter1") == 0)
        result = threads(1);
    else if (strcmp(argv[2], "getter4") == 0)
        result = threads(4);
    else if (strcmp(argv[2], "rss") == 0)
        result = resident();
    if (shutdown() != NVML_SUCCESS)
        die("shutdown");
    printf("%.3f\n", result);
    return 0;
}
