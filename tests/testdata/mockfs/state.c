// state CASE FILE checks what the library keeps, or leaves alone, in a process. FILE is a staged file that reads 0x10de.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const char *file;

static bool readable(void) {
  char text[8] = "";
  int fd = open(file, O_RDONLY);
  bool same = fd >= 0 && read(fd, text, 6) == 6 && !strcmp(text, "0x10de");
  if (fd >= 0) close(fd);
  return same;
}

// The root was relative to where the process started, and nobody can take it back.
static void root(void) {
  CHECK(chdir("/") == 0);
  CHECK(readable());
  setenv("MOCK_PCI_ROOT", "/nonexistent", 1);
  CHECK(readable());
  unsetenv("MOCK_PCI_ROOT");
  CHECK(readable());
}

// Children start elsewhere and have the same root.
static void child(void) {
  CHECK(getenv("MOCK_PCI_ROOT")[0] == '/');
  CHECK(chdir("/") == 0);
  char command[PATH_MAX + 32];
  snprintf(command, sizeof command, "test $(cat %s) = 0x10de", file);
  CHECK(system(command) == 0);
}

static void errno_kept(void) {
  struct stat st;
  const char *paths[] = {file, "/dev/null", "/sys/bus", "/proc/self/root/sys/bus/pci", "/"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    errno = 77;
    if (stat(paths[i], &st) || errno != 77) printf("stat %s: errno %d\n", paths[i], errno), check_failures++;
    int fd = open(paths[i], O_RDONLY);
    if (fd < 0 || errno != 77) printf("open %s: errno %d\n", paths[i], errno), check_failures++;
    close(fd);
  }
  errno = 77;
  DIR *d = opendir("/sys/bus/pci/devices");
  while (readdir(d)) {
  }
  closedir(d);
  if (errno != 77) printf("opendir: errno %d\n", errno), check_failures++;
}

static void *hammer(void *unused) {
  (void)unused;
  struct stat st;
  char real[PATH_MAX];
  for (int i = 0; i < 300; i++) {
    if (!readable() || stat(file, &st) || !realpath(file, real)) return (void *)1;
    DIR *d = opendir("/sys/bus/pci/devices");
    if (!d) return (void *)2;
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    if (n < 3) return (void *)3;
  }
  return NULL;
}

// Threads, and children that are forked while others hold the lock.
static void threads(void) {
  pthread_t thread[8];
  for (int i = 0; i < 8; i++) pthread_create(thread + i, NULL, hammer, NULL);
  for (int i = 0; i < 50; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(300);
      DIR *d = opendir("/sys/bus/pci/devices");
      _exit(d && readdir(d) && readable() && closedir(d) == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  }
  for (int i = 0; i < 8; i++) {
    void *result;
    pthread_join(thread[i], &result);
    CHECK(!result);
  }
}

static void *on_little(void *unused) {
  (void)unused;
  return readable() ? NULL : (void *)1;
}

// The smallest stack that a thread may have is enough.
static void stack(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, on_little, NULL) == 0);
  void *result = (void *)1;
  pthread_join(thread, &result);
  CHECK(!result);
}

// What a child of vfork does to its working directory is no business of its parent's, though they share their memory.
static void vforked(void) {
  struct stat st;
  CHECK(chdir("/usr") == 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  pid_t pid = vfork();
#pragma GCC diagnostic pop
  if (pid == 0) _exit(chdir("/sys") || stat("bus/pci/devices", &st));
  int status;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK(stat("bin", &st) == 0);
  CHECK(stat("bus/pci/devices", &st) < 0);
}

static volatile sig_atomic_t in_handler;

static void handler(int signal) {
  (void)signal;
  in_handler += readable();
}

static void signals(void) {
  signal(SIGUSR1, handler);
  for (int i = 0; i < 100; i++) {
    raise(SIGUSR1);
    free(malloc(100));
  }
  CHECK(in_handler == 100);
}

// Too long for the kernel, spelled out or with the root before it: an error, never the host's file.
static void lengths(void) {
  struct stat st;
  static char path[8192];
  strcpy(path, "/sys");
  for (int i = 0; i < 2500; i++) strcat(path, "/.");
  strcat(path, "/bus/pci/devices");
  CHECK(stat(path, &st) < 0 && errno == ENAMETOOLONG);
  CHECK(!opendir(path) && errno == ENAMETOOLONG);
  strcpy(path, "/sys/bus/pci/devices");
  while (strlen(path) < PATH_MAX - 20) strcat(path, "/0123456789");
  CHECK(stat(path, &st) < 0 && (errno == ENAMETOOLONG || errno == ENOENT));
  CHECK(stat("", &st) < 0 && errno == ENOENT);
  const char *volatile null = NULL;
  CHECK(stat(null, &st) < 0 && errno == EFAULT);
}

// Whatever is asked about a path that cannot be read, the kernel says so: nothing crashes.
static void faults(void) {
  char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED && munmap(page + 4096, 4096) == 0);
  memset(page, '/', 4096);
  memcpy(page + 4096 - 12, "/sys/bus/pci", 12);
  const char *paths[] = {(char *)1, (char *)-8, (char *)(1ul << 63), page + 4096, page + 4096 - 12, page + 4096 - 1, page + 4096 - 3};
  struct stat st;
  struct statx stx;
  struct statfs fs;
  char buffer[64];
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    const char *volatile bad = paths[i];
    CHECK(stat(bad, &st) == -1 && errno == EFAULT);
    CHECK(lstat(bad, &st) == -1 && errno == EFAULT);
    CHECK(fstatat(AT_FDCWD, bad, &st, 0) == -1 && errno == EFAULT);
    CHECK(fstatat(AT_FDCWD, bad, &st, 1 << 30) == -1 && errno == EINVAL);  // the kernel has not looked at the path
    CHECK(statx(AT_FDCWD, bad, 0, STATX_BASIC_STATS, &stx) == -1 && errno == EFAULT);
    CHECK(access(bad, R_OK) == -1 && errno == EFAULT);
    CHECK(access(bad, 99) == -1 && errno == EINVAL);
    CHECK(faccessat(AT_FDCWD, bad, R_OK, 0) == -1 && errno == EFAULT);
    CHECK(statfs(bad, &fs) == -1 && errno == EFAULT);
    CHECK(getxattr(bad, "user.a", buffer, sizeof buffer) == -1 && errno == EFAULT);
    CHECK(listxattr(bad, buffer, sizeof buffer) == -1 && errno == EFAULT);
    CHECK(readlink(bad, buffer, sizeof buffer) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_readlinkat, AT_FDCWD, bad, buffer, 0) == -1 && errno == EINVAL);
    CHECK(open(bad, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(open(bad, O_WRONLY) == -1 && errno == EFAULT);
    CHECK(open(bad, O_RDWR | O_CREAT | O_TRUNC, 0600) == -1 && errno == EFAULT);
    CHECK(openat(AT_FDCWD, bad, O_PATH) == -1 && errno == EFAULT);
    CHECK(creat(bad, 0600) == -1 && errno == EFAULT);
    CHECK(!opendir(bad) && errno == EFAULT);
    CHECK(!fopen(bad, "r") && errno == EFAULT);
    CHECK(!fopen(bad, "w") && errno == EFAULT);
    CHECK(!fopen(bad, "?") && errno == EINVAL);
    CHECK(!freopen(bad, "r", stdin) && errno == EFAULT);
    CHECK((stdin = fopen("/dev/null", "r")));
    CHECK(truncate(bad, 0) == -1 && errno == EFAULT);
    CHECK(chmod(bad, 0) == -1 && errno == EFAULT);
    CHECK(mkdir(bad, 0) == -1 && errno == EFAULT);
    CHECK(unlink(bad) == -1 && errno == EFAULT);
    CHECK(rename("/dev/null", bad) == -1 && errno == EFAULT);
    CHECK(chdir(bad) == -1 && errno == EFAULT);
  }
  struct stat *volatile nowhere = (struct stat *)1;
  CHECK(stat(file, nowhere) == -1 && errno == EFAULT);
  CHECK(stat("/", nowhere) == -1 && errno == EFAULT);
}

