// Redirects InfiniBand's files into the tree that MOCK_IB_ROOT names, for tests of libibmockumad.so alone.

#include "engine.h"

#include <stdlib.h>

const char library_variable[] = "MOCK_IB_ROOT";

const char *library_root(void) { return secure_getenv(library_variable); }

const struct prefix library_prefixes[] = {
    {"/sys/class/infiniband", BEGINS},
    {"/dev/infiniband", WHOLE},
    {NULL, WHOLE},
};
