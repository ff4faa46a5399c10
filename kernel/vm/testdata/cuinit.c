/* cuinit LIBCUDA: calls cuInit of NVIDIA's libcuda and prints the result. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL, *symbol;
    int count = -1;

    if (library == NULL) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: cuinit LIBCUDA");
        return 2;
    }
    symbol = dlsym(library, "cuInit");
    printf("cuInit %d\n", ((int (*)(unsigned))(uintptr_t)symbol)(0));
    symbol = dlsym(library, "cuDeviceGetCount");
    printf("cuDeviceGetCount %d", ((int (*)(int *))(uintptr_t)symbol)(&count));
    printf(" %d\n", count);
    return 0;
}
