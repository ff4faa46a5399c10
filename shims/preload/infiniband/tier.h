// How much InfiniBand a process sees, by its environment. All libibmock libraries go by it.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdlib.h>
#include <string.h>
#include <strings.h>

// The staged tree if MOCK_IB_ROOT names none.
#define IB_DEFAULT_ROOT "/var/lib/nvml-mock/ib"

// IB_SYSFS shows files and lists devices, IB_FULL lets programs open these too.
enum ib_tier { IB_OFF, IB_SYSFS, IB_FULL };

static inline enum ib_tier ib_tier(void) {
  const char *value = secure_getenv("MOCK_IB");
  if (!value) return IB_OFF;
  return !strcasecmp(value, "full") ? IB_FULL : !strcasecmp(value, "sysfs") ? IB_SYSFS : IB_OFF;
}

static inline const char *ib_root(void) {
  const char *root = secure_getenv("MOCK_IB_ROOT");
  return root && *root ? root : IB_DEFAULT_ROOT;
}
