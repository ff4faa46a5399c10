// cost CALL WHERE prints what a call with a path takes, in nanoseconds: the best of many rounds. CALL is stat, or open for an
// open and a close. WHERE says where in memory the path lies: static, stack, heap or mapped. With -DSTUB it is a library whose
// stat does nothing, to be preloaded last, so that no kernel is in the figure.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef STUB

int stat(const char *restrict path, struct stat *restrict st) {
  (void)path;
  st->st_dev = 1;
  return 0;
}

#else

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  enum { ROUNDS = 200, STATS = 5000, OPENS = 500 };
  static const char fixed[] = "/etc/passwd";
  char stack[sizeof fixed];
  if (argc != 3) return 2;
  const char *path = NULL;
  if (!strcmp(argv[2], "static")) path = fixed;
  if (!strcmp(argv[2], "stack")) path = memcpy(stack, fixed, sizeof fixed);
  if (!strcmp(argv[2], "heap")) path = strdup(fixed);
  if (!strcmp(argv[2], "mapped")) {
    void *page = mmap(NULL, sizeof fixed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) path = memcpy(page, fixed, sizeof fixed);
  }
  if (!path) return 2;
  int opens = !strcmp(argv[1], "open"), calls = opens ? OPENS : STATS;
  struct stat st;
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    double start = now();
    for (int j = 0; j < calls; j++) {
      if (opens)
        close(open(path, O_RDONLY));
      else
        stat(path, &st);
    }
    double each = (now() - start) / calls;
    if (each < best) best = each;
  }
  printf("%.2f\n", best);
  return 0;
}

#endif
