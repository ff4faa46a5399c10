// state CASE FILE checks what the library keeps, or leaves alone, in a process. FILE is a staged file that reads 0x10de.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
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

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  file = argv[2];
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"root", root},   {"child", child},     {"errno", errno_kept}, {"threads", threads}, {"stack", stack},
               {"vfork", vforked}, {"signals", signals}, {"lengths", lengths}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name)) continue;
    cases[i].run();
    return check_failures != 0;
  }
  return 2;
}