// only kills the process at the first system call that is not one of these.
static void only(const int *calls, size_t count) {
  struct sock_filter filter[32] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  size_t n = 1;
  for (size_t i = 0; i < count; i++) {
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {(unsigned short)n, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

// A path elsewhere costs no system call but the program's own, wherever in memory it lies. For an open file one more asks
// about its file system.
static void quiet(void) {
  static char fixed[] = "/etc/passwd";
  char stack[] = "/etc/passwd", *heap = strdup(fixed);
  char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(heap && mapped != MAP_FAILED);
  char *edge = memcpy(mapped + 4096 - sizeof fixed, fixed, sizeof fixed);
  const char *paths[] = {"/etc/passwd", fixed, stack, heap, edge};
  const int calls[] = {
      SYS_newfstatat, SYS_faccessat, SYS_openat, SYS_fstat, SYS_close, SYS_write, SYS_exit_group,
#ifdef SYS_access  // arm64 has the newer calls only
      SYS_access,     SYS_readlink,
#endif
      SYS_readlinkat,
  };
  fflush(stdout);
  only(calls, sizeof calls / sizeof *calls);
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    struct stat st;
    char target[8];
    CHECK(stat(paths[i], &st) == 0);
    CHECK(access(paths[i], R_OK) == 0);
    CHECK(readlink(paths[i], target, sizeof target) == -1 && errno == EINVAL);
    int fd = open(paths[i], O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
  }
}

// A file beside the tree is opened once, though its path may come near the tree: a second open of a pipe or a device would
// be noticed at its other end.
static void once(void) {
  char name[] = "/tmp/nvmlfab-once-XXXXXX";
  int made = mkstemp(name), watch = inotify_init1(IN_NONBLOCK), fd;
  CHECK(made >= 0 && watch >= 0 && inotify_add_watch(watch, name, IN_OPEN | IN_CLOSE) >= 0);
  CHECK(chdir("/") == 0);
  const char *near = name + 1;  // from a directory above the tree
  FILE *stream;
  char events[4096];
  const ssize_t both = 2 * sizeof(struct inotify_event);  // an open and a close
  CHECK((fd = open(name, O_RDONLY)) >= 0 && close(fd) == 0);
  CHECK(read(watch, events, sizeof events) == both);
  CHECK((fd = open(near, O_RDWR)) >= 0 && close(fd) == 0);
  CHECK(read(watch, events, sizeof events) == both);
  CHECK((fd = open(near, O_RDWR | O_CREAT, 0600)) >= 0 && close(fd) == 0);
  CHECK(read(watch, events, sizeof events) == both);
  CHECK((stream = fopen(near, "r")) && fclose(stream) == 0);
  CHECK(read(watch, events, sizeof events) == both);
  CHECK((stream = fopen(near, "w")) && fclose(stream) == 0);
  CHECK(read(watch, events, sizeof events) == both);
  CHECK(unlink(name) == 0);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  file = argv[2];
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"root", root},   {"child", child},     {"errno", errno_kept}, {"threads", threads}, {"stack", stack},
               {"vfork", vforked}, {"signals", signals}, {"lengths", lengths},
               {"faults", faults}, {"quiet", quiet},     {"once", once}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name)) continue;
    cases[i].run();
    return check_failures != 0;
  }
  return 2;
}
