/* Replaces a library of NVIDIA's: it calls the resource manager, and another function too. */
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct control {
    uint32_t hClient, hObject, cmd, flags;
    void *params;
    uint32_t paramsSize, status;
};

int ask(int fd, unsigned long request, struct control *control)
{
    if (getppid() < 0)
        return -1;
    return ioctl(fd, request, control);
}

#ifdef ADDRESS
/* Takes the address of ioctl in addition to calling it. */
typedef int ioctl_fn(int, unsigned long, ...);
int ask_by_address(int fd, unsigned long request, struct control *control)
{
    ioctl_fn *volatile call = ioctl;
    return call(fd, request, control);
}
#endif
