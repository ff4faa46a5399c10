package tests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// boardFacts are what public outputs of nvidia-smi -q -x say of boards of which no whole output is in testdata, with the nvidia-smi
// that is nearest to theirs.
var boardFacts = map[string]struct {
	smi    int
	leaves map[string]string
}{
	"l4": {555, map[string]string{
		"product_name": "NVIDIA L4", "fb_memory_usage/total": "23034 MiB", "fb_memory_usage/reserved": "434 MiB", "bar1_memory_usage/total": "32768 MiB",
		"gpu_power_readings/default_power_limit": "72.00 W", "gpu_power_readings/min_power_limit": "40.00 W", "gpu_power_readings/max_power_limit": "72.00 W",
		"max_clocks/graphics_clock": "2040 MHz", "max_clocks/sm_clock": "2040 MHz", "max_clocks/mem_clock": "6251 MHz", "max_clocks/video_clock": "1770 MHz",
		"temperature/gpu_temp_max_tlimit_threshold": "-5 C", "temperature/gpu_temp_slow_tlimit_threshold": "-2 C", "temperature/gpu_temp_max_gpu_tlimit_threshold": "0 C",
		"vbios_version": "95.04.29.00.06", "gpu_part_number": "27B8-895-A1", "board_part_number": "900-2G193-0000-001", "inforom_version/img_version": "G193.0200.00.01",
		"remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "96 bank(s)", "pci/pci_device_id": "27B810DE",
	}},
	"gb300": {555, map[string]string{
		"product_name": "NVIDIA GB300", "addressing_mode": "ATS", "vbios_version": "97.10.4A.00.1A", "board_part_number": "900-2G548-0081-000",
		"gpu_part_number": "31C2-893-A1", "c2c_mode": "Enabled", "gpu_virtualization_mode/virtualization_mode": "None", "pci/pci_device_id": "31C210DE",
		"pci/pci_sub_system_id": "21F110DE", "pci/pci_bus_id": "00000008:06:00.0", "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "6",
		"pci/pci_gpu_link_info/pcie_gen/max_device_link_gen": "6", "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen": "4",
		"fb_memory_usage/total": "284208 MiB", "fb_memory_usage/reserved": "947 MiB", "bar1_memory_usage/total": "524288 MiB",
		"ecc_mode/current_ecc": "Enabled", "remapped_rows/row_remapper_histogram/row_remapper_histogram_max": "5952 bank(s)",
		"temperature/gpu_temp_max_tlimit_threshold": "-5 C", "temperature/gpu_temp_slow_tlimit_threshold": "-2 C", "temperature/gpu_temp_max_gpu_tlimit_threshold": "0 C",
		"gpu_power_readings/default_power_limit": "1400.00 W", "gpu_power_readings/min_power_limit": "200.00 W", "gpu_power_readings/max_power_limit": "1400.00 W",
		"module_power_readings/default_power_limit": "2900.00 W", "module_power_readings/min_power_limit": "500.00 W", "module_power_readings/max_power_limit": "2900.00 W",
		"max_clocks/graphics_clock": "2070 MHz", "max_clocks/sm_clock": "2070 MHz", "max_clocks/mem_clock": "3996 MHz", "max_clocks/video_clock": "1912 MHz",
		"fabric/state": "Completed", "fabric/status": "Success", "fabric/cliqueId": "32766",
	}},
	"rtx-3090": {535, map[string]string{
		"product_name": "NVIDIA GeForce RTX 3090", "fb_memory_usage/total": "24576 MiB", "fb_memory_usage/reserved": "316 MiB", "bar1_memory_usage/total": "32768 MiB",
		"gpu_power_readings/default_power_limit": "350.00 W", "gpu_power_readings/min_power_limit": "100.00 W", "gpu_power_readings/max_power_limit": "375.00 W",
		"max_clocks/graphics_clock": "2100 MHz", "max_clocks/sm_clock": "2100 MHz", "max_clocks/mem_clock": "9751 MHz", "max_clocks/video_clock": "1950 MHz",
		"temperature/gpu_temp_max_threshold": "98 C", "temperature/gpu_temp_slow_threshold": "95 C", "temperature/gpu_temp_max_gpu_threshold": "93 C",
		"temperature/gpu_target_temperature": "83 C", "vbios_version": "94.02.71.40.72",
	}},
	"rtx-4080-super": {555, map[string]string{
		"product_name": "NVIDIA GeForce RTX 4080 SUPER", "fb_memory_usage/total": "16376 MiB", "fb_memory_usage/reserved": "434 MiB", "bar1_memory_usage/total": "16384 MiB",
		"gpu_power_readings/default_power_limit": "320.00 W", "gpu_power_readings/min_power_limit": "150.00 W", "gpu_power_readings/max_power_limit": "400.00 W",
		"temperature/gpu_temp_max_threshold": "101 C", "temperature/gpu_temp_slow_threshold": "96 C", "temperature/gpu_temp_max_gpu_threshold": "90 C",
		"temperature/gpu_target_temperature": "84 C", "vbios_version": "95.03.44.00.B2", "pci/pci_device_id": "270210DE", "pci/pci_sub_system_id": "51101462",
	}},
	"v100-sxm2-32gb": {418, map[string]string{
		"product_name": "Tesla V100-SXM2-32GB", "fb_memory_usage/total": "32480 MiB", "bar1_memory_usage/total": "32768 MiB",
		"power_readings/default_power_limit": "300.00 W", "power_readings/min_power_limit": "150.00 W", "power_readings/max_power_limit": "300.00 W",
		"max_clocks/graphics_clock": "1530 MHz", "max_clocks/sm_clock": "1530 MHz", "max_clocks/mem_clock": "877 MHz", "max_clocks/video_clock": "1372 MHz",
		"applications_clocks/graphics_clock": "1290 MHz", "temperature/gpu_temp_max_threshold": "90 C", "temperature/gpu_temp_slow_threshold": "87 C",
		"temperature/gpu_temp_max_gpu_threshold": "83 C", "temperature/gpu_temp_max_mem_threshold": "85 C", "vbios_version": "88.00.80.00.01",
		"inforom_version/img_version": "G503.0203.00.05", "inforom_version/oem_object": "1.1", "inforom_version/ecc_object": "5.0", "pci/pci_device_id": "1DB510DE",
	}},
	"a100-pcie-80gb": {550, map[string]string{
		"product_name": "NVIDIA A100 80GB PCIe", "product_architecture": "Ampere", "fabric/state": "N/A", "temperature/gpu_temp_tlimit": "N/A",
	}},
	"gb10": {555, map[string]string{
		"product_name": "NVIDIA GB10", "product_brand": "NVIDIA RTX", "fb_memory_usage/total": "N/A", "fb_memory_usage/used": "N/A", "bar1_memory_usage/total": "N/A",
		"gpu_power_readings/default_power_limit": "N/A", "pci/pci_device_id": "2E1210DE", "pci/pci_bus_id": "0000000F:01:00.0",
	}},
	"jetson-thor": {555, map[string]string{
		"fb_memory_usage/total": "N/A", "fb_memory_usage/used": "N/A", "bar1_memory_usage/total": "N/A", "pci/pci_device_id": "2B0010DE",
	}},
}

// TestBoardFacts: nvidia-smi prints of each of these boards what is known of it.
func TestBoardFacts(t *testing.T) {
	for name, board := range boardFacts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, board.smi, mustBoard(t, name), "NVMLFAB_PROFILE="+name)
			_, gpus := m.run(t, "-q", "-x").succeeds(t).elements(t)
			require.NotEmpty(t, gpus)
			for leaf, want := range board.leaves {
				got, ok := gpus[0][leaf]
				assert.True(t, ok, "%s is not printed", leaf)
				assert.Equal(t, want, got, leaf)
			}
		})
	}
}
