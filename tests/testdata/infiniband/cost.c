// cost measures a stat as the program calls it, through what is preloaded, and libc's own, in turns. Of many rounds the fastest of
// each counts, since other programs disturb some.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

enum { ROUNDS = 400, CALLS = 500 };

static double nanoseconds(int (*call)(const char *, struct stat *)) {
  struct timespec began, ended;
  struct stat st;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (int i = 0; i < CALLS; i++) call("/etc/passwd", &st);
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return ((double)(ended.tv_sec - began.tv_sec) * 1e9 + (double)(ended.tv_nsec - began.tv_nsec)) / CALLS;
}

int main(void) {
  void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  int (*theirs)(const char *, struct stat *) = libc ? dlsym(libc, "stat") : NULL;
  if (!theirs || theirs == stat) {
    fputs("nothing is preloaded\n", stderr);
    return 2;
  }
  double best[2] = {1e9, 1e9};
  for (int i = 0; i < ROUNDS; i++) {
    double now[2] = {nanoseconds(stat), nanoseconds(theirs)};
    for (int k = 0; k < 2; k++)
      if (now[k] < best[k]) best[k] = now[k];
  }
  printf("%.1f ns, libc's own %.1f ns\n", best[0], best[1]);
  return 0;
}
