/* nvmlfab-enter [--as-root] PROGRAM ARGV... enters a user namespace in which the caller keeps its user and group and may mount,
 * and then executes PROGRAM with the arguments ARGV.
 *
 * nvmlfab cannot do that itself: a process with several threads cannot enter a user namespace, and a Go program has
 * several threads from the start. If it fails, this program prints nothing, since nvmlfab then cannot mount and
 * reports that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel accepts at most 340 lines and a page of text. */
enum { MAP = 4096 };

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* everyone writes to text a map of every user or group that this process knows to itself. It returns their number. */
static unsigned long everyone(const char *path, char text[MAP])
{
    unsigned long inside, outside, count, all = 0;
    size_t used = 0;
    FILE *f = fopen(path, "re");
    while (f && used < MAP && fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3) {
        used += (size_t)snprintf(text + used, MAP - used, "%lu %lu %lu\n", inside, inside, count);
        all += count;
    }
    if (f)
        fclose(f);
    return used < MAP ? all : 0;
}

/* writer is a process that stays in the old namespace, since only from there more than one user can be mapped. When
 * something is written to go, it writes the maps of its parent. Its exit status says which maps it could write. */
enum { USERS = 1, GROUPS = 2 };

static pid_t writer(const int go[2], const char *users, const char *groups)
{
    char path[64], byte;
    pid_t parent = getpid(), child = fork();
    if (child != 0)
        return child;
    close(go[1]);
    if (read(go[0], &byte, 1) != 1)
        _exit(0);
    int done = 0;
    snprintf(path, sizeof path, "/proc/%d/uid_map", parent);
    if (put(path, users) == 0)
        done |= USERS;
    snprintf(path, sizeof path, "/proc/%d/gid_map", parent);
    if (put(path, groups) == 0)
        done |= GROUPS;
    _exit(done);
}

/* may reports whether this process has a capability. */
static int may(int capability)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    return syscall(SYS_capget, &header, data) == 0 && data[0].effective & 1u << capability;
}

/* enter_namespace maps all users and groups if the caller may do that, and otherwise the caller alone. */
static int enter_namespace(int as_root)
{
    static char users[MAP], groups[MAP];
    char own_user[64], own_group[64];
    int go[2] = {-1, -1}, done = 0, status = 0;
    uid_t user = geteuid();
    snprintf(own_user, sizeof own_user, "%u %u 1", as_root ? 0 : user, user);
    snprintf(own_group, sizeof own_group, "%u %u 1", as_root ? 0 : getegid(), getegid());
    unsigned long user_count = everyone("/proc/self/uid_map", users), group_count = everyone("/proc/self/gid_map", groups);
    int several = !as_root && (user_count > 1 || group_count > 1);
    pid_t child = -1;
    if (several && (may(CAP_SETUID) || may(CAP_SETGID)) && pipe2(go, O_CLOEXEC) == 0)
        child = writer(go, users, groups);
    int failed = unshare(CLONE_NEWUSER);
    if (go[1] >= 0) {
        if (!failed && write(go[1], "", 1) != 1)
            failed = -1;
        close(go[0]);
        close(go[1]);
    }
    if (child > 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        done = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    if (failed)
        return -1;
    if (!(done & USERS) && put("/proc/self/uid_map", own_user) != 0)
        return -1;
    if (!(done & GROUPS)) {
        put("/proc/self/setgroups", "deny"); /* the kernel demands it; old kernels lack the file */
        if (put("/proc/self/gid_map", own_group) != 0)
            return -1;
    }
    if (user == 0 && several && done != (USERS | GROUPS))
        dprintf(2, "nvmlfab: root lacks the right to map all users and groups (CAP_SETUID, CAP_SETGID): in the program, chown "
                   "and su to others fail\n");
    return 0;
}

static void enter(int as_root)
{
    if (enter_namespace(as_root) != 0)
        return;
    /* Keeps the right to mount beyond execve, which would otherwise remove it from an ordinary user. */
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
    int as_root = argc > 1 && strcmp(argv[1], "--as-root") == 0;
    argc -= as_root;
    argv += as_root;
    if (argc < 3)
        return 125;
    enter(as_root);
    execv(argv[1], argv + 2);
    perror("nvmlfab: nvmlfab-enter");
    return 125;
}
