/* Who may administer GPUs: the effective uid 0, and threads with CAP_SYS_ADMIN in effect, which NVIDIA's driver asks for.
 * The kernel is asked at each call that is for administrators alone, since a thread may give its rights up at any time. Raw
 * system calls keep the libraries out of it that pretend to be root. */
#define _GNU_SOURCE
#include "front.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

int nvmlfab_admin(void)
{
    int saved = errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};
    int admin = syscall(SYS_geteuid) == 0;
    if (!admin && syscall(SYS_capget, &header, sets) == 0)
        admin = (sets[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
    errno = saved;
    return admin;
}
