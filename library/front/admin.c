/* Who may administer GPUs: threads with the effective uid 0 or with CAP_SYS_ADMIN in effect, as in NVIDIA's driver.
 * The kernel is asked at each call that is for administrators only, since a thread may drop its rights at any time.
 * These are raw system calls, so that libraries that pretend to be root (fakeroot) have no effect on them. */
#define _GNU_SOURCE
#include "front.h"

#include "host.h"

#include <linux/capability.h>
#include <stdlib.h>
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

/* Says once how an ordinary user becomes an administrator, where there is a way: in nvmlfab run. */
nvmlReturn_t nvmlfab_refuse(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *run = secure_getenv("NVMLFAB_RUN");
    if (run != NULL && run[0] != '\0' && !nvmlfab_admin() && !atomic_flag_test_and_set(&said))
        host_complain("only root may do that: nvmlfab run --as-root lets an ordinary user be root in the program");
    return NVML_ERROR_NO_PERMISSION;
}
