/* Replaces libcuda.so.1 in a test: it enumerates GPUs by calling the resource manager through its own import of
 * ioctl. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../uapi/nvrm.h"

/* Fills ids, of size bytes, with the answer to a command for a client. Returns the status, or -1 if a system call
 * failed. */
int enumerate(unsigned cmd, uint32_t *ids, unsigned size)
{
    struct nvos21 root = {.hClass = NV01_ROOT_CLIENT};
    struct nvos54 control = {.cmd = cmd, .params = (uintptr_t)ids, .paramsSize = size};
    int ctl = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC), ret = -1;

    if (ctl < 0)
        return -1;
    if (ioctl(ctl, _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_ALLOC, struct nvos21), &root) == 0 && root.status == 0) {
        control.hClient = control.hObject = root.hObjectNew;
        if (ioctl(ctl, _IOWR(NV_IOCTL_MAGIC, NV_ESC_RM_CONTROL, struct nvos54), &control) == 0)
            ret = (int)control.status;
    }
    close(ctl);
    return ret;
}
