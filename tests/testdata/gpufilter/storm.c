/* storm FILTER LIBRARY OTHER: during the storm OTHER is loaded and unloaded, and the filter is installed each time. */
#define _GNU_SOURCE
#include "storm.h"

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *filter = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *symbol = filter != NULL ? dlsym(filter, "nvgpufilter_install") : NULL;
    int (*install)(void);
    memcpy(&install, &symbol, sizeof install);
    storm_load(argv[2]);
    if (install == NULL || storm_ask == NULL || install() != 0)
        return 3;
    storm_start();
    int installed = 0;
    while (!storm_over()) {
        void *other = dlopen(argv[3], RTLD_LAZY | RTLD_LOCAL);
        if (other == NULL || install() != 0)
            return 4;
        dlclose(other);
        installed++;
        usleep(1000);
    }
    printf("%d wrong\n", storm_result());
    fprintf(stderr, "installed %d times\n", installed);
    return 0;
}
