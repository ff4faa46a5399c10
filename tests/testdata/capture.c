// A libnvidia-ml.so.1 that goes wrong, in the way that BAD says, and otherwise is the library that BAD_LIBRARY names. It has a
// handful of functions alone.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *what)
{
    const char *bad = getenv("BAD");
    return bad && strcmp(bad, what) == 0;
}

static void hang(void)
{
    for (;;)
        pause();
}

static void crash(void) { *(volatile int *)NULL = 0; }

static void *function(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(getenv("BAD_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

__attribute__((constructor)) static void load(void)
{
    if (is("hang at load"))
        hang();
}

int nvmlInit_v2(void)
{
    if (is("hang at start"))
        hang();
    if (is("crash at start"))
        crash();
    int (*real)(void) = (int (*)(void))function("nvmlInit_v2");
    return real ? real() : 999;
}

int nvmlShutdown(void) { return ((int (*)(void))function("nvmlShutdown"))(); }

int nvmlDeviceGetSerial(void *device, char *serial, unsigned int length)
{
    if (is("hang"))
        hang();
    if (is("crash"))
        crash();
    if (is("exit"))
        _exit(3);
    return ((int (*)(void *, char *, unsigned int))function("nvmlDeviceGetSerial"))(device, serial, length);
}

#define ONE(name)                                                                                                                   \
    int name(void *a) { return ((int (*)(void *))function(#name))(a); }
#define TWO(name)                                                                                                                   \
    int name(void *a, void *b) { return ((int (*)(void *, void *))function(#name))(a, b); }
#define THREE(name)                                                                                                                 \
    int name(void *a, void *b, void *c) { return ((int (*)(void *, void *, void *))function(#name))(a, b, c); }

ONE(nvmlDeviceGetCount_v2)
TWO(nvmlSystemGetDriverVersion)
TWO(nvmlDeviceGetHandleByIndex_v2)
TWO(nvmlDeviceGetPciInfo_v3)
TWO(nvmlDeviceGetMemoryInfo)
THREE(nvmlDeviceGetName)
THREE(nvmlDeviceGetUUID)
