/* A libcuda.so.1 for staged driver folders, since container tooling expects one next to libnvidia-ml. It answers
 * that there is no device, as NVIDIA's does on a machine without a GPU. */

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, NOT_FOUND = 500 };

API int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

API int cuDriverGetVersion(int *version)
{
    if (!version)
        return INVALID_VALUE;
    *version = 0;
    return SUCCESS;
}

API int cuDeviceGetCount(int *count)
{
    if (count)
        *count = 0;
    return NO_DEVICE;
}

API int cuGetErrorString(int error, const char **text)
{
    if (!text)
        return INVALID_VALUE;
    *text = error == SUCCESS ? "no error" : error == NO_DEVICE ? "no CUDA-capable device is detected" : "unknown error";
    return SUCCESS;
}

API int cuGetErrorName(int error, const char **name)
{
    if (!name)
        return INVALID_VALUE;
    *name = error == SUCCESS ? "CUDA_SUCCESS" : error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}

API int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags)
{
    (void)name, (void)version, (void)flags;
    if (function)
        *function = 0;
    return NOT_FOUND;
}
