package profiles

// moreFacts are the values of further boards, as boardFacts has them.
var moreFacts = map[string]string{
	"l40s": `
devices: 1
system.driver_version: 595.91.07
system.cuda_version: 13.2
name: NVIDIA L40S
brand: nvidia
architecture: ada
addressing_mode: hmm
compute_capability: {8 9}
num_gpu_cores: 18176
vbios_version: 95.02.66.00.15
board_part_number: 900-2G133-A880-000
gpu_part_number: 26B9-896-A1
inforom: {G133.0242.00.03 2.1 6.16 -}
pci: {0x26b910de 0x185110de 00000000:30:00.0 3 2}
pcie.max_link_gen: 4
pcie.max_device_link_gen: 4
pcie.max_host_link_gen: -
memory.total_bytes: 46068 MiB
memory.reserved_bytes: 609 MiB
free: 45460 MiB
bar1_memory.total_bytes: 65536 MiB
power.default_limit_mw: 350.00 W
power.min_limit_mw: 100.00 W
power.max_limit_mw: 350.00 W
power.average_draw_mw: 65.64 W
power.current_draw_mw: 66.16 W
memory_power.average_draw_mw: -
thermal.temperature_memory_c: -
thermal.tlimit_c: 59 C
thermal.shutdown_threshold_c: -
thermal.tlimit_shutdown_c: -5 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.tlimit_memory_max_operating_c: -
clocks.graphics_max: 2520 MHz
clocks.graphics_app: -
clocks.memory_max: 9001 MHz
clocks.video_max: 1965 MHz
supported_clocks: 9001 MHz: 155 steps 2520 MHz..210 MHz; 405 MHz: 14 steps 405 MHz..210 MHz
remapped_rows.availability_histogram: {192 0 0 0 0}
retired_pages.pending_retirement: -
c2c_mode: -
virtualization.mode: passthrough
fabric.state: -
nvlink.links_per_gpu: -
`,
	"gb300": `
devices: 4
system.driver_version: 580.173.02
system.cuda_version: 13.0
name: NVIDIA GB300
architecture: blackwell
addressing_mode: ats
compute_capability: {10 3}
vbios_version: 97.10.4A.00.1A
board_part_number: 900-2G548-0081-000
gpu_part_number: 31C2-893-A1
inforom.image_version: G548.0301.00.03
inforom.ecc_object: 7.16
pci: {0x31c210de 0x21f110de 3 2}
pcie.max_link_gen: 6
pcie.max_device_link_gen: 6
pcie.max_host_link_gen: 4
memory.total_bytes: 284208 MiB
memory.reserved_bytes: 947 MiB
free: 283262 MiB
bar1_memory.total_bytes: 524288 MiB
power.default_limit_mw: 1400.00 W
power.min_limit_mw: 200.00 W
power.max_limit_mw: 1400.00 W
power.smoothing: no_permission
module_power.default_limit_mw: 2900.00 W
module_power.min_limit_mw: 500.00 W
module_power.max_limit_mw: 2900.00 W
thermal.tlimit_shutdown_c: -5 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.tlimit_memory_max_operating_c: 0 C
clocks.graphics_max: 2070 MHz
clocks.graphics_app: 2070 MHz
clocks.memory_max: 3996 MHz
clocks.video_max: 1912 MHz
supported_clocks: 3996 MHz: 261 steps 2070 MHz..120 MHz
remapped_rows.availability_histogram: {5952 0 0 0 0}
virtualization.mode: none
c2c_mode: true
fabric.state: completed
fabric.clique_id: 32766
fabric.health_summary: healthy
fabric.health.degraded_bandwidth: false
platform.slot_number: 25
platform.tray_index: 15
platform.host_id: 1
platform.peer_type: switch_connected
nvlink.version: 5
nvlink.links_per_gpu: 18
nvlink.bandwidth_per_link_mbps: 53125
[0].pci.bus_id: 00000008:06:00.0
[0].platform.module_id: 2
[0].thermal.tlimit_c: 49 C
[0].power.average_draw_mw: 180.36 W
[0].module_power.average_draw_mw: 488.29 W
`,
	"a10g": `
devices: 1
name: NVIDIA A10G
architecture: ampere
pci.device_id: 0x223710de
pci.subsystem_id: 0x152f10de
memory.total_bytes: 23028 MiB
bar1_memory.total_bytes: 32768 MiB
power.default_limit_mw: 300.00 W
power.min_limit_mw: 100.00 W
power.max_limit_mw: 300.00 W
clocks.graphics_max: 1710 MHz
clocks.sm_max: 1710 MHz
clocks.memory_max: 6251 MHz
clocks.video_max: 1500 MHz
thermal.shutdown_threshold_c: 98 C
thermal.slowdown_threshold_c: 95 C
thermal.max_operating_c: 88 C
vbios_version: 94.02.75.00.01
`,
	"a100-pcie-80gb": `
devices: 4
name: NVIDIA A100 80GB PCIe
pci.device_id: 0x20b510de
pcie.max_host_link_gen: 5
memory.total_bytes: 81920 MiB
power.enforced_limit_mw: 300.00 W
power.min_limit_mw: -
clocks.graphics_max: 1410 MHz
clocks.memory_max: 1512 MHz
nvlink.links_per_gpu: 12
`,
	"l4": `
devices: 2
system.driver_version: 555.42.06
name: NVIDIA L4
architecture: ada
compute_capability: {8 9}
multiprocessor_count: 58
vbios_version: 95.04.29.00.06
board_part_number: 900-2G193-0000-001
gpu_part_number: 27B8-895-A1
inforom.image_version: G193.0200.00.01
pci: {0x27b810de 0x16ca10de 3 2}
pcie.max_link_gen: 4
memory.total_bytes: 23034 MiB
bar1_memory.total_bytes: 32768 MiB
power.default_limit_mw: 72.00 W
power.min_limit_mw: 40.00 W
power.max_limit_mw: 72.00 W
clocks.graphics_max: 2040 MHz
clocks.graphics_app: 2040 MHz
clocks.memory_max: 6251 MHz
clocks.memory_app: 6251 MHz
clocks.video_max: 1770 MHz
thermal.tlimit_shutdown_c: -5 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.temperature_memory_c: -
remapped_rows.availability_histogram: {96 0 0 0 0}
`,
	"v100-sxm2-32gb": `
devices: 8
system.driver_version: 418.67
name: Tesla V100-SXM2-32GB
brand: tesla
architecture: volta
compute_capability: {7 0}
multiprocessor_count: 80
num_gpu_cores: 5120
vbios_version: 88.00.80.00.01
inforom: {G503.0203.00.05 1.1 5.0 -}
pci.device_id: 0x1db510de
pci.subsystem_id: 0x124910de
memory.total_bytes: 32480 MiB
memory.reserved_bytes: -
bar1_memory.total_bytes: 32768 MiB
power.default_limit_mw: 300.00 W
power.min_limit_mw: 150.00 W
power.max_limit_mw: 300.00 W
clocks.graphics_max: 1530 MHz
clocks.graphics_app: 1290 MHz
clocks.memory_max: 877 MHz
clocks.video_max: 1372 MHz
thermal.shutdown_threshold_c: 90 C
thermal.slowdown_threshold_c: 87 C
thermal.max_operating_c: 83 C
thermal.memory_max_operating_c: 85 C
ecc.errors.volatile.double_bit.cbu: 0
ecc.errors.volatile.single_bit.cbu: -
nvlink.links_per_gpu: 6
nvlink.version: 2
`,
	"rtx-2080-super": `
devices: 1
system.driver_version: 595.71.05
name: NVIDIA GeForce RTX 2080 SUPER
brand: geforce
pci.device_id: 0x1e8110de
memory.total_bytes: 8192 MiB
bar1_memory.total_bytes: 256 MiB
power.default_limit_mw: 250.00 W
power.min_limit_mw: 105.00 W
power.max_limit_mw: 350.00 W
thermal.shutdown_threshold_c: 100 C
thermal.slowdown_threshold_c: 97 C
thermal.max_operating_c: 89 C
thermal.target_temperature_c: 84 C
thermal.tlimit_c: -
clocks.graphics_max: 2145 MHz
clocks.memory_max: 7751 MHz
ecc.mode_current: -
`,
	"rtx-3090": `
devices: 1
name: NVIDIA GeForce RTX 3090
pci.device_id: 0x220410de
memory.total_bytes: 24576 MiB
memory.reserved_bytes: 316 MiB
bar1_memory.total_bytes: 32768 MiB
power.default_limit_mw: 350.00 W
power.min_limit_mw: 100.00 W
power.max_limit_mw: 375.00 W
clocks.graphics_max: 2100 MHz
clocks.memory_max: 9751 MHz
clocks.video_max: 1950 MHz
thermal.shutdown_threshold_c: 98 C
thermal.slowdown_threshold_c: 95 C
thermal.max_operating_c: 93 C
thermal.target_temperature_c: 83 C
vbios_version: 94.02.71.40.72
`,
	"rtx-4080-super": `
devices: 1
name: NVIDIA GeForce RTX 4080 SUPER
pci: {0x270210de 0x51101462 00000000:01:00.0 3 0}
memory.total_bytes: 16376 MiB
bar1_memory.total_bytes: 16384 MiB
power.default_limit_mw: 320.00 W
power.min_limit_mw: 150.00 W
power.max_limit_mw: 400.00 W
thermal.shutdown_threshold_c: 101 C
thermal.slowdown_threshold_c: 96 C
thermal.max_operating_c: 90 C
thermal.target_temperature_c: 84 C
thermal.tlimit_c: -
vbios_version: 95.03.44.00.B2
`,
	"rtx-4090": `
devices: 1
name: NVIDIA GeForce RTX 4090
pci.device_id: 0x268410de
pci.subsystem_id: 0x40bf1458
memory.total_bytes: 24564 MiB
bar1_memory.total_bytes: 256 MiB
power.default_limit_mw: 450.00 W
power.min_limit_mw: 10.00 W
power.max_limit_mw: 600.00 W
clocks.graphics_max: 3120 MHz
clocks.memory_max: 10501 MHz
clocks.video_max: 2415 MHz
thermal.tlimit_shutdown_c: -7 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.target_temperature_c: 84 C
ecc.mode_current: false
vbios_version: 95.02.18.80.5F
`,
	"rtx-5090": `
devices: 1
name: NVIDIA GeForce RTX 5090
compute_capability: {12 0}
memory.total_bytes: 32607 MiB
bar1_memory.total_bytes: 32768 MiB
power.default_limit_mw: 575.00 W
power.max_limit_mw: 575.00 W
clocks.memory_max: 14001 MHz
thermal.tlimit_shutdown_c: -5 C
`,
	"gb10": `
devices: 1
name: NVIDIA GB10
brand: nvidia_rtx
compute_capability: {12 1}
multiprocessor_count: 48
pci: {0x2e1210de 0x21ec10de 0000000F:01:00.0 3 0}
memory: -
bar1_memory: -
power.enforced_limit_mw: -
`,
	"jetson-thor": `
devices: 1
name: NVIDIA Thor
pci.device_id: 0x2b0010de
compute_capability: {11 0}
memory: -
utilization: {0 0 0 0 0 0}
`,
	"dgx-h100": `
devices: 8
system.driver_version: 580.105.08
name: NVIDIA H100 80GB HBM3
memory.total_bytes: 81559 MiB
pci.device_id: 0x233010de
[0].pci.bus_id: 00000000:1B:00.0
[3].pci.bus_id: 00000000:61:00.0
[7].pci.bus_id: 00000000:DF:00.0
`,
	"mixed": `
devices: 4
system.driver_version: 595.91.07
[0].name: Tesla T4
[0].memory.total_bytes: 15360 MiB
[1].name: NVIDIA L4
[1].power.max_limit_mw: 72.00 W
[1].gsp_firmware.version: 595.91.07
[2].name: NVIDIA L40S
[2].pci: {0x26b910de 0x185110de 3 2}
[3].name: NVIDIA GeForce RTX 4080 SUPER
[3].serial: -
[3].thermal.shutdown_threshold_c: 101 C
`,
	"vgpu-rtxa6000-24q": `
devices: 1
name: NVIDIA RTXA6000-24Q
brand: nvidia_vws
virtualization.mode: vgpu
memory.total_bytes: 24576 MiB
memory.reserved_bytes: 2134 MiB
bar1_memory.total_bytes: 256 MiB
thermal: -
power: -
`,
}
