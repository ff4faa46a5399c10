/* paths BDF LINK reads the vendor of a PCI device in every way to name a file, and prints a line for each way: its
 * name, and what it found. LINK is a symbolic link to /sys. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <wordexp.h>

static const char *bdf;
static char dir[PATH_MAX], file[PATH_MAX];

static void say(const char *way, const char *what) { printf("%s: %s\n", way, what); }

/* Prints what can be read from a descriptor, up to the end of the line. */
static void say_fd(const char *way, int fd)
{
    char text[64] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0) {
        say(way, strerror(errno));
    } else {
        text[strcspn(text, "\n")] = 0;
        say(way, text);
    }
    if (fd > 2)
        close(fd);
}

/* Prints whether a call found the file; any other error counts as found. */
static void say_found(const char *way, long result)
{
    say(way, result >= 0 || (errno != ENOENT && errno != ENOTDIR) ? "found" : strerror(errno));
}

static void say_path(const char *way, const char *path) { say(way, path == NULL ? strerror(errno) : strstr(path, bdf) ? "found" : path); }

static int only_mine(const struct dirent *e) { return strcmp(e->d_name, bdf) == 0; }

static int seen;
static int visit(const char *path, const struct stat *st, int type) { (void)st, (void)type; seen |= strstr(path, bdf) != NULL; return 0; }
static int visit_more(const char *path, const struct stat *st, int type, struct FTW *at) { (void)at; return visit(path, st, type); }

static void say_spawn(const char *way, int action)
{
    int ends[2];
    if (pipe(ends) != 0)
        return say(way, strerror(errno));
    pid_t pid;
    char *const argv[] = {"cat", action ? NULL : file, NULL};
    char *const env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    if (action)
        posix_spawn_file_actions_addopen(&actions, 0, file, O_RDONLY, 0);
    int err = posix_spawn(&pid, "/bin/cat", &actions, NULL, argv, env);
    close(ends[1]);
    if (err != 0)
        return say(way, strerror(err));
    say_fd(way, ends[0]);
    waitpid(pid, NULL, 0);
}

