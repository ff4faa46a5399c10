/* nvmlfab-enter PROGRAM ARGV... enters a user namespace in which the caller is who it was, and becomes PROGRAM with the
 * arguments ARGV, able to mount.
 *
 * nvmlfab cannot do that itself: a process with several threads cannot enter a user namespace, and a Go program has several
 * before its first line. Where it fails nvmlfab notices, so nothing is said here. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

static void enter(void)
{
    char uid[64], gid[64];
    snprintf(uid, sizeof uid, "%u %u 1", geteuid(), geteuid());
    snprintf(gid, sizeof gid, "%u %u 1", getegid(), getegid());
    if (unshare(CLONE_NEWUSER) != 0)
        return;
    put("/proc/self/setgroups", "deny"); /* the kernel's condition for the next but one; old kernels have no such file */
    if (put("/proc/self/uid_map", uid) != 0 || put("/proc/self/gid_map", gid) != 0)
        return;

    /* The right to mount, kept beyond execve, which would take it from an ordinary user. */
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        return;
    data[0].inheritable |= 1u << CAP_SYS_ADMIN;
    if (syscall(SYS_capset, &header, data) == 0)
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 125;
    enter();
    execv(argv[1], argv + 2);
    perror("nvmlfab: nvmlfab-enter");
    return 125;
}
