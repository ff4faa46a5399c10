/* real VERSION emulated|kernel FILTER LIBCUDA LIBNVCUVID LIBNVIDIA-ENCODE loads NVIDIA's libraries of a driver,
 * installs the filter, and tries to use them. Its ioctl prints the calls. With "emulated" it also answers them as a
 * resource manager with four GPUs would, as far as libcuda needs that to look for GPUs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *version;
static int emulated;

/* NVOS54_PARAMETERS */
struct control {
    uint32_t hClient, hObject, cmd, flags;
    uint32_t *params;
    uint32_t paramsSize, status;
};

/* Only the first members of the answers matter; everything else may be zero. */
static void answer(struct control *c)
{
    static const uint32_t ids[] = {0x100, 0x200, 0x10100, 0x300};
    c->status = 0;
    switch (c->cmd) {
    case 0x101: { /* GET_BUILD_VERSION: size of the buffers, and three of them */
        char *buffer[3];
        memcpy(buffer, c->params + 2, sizeof buffer);
        for (int i = 0; i < 3; i++)
            if (buffer[i] != NULL)
                snprintf(buffer[i], c->params[0], "%s", version);
        break;
    }
    case 0x201: /* GET_ATTACHED_IDS, GET_PROBED_IDS */
    case 0x214:
        memset(c->params, 0xff, c->paramsSize);
        memcpy(c->params, ids, sizeof ids);
        break;
    case 0x202: /* GET_ID_INFO, GET_ID_INFO_V2, ATTACH_IDS, DETACH_IDS: of which GPU */
    case 0x205:
    case 0x215:
    case 0x216:
        printf("asks about %x\n", c->params[0]);
    }
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *arg = va_arg(args, void *);
    va_end(args);
    struct stat st;
    int control = (request & 0xffff) == 0x462a;
    printf("ioctl %s %lx", fd < 0 ? "-1" : "of a descriptor", request);
    if (control)
        printf(" cmd %x", ((struct control *)arg)->cmd);
    printf("\n");
    if (!emulated || fd < 0 || fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode))
        return (int)syscall(SYS_ioctl, fd, request, arg);

    uint32_t *words = arg;
    switch (request & 0xffff) {
    case 0x462a:
        answer(arg);
        break;
    case 0x462b: /* alloc: NVOS21 or NVOS64 */
        if (words[2] == 0)
            words[2] = 0xcaf00000 + words[3];
        words[(request >> 16 & 0x3fff) == 48 ? 10 : 7] = 0;
        break;
    case 0x46d2: /* CHECK_VERSION_STR: recognised */
        words[1] = 1;
        break;
    case 0x46d6: /* SYS_PARAMS */
        *(uint64_t *)arg = 0x8000000;
        break;
    case 0x0001: /* UVM_INITIALIZE */
        words[2] = 0;
        break;
    }
    return 0;
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        printf("no %s\n", name);
        exit(1);
    }
    return symbol;
}

#define CALL(library, name, type, ...) printf(#name " %d\n", ((int (*) type)(uintptr_t)find(library, #name))(__VA_ARGS__))

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 7)
        return 2;
    version = argv[1];
    emulated = strcmp(argv[2], "emulated") == 0;
    void *library[4];
    for (int i = 0; i < 4; i++) {
        library[i] = dlopen(argv[3 + i], RTLD_LAZY | RTLD_GLOBAL);
        if (library[i] == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
    }
    CALL(library[0], nvgpufilter_install, (void));
    void *(*bound)(const char *, const char *) = (void *(*)(const char *, const char *))(uintptr_t)find(library[0], "nvgpufilter_bound_import");

    static uint64_t buffer[4096], handle;
    int count = -1;
    CALL(library[1], cuInit, (unsigned), 0);
    CALL(library[1], cuDeviceGetCount, (int *), &count);
    printf("count %d\n", count);
    CALL(library[2], cuvidGetDecoderCaps, (void *), buffer);
    CALL(library[2], cuvidCreateDecoder, (void *, void *), &handle, buffer);
    CALL(library[3], NvEncodeAPIGetMaxSupportedVersion, (void *), &handle);
    printf("version %x\n", (unsigned)handle);
    buffer[0] = 0x7002000c; /* a list of functions, with an unknown version */
    CALL(library[3], NvEncodeAPICreateInstance, (void *), buffer);

    /* The calls that the libraries would make. */
    for (int i = 4; emulated && i < 7; i++) {
        const char *name = strrchr(argv[i], '/') + 1;
        void *import = bound(name, "ioctl");
        if (import == NULL) {
            printf("%s imports no ioctl\n", name);
            continue;
        }
        uint32_t ids[64];
        struct control c = {.cmd = 0x214, .params = ids, .paramsSize = sizeof ids};
        int fd = open("/dev/nvidiactl", O_RDWR);
        ((int (*)(int, unsigned long, ...))(uintptr_t)import)(fd, 0xC020462A, &c);
        close(fd);
        printf("%s sees", name);
        for (int j = 0; j < 32 && ids[j] != 0xffffffff; j++)
            printf(" %x", ids[j]);
        printf("\n");
    }
    return 0;
}
