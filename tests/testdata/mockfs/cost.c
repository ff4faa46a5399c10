// cost PATH prints what stat(PATH) takes, in nanoseconds: the best of many rounds. With -DSTUB it is a library whose stat
// does nothing, to be preloaded last, so that no kernel is in the figure.

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

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
  enum { ROUNDS = 200, CALLS = 5000 };
  const char *path = argc > 1 ? argv[1] : "/etc/passwd";
  struct stat st;
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    double start = now();
    for (int j = 0; j < CALLS; j++) stat(path, &st);
    double each = (now() - start) / CALLS;
    if (each < best) best = each;
  }
  printf("%.2f\n", best);
  return 0;
}

#endif
