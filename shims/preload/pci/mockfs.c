// What libmockfs.so redirects: PCI and the files of NVIDIA's driver, into the tree that MOCK_PCI_ROOT names.

#include "engine.h"

#include <stdlib.h>

const char library_variable[] = "MOCK_PCI_ROOT";

const char *library_root(void) { return secure_getenv(library_variable); }

const struct prefix library_prefixes[] = {
    {"/sys/bus/pci", WHOLE},
    {"/sys/devices/pci", BEGINS},
    {"/sys/class/pci_bus", WHOLE},  // its links lead into the tree; NCCL goes by them
    {"/proc/bus/pci", WHOLE},       // where lspci -A linux-proc looks
    {"/proc/driver/nvidia", WHOLE},
    {"/proc/driver/nvidia-caps", WHOLE},
    {NULL, WHOLE},
};
