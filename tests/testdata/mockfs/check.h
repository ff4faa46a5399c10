// CHECK prints what does not hold, and goes on.

#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int check_failures;

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    errno = 0;                                                                                             \
    if (!(condition)) {                                                                                    \
      int error = errno;                                                                                   \
      check_failures++;                                                                                    \
      printf("%s:%d: %s (errno: %s)\n", strrchr("/" __FILE__, '/') + 1, __LINE__, #condition, strerror(error)); \
    }                                                                                                      \
  } while (0)
