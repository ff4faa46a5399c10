package tests

// kinds are shipped boards of every kind, for tests that are slow: with MIG, NVLinks between GPUs or to switches, a fabric, no
// size of its memory, no sensors, shared with virtual machines, and GPUs that are not alike.
var kinds = []string{"h100", "a100-sxm4-40gb", "gb200", "t4", "v100-sxm2-32gb", "gb10", "vgpu-rtxa6000-24q", "t4-vgpu-host", "mixed"}
