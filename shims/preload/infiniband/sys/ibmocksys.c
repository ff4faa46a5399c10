// What libibmocksys.so redirects: InfiniBand's classes, devices and network interfaces, into the tree that MOCK_IB_ROOT names.

#include "engine.h"
#include "tier.h"

const char library_variable[] = "MOCK_IB_ROOT";

const char *library_root(void) { return ib_tier() == IB_OFF ? NULL : ib_root(); }

const struct prefix library_prefixes[] = {
    {"/sys/class/infiniband", BEGINS},  // infiniband_mad, infiniband_verbs and infiniband_cm too
    {"/sys/class/net", WHOLE},
    {"/sys/class/misc/rdma_cm", WHOLE},
    {"/sys/devices/pci", BEGINS},  // where the classes' links lead
    {"/sys/devices/virtual/misc/rdma_cm", WHOLE},
    {"/sys/bus/pci/drivers/mlx5_core", WHOLE},  // where the driver links of adapters lead
    {"/sys/module/mlx5_core", WHOLE},
    {"/sys/module/mlx5_ib", WHOLE},
    {"/sys/module/ib_", BEGINS},
    {"/sys/module/rdma_cm", WHOLE},
    {"/sys/module/nvidia_peermem", WHOLE},
    {"/dev/infiniband", WHOLE},
    {NULL, WHOLE},
};
