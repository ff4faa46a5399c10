package profiles

// boardFacts are the values of each board in nvidia-smi's units. They come from the sources and not from the YAML: from
// the capture in NVIDIA/k8s-test-infra and, where nvidia-smi does not show a value, from the sources that the board's
// file names. A line holds for every device, or for the one in brackets; - means that the value is absent.
var boardFacts = map[string]string{
	"h100": `
devices: 8
system.driver_version: 580.105.08
system.cuda_version: 13.0
name: NVIDIA H100 80GB HBM3
architecture: hopper
compute_capability: {9 0}
multiprocessor_count: 132
vbios_version: 96.00.99.00.01
gpu_part_number: 2330-885-A1
inforom: {G520.0200.00.05 2.1 7.16 -}
pci: {0x233010de 0x16c110de 3 2}
pcie.max_link_gen: 5
pcie.max_device_link_gen: 5
pcie.max_host_link_gen: -
memory.total_bytes: 81559 MiB
memory.reserved_bytes: 480 MiB
free: 81080 MiB
bar1_memory.total_bytes: 131072 MiB
power.default_limit_mw: 700.00 W
power.min_limit_mw: 200.00 W
power.max_limit_mw: 700.00 W
power.smoothing: -
module_power.default_limit_mw: -
thermal.shutdown_threshold_c: -
thermal.slowdown_threshold_c: -
thermal.max_operating_c: -
thermal.memory_max_operating_c: -
thermal.tlimit_shutdown_c: -8 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.tlimit_memory_max_operating_c: 0 C
clocks.graphics_max: 1980 MHz
clocks.graphics_app: 1980 MHz
clocks.sm_max: 1980 MHz
clocks.memory_max: 2619 MHz
clocks.video_max: 1545 MHz
supported_clocks: 2619 MHz: 110 steps 1980 MHz..345 MHz; 1593 MHz: 110 steps 1980 MHz..345 MHz
remapped_rows.availability_histogram: {2560 0 0 0 0}
retired_pages.pending_retirement: -
c2c_mode: false
sparse_operation_mode: false
fabric.state: completed
fabric.clique_id: 0
nvlink.version: 4
nvlink.links_per_gpu: 18
nvlink.bandwidth_per_link_mbps: 26562
[0].pci.bus_id: 00000000:53:00.0
[0].thermal.tlimit_c: 58 C
[0].power.average_draw_mw: 68.57 W
`,
	"a100-sxm4-40gb": `
devices: 8
system.driver_version: 570.148.08
system.cuda_version: 12.8
name: NVIDIA A100-SXM4-40GB
architecture: ampere
compute_capability: {8 0}
multiprocessor_count: 108
num_gpu_cores: 6912
vbios_version: 92.00.45.00.03
board_part_number: 692-2G506-0200-003
gpu_part_number: 20B0-884-A1
inforom: {G506.0200.00.04 2.0 6.16 -}
addressing_mode: hmm
pci: {0x20b010de 0x134f10de 3 2}
pcie.max_link_gen: 4
pcie.max_device_link_gen: 4
pcie.max_host_link_gen: -
pcie.current_link_width: 16
pcie.atomic_caps_inbound: -
memory.total_bytes: 40960 MiB
memory.reserved_bytes: 518 MiB
memory.used_bytes: 0 MiB
free: 40443 MiB
bar1_memory.total_bytes: 65536 MiB
bar1_memory.used_bytes: 1 MiB
power.default_limit_mw: 400.00 W
power.requested_limit_mw: 400.00 W
power.enforced_limit_mw: 400.00 W
power.min_limit_mw: 100.00 W
power.max_limit_mw: 400.00 W
power.current_draw_mw: 49.68 W
power.average_draw_mw: -
memory_power.average_draw_mw: -
module_power.default_limit_mw: -
thermal.temperature_gpu_c: 33 C
thermal.temperature_memory_c: 34 C
thermal.shutdown_threshold_c: 92 C
thermal.slowdown_threshold_c: 89 C
thermal.max_operating_c: 85 C
thermal.memory_max_operating_c: 95 C
thermal.tlimit_c: -
thermal.tlimit_shutdown_c: -
thermal.tlimit_slowdown_c: -
thermal.tlimit_max_operating_c: -
thermal.tlimit_memory_max_operating_c: -
clocks.graphics_current: 210 MHz
clocks.graphics_app: 1095 MHz
clocks.graphics_app_default: 1095 MHz
clocks.graphics_max: 1410 MHz
clocks.graphics_customer_boost_max: 1410 MHz
clocks.sm_max: 1410 MHz
clocks.memory_max: 1215 MHz
clocks.video_current: 585 MHz
clocks.video_max: 1290 MHz
supported_clocks: 1215 MHz: 81 steps 1410 MHz..210 MHz
remapped_rows.availability_histogram: {640 0 0 0 0}
remapped_rows.correctable_inactive: -
ecc.sram.aggregate: {0 0 0}
ecc.channel_repair_pending: -
retired_pages.pending_retirement: -
display: {true false -}
mig.mode_current: false
c2c_mode: -
sparse_operation_mode: -
gsp_firmware.version: 570.148.08
fabric.state: -
platform.peer_type: -
pdi: -
nvlink.version: 3
nvlink.c2c_enabled: -
nvlink.links_per_gpu: 12
nvlink.bandwidth_per_link_mbps: 25781
[0].pci.bus_id: 00000000:06:00.0
[0].platform.module_id: 7
`,
	"gb200": `
devices: 4
system.driver_version: 580.173.02
system.cuda_version: 13.0
name: NVIDIA GB200
architecture: blackwell
compute_capability: {10 0}
multiprocessor_count: 152
vbios_version: 97.00.B9.00.69
board_part_number: 900-2G548-A801-000
gpu_part_number: 2941-892-A1
inforom.image_version: G548.0201.00.06
inforom.ecc_object: 7.16
addressing_mode: ats
pci.device_id: 0x294110de
pci.subsystem_id: 0x204610de
pcie.max_link_gen: 5
pcie.max_device_link_gen: 6
pcie.max_host_link_gen: -
pcie.atomic_caps_inbound: 63
pcie.atomic_caps_outbound: -
memory.total_bytes: 189471 MiB
memory.reserved_bytes: 742 MiB
free: 188730 MiB
bar1_memory.total_bytes: 262144 MiB
bar1_memory.used_bytes: 0 MiB
power.default_limit_mw: 1200.00 W
power.requested_limit_mw: 1200.00 W
power.enforced_limit_mw: 1200.00 W
power.min_limit_mw: 200.00 W
power.max_limit_mw: 1200.00 W
power.smoothing: no_permission
memory_power.current_draw_mw: -
module_power.default_limit_mw: 2500.00 W
module_power.requested_limit_mw: 2500.00 W
module_power.enforced_limit_mw: 2500.00 W
module_power.min_limit_mw: 500.00 W
module_power.max_limit_mw: 2500.00 W
thermal.shutdown_threshold_c: -
thermal.slowdown_threshold_c: -
thermal.max_operating_c: -
thermal.memory_max_operating_c: -
thermal.tlimit_shutdown_c: -5 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.tlimit_memory_max_operating_c: 0 C
clocks.graphics_current: 120 MHz
clocks.graphics_app: 2062 MHz
clocks.graphics_max: 2062 MHz
clocks.sm_max: 2062 MHz
clocks.memory_max: 3996 MHz
clocks.video_current: 600 MHz
clocks.video_max: 1890 MHz
supported_clocks: 3996 MHz: 260 steps 2062 MHz..120 MHz
remapped_rows.availability_histogram: {3968 0 0 0 0}
remapped_rows.correctable_inactive: 0
ecc.channel_repair_pending: false
ecc.tpc_repair_pending: false
ecc.unrepairable_memory: false
retired_pages.pending_retirement: -
display: {- false true}
c2c_mode: true
sparse_operation_mode: -
fabric.state: completed
fabric.clique_id: 2
fabric.health_summary: healthy
fabric.health: {false false false false not_supported}
platform.slot_number: 14
platform.tray_index: 4
platform.host_id: 1
platform.peer_type: switch_connected
nvlink.version: 5
nvlink.links_per_gpu: 18
nvlink.bandwidth_per_link_mbps: 53125
nvlink.c2c_enabled: true
[0].pci.bus_id: 00000000:29:00.0
[1].pci.bus_id: 00000000:3F:00.0
[2].pci.bus_id: 00000000:9C:00.0
[3].pci.bus_id: 00000000:B2:00.0
[0].platform.module_id: 2
[1].platform.module_id: 1
[2].platform.module_id: 4
[3].platform.module_id: 3
[0].power.average_draw_mw: 165.93 W
[3].power.current_draw_mw: 171.61 W
[1].memory_power.average_draw_mw: 29.16 W
[2].module_power.current_draw_mw: 459.64 W
[3].module_power.average_draw_mw: 452.43 W
[3].thermal.temperature_gpu_c: 26 C
[3].thermal.tlimit_c: 61 C
[2].thermal.temperature_memory_c: 28 C
[2].clocks_throttle_reasons.counters.sw_thermal_slowdown_us: 7319467 us
[0].inforom.bbx_flush_timestamp_us: 1787268780497000 us
[3].inforom.bbx_flush_duration_us: 54316 us
`,
	"t4": `
devices: 1
system.driver_version: 595.91.07
system.cuda_version: 13.2
name: Tesla T4
brand: nvidia
architecture: turing
compute_capability: {7 5}
multiprocessor_count: 40
num_gpu_cores: 2560
vbios_version: 90.04.96.00.02
board_part_number: 900-2G183-A800-001
gpu_part_number: 1EB8-895-A1
inforom: {G183.0200.00.02 1.1 5.0 -}
addressing_mode: hmm
pci: {0x1eb810de 0x12a210de 00000000:00:1E.0 3 2}
pcie.max_link_gen: 3
pcie.max_device_link_gen: 3
pcie.max_host_link_gen: -
pcie.max_link_width: 16
pcie.current_link_width: 8
memory.total_bytes: 15360 MiB
memory.reserved_bytes: 448 MiB
free: 14913 MiB
bar1_memory.total_bytes: 256 MiB
bar1_memory.used_bytes: 2 MiB
power.default_limit_mw: 70.00 W
power.min_limit_mw: 60.00 W
power.max_limit_mw: 70.00 W
power.current_draw_mw: 33.51 W
power.average_draw_mw: -
memory_power.average_draw_mw: -
module_power.default_limit_mw: -
thermal.temperature_gpu_c: 33 C
thermal.temperature_memory_c: -
thermal.shutdown_threshold_c: 96 C
thermal.slowdown_threshold_c: 93 C
thermal.max_operating_c: 85 C
thermal.memory_max_operating_c: -
thermal.tlimit_c: -
thermal.tlimit_shutdown_c: -
clocks.graphics_current: 1590 MHz
clocks.graphics_app: 585 MHz
clocks.graphics_max: 1590 MHz
clocks.sm_max: 1590 MHz
clocks.memory_current: 5000 MHz
clocks.memory_max: 5001 MHz
clocks.video_max: 1470 MHz
supported_clocks: 5001 MHz: 87 steps 1590 MHz..300 MHz; 405 MHz: 24 steps 645 MHz..300 MHz
remapped_rows.availability_histogram: -
ecc.sram: -
ecc.errors.aggregate.single_bit.device_memory: 1
ecc.errors.aggregate.double_bit.sram: 0
retired_pages.single_bit_retirement.count: 0
retired_pages.double_bit_retirement.count: 0
retired_pages.pending_blacklist: false
retired_pages.pending_retirement: false
display: {- false true}
mig.mode_current: -
c2c_mode: -
fabric.state: -
platform.module_id: 1
nvlink.links_per_gpu: -
`,
	"a100-sxm4-80gb": `
devices: 4
system.driver_version: 535.54.03
name: NVIDIA A100-SXM4-80GB
compute_capability: {8 0}
vbios_version: 92.00.36.00.02
board_part_number: 692-2G506-0212-002
gpu_part_number: 20B2-895-A1
inforom: {G506.0212.00.01 2.0 6.16 -}
pci: {0x20b210de 0x147f10de 3 2}
pcie.max_host_link_gen: 4
memory.total_bytes: 81920 MiB
bar1_memory.total_bytes: 131072 MiB
power.default_limit_mw: 500.00 W
power.min_limit_mw: 100.00 W
power.max_limit_mw: 500.00 W
power.average_draw_mw: -
thermal.shutdown_threshold_c: 92 C
thermal.slowdown_threshold_c: 89 C
thermal.max_operating_c: 85 C
thermal.memory_max_operating_c: 95 C
thermal.tlimit_c: -
clocks.graphics_max: 1410 MHz
clocks.graphics_app: 1275 MHz
clocks.memory_max: 1593 MHz
clocks.video_max: 1290 MHz
supported_clocks: 1593 MHz: 81 steps 1410 MHz..210 MHz
nvlink.links_per_gpu: 12
nvlink.bandwidth_per_link_mbps: 25781
[0].pci.bus_id: 00000000:01:00.0
[0].platform.module_id: 4
`,
	"h200": `
devices: 8
system.driver_version: 590.48.01
system.cuda_version: 13.1
name: NVIDIA H200
architecture: hopper
compute_capability: {9 0}
multiprocessor_count: 132
vbios_version: 96.00.A5.00.03
board_part_number: 695-2G520-0280-001
gpu_part_number: 2335-895-A1
inforom: {G520.0280.02.02 2.1 7.16 -}
pci: {0x233510de 0x18be10de 3 2}
pcie.max_link_gen: 5
memory.total_bytes: 143771 MiB
bar1_memory.total_bytes: 262144 MiB
power.default_limit_mw: 700.00 W
power.min_limit_mw: 200.00 W
power.max_limit_mw: 700.00 W
power.average_draw_mw: 77.67 W
thermal.tlimit_c: 59 C
thermal.tlimit_shutdown_c: -8 C
thermal.tlimit_slowdown_c: -2 C
thermal.tlimit_max_operating_c: 0 C
thermal.shutdown_threshold_c: -
clocks.graphics_max: 1980 MHz
clocks.graphics_app: -
clocks.memory_max: 3201 MHz
clocks.video_max: 1545 MHz
remapped_rows.availability_histogram: {3072 0 0 0 0}
c2c_mode: false
fabric.state: completed
nvlink.version: 4
nvlink.links_per_gpu: 18
nvlink.bandwidth_per_link_mbps: 26562
[4].pci.bus_id: 00000000:83:00.0
[4].platform.module_id: 1
`,
	"b200": `
devices: 8
system.driver_version: 580.105.08
system.cuda_version: 13.0
name: NVIDIA B200
architecture: blackwell
compute_capability: {10 0}
multiprocessor_count: -
vbios_version: 97.00.FA.00.09
board_part_number: 692-2G525-0220-500
gpu_part_number: 2901-886-A1
inforom: {G525.0220.00.03 2.1 7.16 -}
addressing_mode: none
pci: {0x290110de 0x199910de 3 2}
pcie.max_link_gen: 5
memory.total_bytes: 183359 MiB
memory.reserved_bytes: 728 MiB
free: 182632 MiB
bar1_memory.total_bytes: 262144 MiB
power.default_limit_mw: 1000.00 W
power.min_limit_mw: 200.00 W
power.max_limit_mw: 1000.00 W
power.smoothing: no_permission
module_power.default_limit_mw: -
thermal.tlimit_shutdown_c: -5 C
thermal.tlimit_slowdown_c: -3 C
thermal.tlimit_max_operating_c: 0 C
clocks.graphics_max: 1965 MHz
clocks.memory_max: 3996 MHz
clocks.video_max: 1965 MHz
supported_clocks: 3996 MHz: 247 steps 1965 MHz..120 MHz; 3402 MHz: 247 steps 1965 MHz..120 MHz
remapped_rows.availability_histogram: {3840 0 0 0 0}
sparse_operation_mode: -
c2c_mode: false
fabric.state: completed
fabric.health_summary: healthy
platform.peer_type: switch_connected
platform.host_id: 1
nvlink.version: 5
nvlink.links_per_gpu: 18
nvlink.bandwidth_per_link_mbps: 53125
[0].pci.bus_id: 00000000:8F:00.0
[0].platform.module_id: 6
[0].power.average_draw_mw: 195.68 W
[0].power.current_draw_mw: 195.79 W
[7].pci.bus_id: 00000000:CC:00.0
[7].thermal.tlimit_c: 37 C
`,
	"gh200": `
devices: 1
system.driver_version: 550.127.05
name: NVIDIA GH200 480GB
vbios_version: 96.00.8D.00.03
addressing_mode: ats
pci: {0x234210de 0x180910de 00000000:DD:00.0 3 2}
pcie.max_link_width: 1
memory.total_bytes: 97871 MiB
memory.reserved_bytes: 1103 MiB
bar1_memory.total_bytes: -
power.default_limit_mw: 900.00 W
power.enforced_limit_mw: 700.00 W
power.min_limit_mw: 100.00 W
module_power.default_limit_mw: 1000.00 W
thermal.tlimit_c: 55 C
clocks.graphics_max: 1980 MHz
clocks.memory_max: 2619 MHz
c2c_mode: true
fabric.state: -
nvlink.links_per_gpu: -
`,
	"a30": `
devices: 1
system.driver_version: 535.183.01
name: NVIDIA A30
compute_capability: {8 0}
multiprocessor_count: 56
pci: {0x20b710de 0x153210de 00000000:0B:00.0 3 2}
memory.total_bytes: 24576 MiB
bar1_memory.total_bytes: 32768 MiB
power.enforced_limit_mw: 165.00 W
power.min_limit_mw: -
clocks.graphics_max: -
vbios_version: -
nvlink.links_per_gpu: -
`,
	"h100-pcie": `
devices: 1
system.driver_version: 570.169
name: NVIDIA H100 PCIe
multiprocessor_count: 114
pci: {0x233110de 0x162610de 00000000:01:00.0 3 2}
memory.total_bytes: 81559 MiB
bar1_memory.total_bytes: 131072 MiB
power.enforced_limit_mw: 350.00 W
clocks.graphics_max: -
nvlink.links_per_gpu: -
`,
	"h100-nvl": `
devices: 1
system.driver_version: 560.35.03
name: NVIDIA H100 NVL
multiprocessor_count: 132
pci: {0x232110de 0x183910de 00000001:00:00.0 3 2}
memory.total_bytes: 95830 MiB
bar1_memory.total_bytes: 131072 MiB
power.enforced_limit_mw: 400.00 W
clocks.graphics_max: -
nvlink.links_per_gpu: -
`,
	"rtx-pro-6000-server": `
devices: 4
system.driver_version: 580.105.06
name: NVIDIA RTX PRO 6000 Blackwell Server Edition
compute_capability: {12 0}
multiprocessor_count: 188
pci: {0x2bb510de 0x204e10de 3 2}
memory.total_bytes: 97887 MiB
memory.reserved_bytes: 2288 MiB
bar1_memory.total_bytes: 131072 MiB
power.enforced_limit_mw: 600.00 W
clocks.graphics_max: -
nvlink.links_per_gpu: -
[3].pci.bus_id: 00000001:C8:00.0
`,
	"t4-vgpu-host": `
devices: 1
system.driver_version: 550.54.10
system.cuda_version: -
name: Tesla T4
virtualization: {host_vgpu non_sriov}
pci: {0x1eb810de 0x12a210de 00000000:00:1E.0 3 2}
memory.total_bytes: 15360 MiB
power.default_limit_mw: 70.00 W
vgpu.heterogeneous_mode: -
vgpu.scheduler.max_timeslice_ns: -
`,
	"v100-vgpu-guest": `
devices: 1
system.driver_version: 535.216.01
system.cuda_version: 12.2
name: GRID V100D-8C
architecture: volta
compute_capability: {7 0}
board_id: 512
gpu_part_number: 1DB6-897-A1
vbios_version: 00.00.00.00.00
virtualization: {vgpu -}
inforom: -
pci: {0x1db610de 0x139610de 00000000:02:00.0 - -}
pcie.max_link_gen: -
memory.total_bytes: 8192 MiB
memory.reserved_bytes: 560 MiB
free: 7632 MiB
bar1_memory.total_bytes: 8192 MiB
power.default_limit_mw: -
thermal.temperature_gpu_c: -
clocks.graphics_current: 1230 MHz
clocks.memory_current: 877 MHz
clocks.graphics_max: -
performance_state: 0
ecc.mode_current: true
retired_pages.pending_retirement: false
`,
}

// elsewhere are values that the profiles of NVIDIA's mock give for boards of the same names and that real boards do not
// have.
var elsewhere = map[string]string{
	"h100": `
memory.total_bytes: 81920 MiB
clocks.memory_max: 1593 MHz
clocks.video_max: 1980 MHz
bar1_memory.total_bytes: 262144 MiB
vbios_version: 96.00.74.00.09
pci.subsystem_id: 0x165810de
`,
	"a100-sxm4-40gb": `
pci.subsystem_id: 0x134710de
thermal.slowdown_threshold_c: 87 C
thermal.max_operating_c: 83 C
`,
	"gb200": `
devices: 8
pci.device_id: 0x233010de
memory.total_bytes: 196608 MiB
bar1_memory.total_bytes: 524288 MiB
power.default_limit_mw: 1000.00 W
power.enforced_limit_mw: 1000.00 W
power.min_limit_mw: 400.00 W
clocks.memory_max: 2500 MHz
clocks.graphics_max: 2100 MHz
`,
	"t4": `
name: NVIDIA T4
memory.total_bytes: 16384 MiB
bar1_memory.total_bytes: 262144 MiB
thermal.max_operating_c: 89 C
`,
}
