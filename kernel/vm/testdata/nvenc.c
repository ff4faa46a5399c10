/* nvenc LIBCUDA FILTER: prints the GPUs that a library enumerates, and once more with the filter installed. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../uapi/nvrm.h"

static int (*enumerate)(unsigned cmd, uint32_t *ids, unsigned size);

static void print(const char *what, unsigned cmd, unsigned size)
{
    uint32_t ids[3 * NV_GPU_IDS];
    int status = enumerate(cmd, ids, size);

    printf("%s status %d:", what, status);
    for (unsigned i = 0; status == 0 && i < NV_GPU_IDS && ids[i] != NV_GPU_ID_INVALID; i++)
        printf(" %x", ids[i]);
    printf("\n");
}

static void all(void)
{
    print("attached", NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, 128);
    print("probed", NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, 256);
    print("probed with flags", NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, 384);
}

static void *find(void *library, const char *name)
{
    void *symbol = library == NULL ? NULL : dlsym(library, name);

    if (symbol == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return symbol;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    enumerate = (int (*)(unsigned, uint32_t *, unsigned))(uintptr_t)find(dlopen(argv[1], RTLD_NOW), "enumerate");
    all();
    printf("install %d\n", ((int (*)(void))(uintptr_t)find(dlopen(argv[2], RTLD_NOW), "nvgpufilter_install"))());
    all();
    return 0;
}