static void say_uring(const char *way)
{
    struct io_uring_params p = {0};
    int ring = syscall(SYS_io_uring_setup, 2, &p);
    if (ring < 0)
        return say(way, errno == ENOSYS || errno == EPERM ? "0x10de" : strerror(errno)); /* the call does not exist here */
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *e = mmap(NULL, p.sq_entries * sizeof *e, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    memset(e, 0, sizeof *e);
    e->opcode = IORING_OP_OPENAT;
    e->fd = AT_FDCWD;
    e->addr = (unsigned long)file;
    e->open_flags = O_RDONLY;
    ((unsigned *)(sq + p.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        return say(way, strerror(errno));
    int fd = ((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res;
    errno = -fd;
    say_fd(way, fd);
}

static int in(const char *where, const char *path)
{
    return chdir(where) == 0 ? open(path, O_RDONLY) : -1;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    bdf = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(dir, sizeof dir, "/sys/bus/pci/devices/%s", bdf);
    snprintf(file, sizeof file, "/sys/bus/pci/devices/%s/vendor", bdf);
    const char *relative = file + 1;
    char text[PATH_MAX * 2];
    struct stat st;

    say_fd("open", open(file, O_RDONLY));
    volatile int flags = O_RDONLY; /* not a constant, so that the fortified functions are used */
    say_fd("fortified open", open(file, flags));
    say_fd("fortified openat", openat(AT_FDCWD, file, flags));
    volatile size_t size = sizeof text;
    ssize_t n = readlink(dir, text, size);
    text[n < 0 ? 0 : n] = 0;
    say_path("fortified readlink", n < 0 ? NULL : text);

    say_fd("openat /", openat(open("/", O_RDONLY | O_DIRECTORY), relative, O_RDONLY));
    say_fd("openat / by O_PATH", openat(open("/", O_PATH), relative, O_RDONLY));
    say_fd("openat /sys by O_PATH", openat(open("/sys", O_PATH), relative + 4, O_RDONLY));
    say_found("fstatat /", fstatat(open("/", O_PATH), relative, &st, 0));
    say_fd("cwd /", in("/", relative));
    say_fd("cwd /sys", in("/sys", relative + 4));
    say_fd("cwd in the tree", in("/sys/bus/pci/devices", file + strlen("/sys/bus/pci/devices/")));
    say_fd("cwd of the device", in(dir, "vendor"));
    if (chdir("/") != 0)
        return 1;

    FILE *f = fopen("/dev/null", "r");
    f = freopen(file, "r", f);
    say_fd("freopen", f == NULL ? -1 : fileno(f));
    say_found("eaccess", eaccess(file, R_OK));
    say_found("euidaccess", euidaccess(file, R_OK));

    struct dirent **list;
    say("scandir", scandir("/sys/bus/pci/devices", &list, only_mine, alphasort) == 1 ? "found" : "missed");
    say("scandirat", scandirat(open("/sys", O_PATH), "bus/pci/devices", &list, only_mine, alphasort) == 1 ? "found" : "missed");
    glob_t g;
    snprintf(text, sizeof text, "/sys/bus/pci/devices/%.7s*/vend?r", bdf);
    say_path("glob", glob(text, 0, NULL, &g) == 0 ? g.gl_pathv[0] : "missed");
    wordexp_t w;
    say_path("wordexp", wordexp(text, &w, 0) == 0 ? w.we_wordv[0] : "missed");
    seen = 0;
    ftw("/sys/bus/pci/devices", visit, 8);
    say("ftw", seen ? "found" : "missed");
    seen = 0;
    nftw("/sys/bus/pci/devices", visit_more, 8, FTW_PHYS);
    say("nftw", seen ? "found" : "missed");
    char *const roots[] = {"/sys/bus/pci/devices", NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    seen = 0;
    for (FTSENT *e; (e = fts_read(fts)) != NULL;)
        seen |= strcmp(e->fts_name, bdf) == 0;
    say("fts", seen ? "found" : "missed");
    say_path("realpath", realpath(dir, NULL));
    say_path("canonicalize_file_name", canonicalize_file_name(dir));

    say_found("getxattr", getxattr(file, "user.none", text, sizeof text));
    say_found("lgetxattr", lgetxattr(dir, "user.none", text, sizeof text));
    say_found("listxattr", listxattr(file, text, sizeof text));
    struct statfs fs;
    say_found("statfs", statfs(file, &fs));
    say_found("pathconf", pathconf(file, _PC_NAME_MAX));
    say_found("utimensat", utimensat(AT_FDCWD, file, NULL, 0));
    say_found("chmod", chmod(file, 0444));
    say_found("inotify", inotify_add_watch(inotify_init(), dir, IN_OPEN));
    struct {
        struct file_handle head;
        char bytes[128];
    } handle = {.head = {.handle_bytes = 128}};
    int mount;
    say_found("name_to_handle_at", name_to_handle_at(AT_FDCWD, file, &handle.head, &mount, 0));
    say_spawn("posix_spawn addopen", 1);
    say_spawn("child without environment", 0);

    const char *const spellings[] = {"//sys/bus/pci", "/sys//bus///pci", "/sys/./bus/pci", "/sys/bus/../bus/pci",
        "/proc/self/root/sys/bus/pci", "/sys/class/../bus/pci"};
    for (unsigned i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        snprintf(text, sizeof text, "%s/devices/%s/vendor", spellings[i], bdf);
        say_fd(spellings[i], open(text, O_RDONLY));
    }
    snprintf(text, sizeof text, "%s/bus/pci/devices/%s/vendor", argv[2], bdf);
    say_fd("a user's link", open(text, O_RDONLY));
    snprintf(text, sizeof text, "/sys/bus/pci/devices/%s", bdf);
    memset(text + strlen(text), 'x', sizeof text - strlen(text) - 1);
    text[sizeof text - 1] = 0;
    say("a path that is too long", open(text, O_RDONLY) < 0 && errno == ENAMETOOLONG ? "found" : "opened");

    say_fd("raw open", syscall(SYS_openat, AT_FDCWD, file, O_RDONLY));
    struct open_how how = {.flags = O_RDONLY};
    say_fd("openat2", syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how));
    say_uring("io_uring");
    return 0;
}
