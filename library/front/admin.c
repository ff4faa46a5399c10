/* Who may administer GPUs: threads with the effective uid 0 or with CAP_SYS_ADMIN in effect, as in NVIDIA's driver.
 * The kernel is asked at each call that is for administrators only, since a thread may drop its rights at any time.
 * These are raw system calls, so that libraries that pretend to be root (fakeroot) have no effect on them. */
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
