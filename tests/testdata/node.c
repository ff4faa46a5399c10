/* Watches or changes a node for the tests of its state.
 *   node read GPU                 the power limit and the temperature, once
 *   node calls GPU SECONDS        calls for so long, and says how often
 *   node set GPU MILLIWATTS       sets the power limit, and says what NVML answers
 *   node words GPU                reads a line from its input, reads the GPU, and so on until the input ends */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvml.h"

static nvmlDevice_t device;

static unsigned temperature(void)
{
    unsigned c = 0;
    nvmlReturn_t ret = nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &c);
    if (ret != NVML_SUCCESS) {
        printf("temperature: %s\n", nvmlErrorString(ret));
        exit(1);
    }
    return c;
}

static void show(void)
{
    unsigned limit = 0;
    nvmlReturn_t ret = nvmlDeviceGetPowerManagementLimit(device, &limit);
    if (ret != NVML_SUCCESS) {
        printf("limit: %s\n", nvmlErrorString(ret));
        exit(1);
    }
    printf("%u mW %u C\n", limit, temperature());
    fflush(stdout);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    nvmlReturn_t ret = nvmlInit_v2();
    if (ret == NVML_SUCCESS)
        ret = nvmlDeviceGetHandleByIndex_v2((unsigned)atoi(argv[2]), &device);
    if (ret != NVML_SUCCESS) {
        printf("start: %s\n", nvmlErrorString(ret));
        return 1;
    }
    unsigned long calls = 0;
    if (strcmp(argv[1], "read") == 0) {
        show();
    } else if (strcmp(argv[1], "calls") == 0) {
        for (double end = now() + atof(argv[3]); now() < end; calls++)
            temperature();
        printf("%lu\n", calls);
    } else if (strcmp(argv[1], "set") == 0) {
        printf("%s\n", nvmlErrorString(nvmlDeviceSetPowerManagementLimit(device, (unsigned)atoi(argv[3]))));
    } else if (strcmp(argv[1], "words") == 0) {
        char line[64];
        show();
        while (fgets(line, sizeof line, stdin) != NULL)
            show();
    }
    return nvmlShutdown() == NVML_SUCCESS ? 0 : 1;
}
