package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everything is a board with the properties that the shipped boards lack, so that every getter has a value on some
// board. Its driver is the newest header's, its GPUs are at all topology levels from each other, and few of its numbers
// are equal.
const everything = `
extends: gb200
system: {driver_version: 615.36.04}
device_defaults:
  multi_gpu_board: true
  hostname: gpu-a
  irq: 131
  power_mizer: {mode: auto, modes: [adaptive, prefer_maximum]}
  performance_states:
    - {state: P0, graphics_min_mhz: 210, graphics_max_mhz: 2100, memory_min_mhz: 9501, memory_max_mhz: 9501}
    - {state: P8, graphics_min_mhz: 210, graphics_max_mhz: 420, memory_min_mhz: 405, memory_max_mhz: 405}
  inforom: {pwr_object: "3.0", checksum: 0xabcd}
  memory: {used_bytes: 4294967296, numa_node: 7, encryption_current: disabled, encryption_pending: enabled}
  pcie: {replay_counter: 11, replay_rollover_counter: 12, tx_throughput_kbps: 13, rx_throughput_kbps: 14,
    atomic_caps_outbound: 0x15}
  power: {source: ac, management_mode: disabled, requested_limit_mw: 900000, enforced_limit_mw: 800000, total_energy_consumption_mj: 16,
    smoothing: enabled}
  memory_power: {current_draw_mw: 17}
  thermal: {shutdown_threshold_c: 101, slowdown_threshold_c: 102, max_operating_c: 103, memory_max_operating_c: 104,
    target_temperature_c: 75, target_temperature_min_c: 65, target_temperature_max_c: 85}
  fan: {count: 2, speed_percent: 30, target_speed_percent: 35, speed_rpm: 1500}
  clocks: {adaptive: enabled, graphics_app: 1000, graphics_app_default: 1100, graphics_customer_boost_max: 1200, auto_boost: enabled,
    auto_boost_default: disabled}
  clocks_throttle_reasons: {gpu_idle: false, sw_power_cap: true, display_clocks_setting: true,
    counters: {sync_boost_us: 21, sw_thermal_slowdown_us: 22, hw_thermal_slowdown_us: 23, hw_power_brake_slowdown_us: 24}}
  performance_state: P3
  utilization: {gpu: 55, memory: 30, encoder: 5, decoder: 6, jpeg: 7, ofa: 8}
  encoder_stats: {session_count: 0, average_fps: 31, average_latency_us: 32}
  fbc_stats: {session_count: 0, average_fps: 33, average_latency_us: 34}
  processes:
    - {pid: 4001, type: C, name: /usr/bin/train, used_memory_mib: 1024, sm_util: 40, mem_util: 20, enc_util: 1, dec_util: 2, jpeg_util: 3, ofa_util: 4}
    - {pid: 4002, type: G, name: /usr/bin/draw, used_memory_mib: 512}
    - {pid: 4003, type: C+G}
  accounting: {mode: enabled, buffer_size: 41}
  ecc:
    default_mode: disabled
    errors:
      volatile:
        single_bit: {device_memory: 1, l1_cache: 2, l2_cache: 3, register_file: 4, texture_memory: 5}
        double_bit: {device_memory: 6, l2_cache: 7}
      aggregate:
        single_bit: {device_memory: 8, register_file: 9}
        double_bit: {device_memory: 10, texture_memory: 11}
    sram:
      volatile: {correctable: 12, uncorrectable_parity: 13, uncorrectable_secded: 14}
      aggregate: {correctable: 15, uncorrectable_parity: 16, uncorrectable_secded: 17}
      uncorrectable_sources: {l2: 18, sm: 19, microcontroller: 20, pcie: 21, other: 22}
      threshold_exceeded: true
    channel_repair_pending: true
    unrepairable_memory: true
  retired_pages:
    single_bit_retirement: {count: 2, addresses: [0x1000, 0x2000]}
    double_bit_retirement: {count: 1, addresses: [0x3000]}
    pending_retirement: true
  remapped_rows: {correctable: 1, uncorrectable: 2, correctable_inactive: 3, uncorrectable_inactive: 4, pending: true,
    failure_occurred: true, availability_histogram: {max: 5, high: 6, partial: 7, low: 8, none: 9}}
  display: {mode: enabled, active: enabled}
  gpu_operation_mode: {current: compute, pending: low_dp}
  driver_model: {current: wddm, pending: mcdm}
  virtualization: {mode: host_vgpu, host_vgpu_mode: sriov}
  egm: enabled
  fabric: {health_summary: limited_capacity, health: {degraded_bandwidth: true, incorrect_configuration: no_partition}}
nvlink:
  encrypted: true
  firmware: [{type: mse, version: 1.2.3}, {type: netir_uphy, version: 4.5.6}]
  defaults: {counter_seed: 51}
  links: [{link: 0, remote_index: 1}, {link: 1, state: inactive}]
units:
  - {name: S2050, id: P797, serial: "0320510", firmware_version: "6.2", intake_c: 21, exhaust_c: 35, board_c: 40, amber: fan 1,
    psu: {state: Normal, current_a: 80, voltage_v: 12, power_w: 960}, fans: [{speed_rpm: 4900}, {speed_rpm: 0, failed: true}],
    devices: [1, 0]}
topology:
  root_complexes:
    - {numa_node: 0, cpu_affinity: "0-3,70", devices: ["0000:29:00.0", "0000:3f:00.0"]}
    - {numa_node: 0, cpu_affinity: "4-7", devices: ["0000:9c:00.0"]}
    - {numa_node: 1, cpu_affinity: "64-67", devices: ["0000:b2:00.0"]}
`

// TestGoNVML loads the library into this process, which has a Go runtime of its own, as a device plugin does. On each
// board it compares the answers of all implemented functions.
func TestGoNVML(t *testing.T) {
	program, functions, seen := compile(t, "call"), implemented(t), answers{}
	for _, name := range compared() {
		t.Run(name, func(t *testing.T) {
			b, err := profiles.Shipped(name)
			require.NoError(t, err)
			show(t, b, program, seen, "NVMLFAB_PROFILE", name)
			t.Run("setters", func(t *testing.T) { trySetters(t, name, seen) })
		})
	}
	t.Run("everything", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "everything.yaml")
		require.NoError(t, os.WriteFile(path, []byte(everything), 0o644))
		b, err := profiles.Load(path)
		require.NoError(t, err)
		show(t, b, program, seen, "MOCK_NVML_CONFIG", path)
		badArguments(t, newCaller(t, program, "MOCK_NVML_CONFIG="+path), functions)
	})
	t.Run("MIG", func(t *testing.T) { migLives(t, program, seen) })
	t.Run("setters", func(t *testing.T) { setByGo(t, program, seen) })
	t.Run("vGPU", func(t *testing.T) { hostLives(t, program, seen) })
	t.Run("all functions", func(t *testing.T) { coverage(t, functions, seen) })
}

// show checks a board that an environment variable selects.
func show(t *testing.T, b *profiles.Board, program string, seen answers, variable, value string) {
	t.Setenv("NVMLFAB_STATE_DIR", stateDir(t))
	t.Setenv(variable, value)
	c := &checker{T: t, board: b, known: known(t, b), seen: seen, name: value}
	c.lib = nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
	require.Equal(t, nvml.SUCCESS, c.lib.Init())
	defer func() { c.says("nvmlShutdown", nvml.SUCCESS)(c.lib.Shutdown()) }()
	c.says("nvmlInitWithFlags", nvml.SUCCESS)(c.lib.InitWithFlags(nvml.INIT_FLAG_NO_ATTACH))
	c.says("nvmlShutdown", nvml.SUCCESS)(c.lib.Shutdown())

	for i := range b.Devices {
		dev, ret := c.lib.DeviceGetHandleByIndex(i)
		c.says("nvmlDeviceGetHandleByIndex_v2", nvml.SUCCESS)(dev, ret)
		c.handles = append(c.handles, dev)
	}
	_, ret := c.lib.DeviceGetHandleByIndex(len(b.Devices))
	require.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret)

	names := newCaller(t, program, variable+"="+value)
	c.says("nvmlInit", nvml.SUCCESS)(names.call("nvmlInit"))
	c.says("nvmlInit_v2", nvml.SUCCESS)(names.call("nvmlInit_v2"))
	c.system()
	c.systemByName(names)
	for i, dev := range c.handles {
		t.Run(fmt.Sprint("device ", i), func(t *testing.T) {
			c := *c
			c.T = t
			names := &caller{t, names.in, names.out}
			for _, check := range []func(nvml.Device, *profiles.Device){
				c.lookup, c.identity, c.pci, c.memory, c.modes, c.health, c.errors, c.power, c.thermal, c.clocks,
				c.utilization, c.processes, c.accounting, c.topology, c.binds, c.links, c.fabric, c.fields, c.states, c.details, c.gpm,
				c.vgpu,
			} {
				check(dev, &b.Devices[i])
			}
			c.byName(names, &b.Devices[i])
			c.olderLicences(names, &b.Devices[i])
		})
	}
}

// A checker compares the library's answers with a board, and notes the functions that it has checked.
type checker struct {
	*testing.T
	lib     nvml.Interface
	board   *profiles.Board
	handles []nvml.Device
	known   map[string]bool // the functions of the board's driver
	seen    answers
	name    string // of a shipped board, or anything else
	detail  string // what messages add to a function's name
}

// of is a checker that adds a detail to its messages.
func (c *checker) of(detail ...any) *checker {
	about := *c
	about.detail = " of " + fmt.Sprint(detail...)
	return &about
}

// says checks a call: c.says(SYMBOL, expected values...)(answered values..., return code). nil means an absent value,
// for which NOT_SUPPORTED is expected. A return code alone is expected as it is. A function later than the driver must
// not be found. Values are compared as text, since the bindings and the profiles use different integer types.
func (c *checker) says(symbol string, want ...any) func(answer ...any) {
	return func(answer ...any) {
		c.Helper()
		got, ret := answer[:len(answer)-1], answer[len(answer)-1]
		code, alone := want[0].(nvml.Return)
		switch {
		case !c.known[symbol]:
			code, alone = nvml.ERROR_FUNCTION_NOT_FOUND, true
		case slices.Contains(want, nil):
			code, alone = nvml.ERROR_NOT_SUPPORTED, true
		}
		c.seen.note(symbol, c.name, code == nvml.SUCCESS)
		what := symbol + c.detail
		if assert.Equal(c, code, ret, "return code of %s", what) && !alone {
			assert.Equal(c, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got), what)
		}
	}
}

// now checks a time in µs since 1970.
func (c *checker) now(symbol string, us uint64) {
	c.Helper()
	assert.WithinDuration(c, time.Now(), time.UnixMicro(int64(us)), time.Minute, symbol)
}

// when is a value if a condition holds, and absent otherwise.
func when[T ~bool](ok T, value any) any {
	if ok {
		return value
	}
	return nil
}

// given is the value of an Opt; absent if the Opt is not valid.
func given[T any](o profiles.Opt[T]) any { return when(o.Valid, o.Value) }

// bit converts an Opt of a boolean or a mode to NVML's number.
func bit[T ~bool](o profiles.Opt[T]) any { return when(o.Valid, number(o.Value)) }

func number[T ~bool](b T) uint32 {
	if b {
		return 1
	}
	return 0
}

// named converts an Opt of a name to NVML's number.
func named[N any](o profiles.Opt[string], numbers map[string]N) any {
	n, ok := numbers[o.Value]
	if o.Valid && !ok {
		panic(fmt.Sprintf("no number for %q in %v", o.Value, slices.Sorted(maps.Keys(numbers))))
	}
	return when(o.Valid, n)
}

// times is an Opt multiplied by a factor, for another unit.
func times(factor uint64, o profiles.Opt[uint64]) any { return when(o.Valid, factor*o.Value) }

// versioned is a struct with its version and size filled in.
func versioned[T any](version uint32, s T) T {
	reflect.ValueOf(&s).Elem().FieldByName("Version").SetUint(uint64(nvml.STRUCT_VERSION(s, version)))
	return s
}

// chars writes s into a C string.
func chars[C int8 | uint8](to []C, s string) {
	for i := range len(s) {
		to[i] = C(s[i])
	}
}

// branch is the number that the board's driver version begins with.
func branch(t *testing.T, b *profiles.Board) int {
	t.Helper()
	major, _, _ := strings.Cut(b.System.DriverVersion.Value, ".")
	n, err := strconv.Atoi(major)
	require.NoError(t, err)
	return n
}

// known are the functions of a board's driver: those of the newest header that is not later than the driver, and those that a
// library of the same branch was seen to export.
func known(t *testing.T, b *profiles.Board) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "nvml-headers", "versions.yaml"))
	require.NoError(t, err)
	var version string
	for _, m := range regexp.MustCompile(`(?m)^- \{nvml: "(.+?)",.* driver: (\d+)`).FindAllStringSubmatch(string(text), -1) {
		if driver, _ := strconv.Atoi(m[2]); driver <= branch(t, b) {
			version = m[1]
		}
	}
	functions := map[string]bool{}
	for _, symbol := range slices.Concat(declared(t, version), undeclared) {
		functions[symbol] = true
	}
	libraries, err := filepath.Glob(filepath.Join("testdata", "exports", fmt.Sprintf("%d.*.txt", branch(t, b))))
	require.NoError(t, err)
	for _, library := range libraries {
		text, err := os.ReadFile(library)
		require.NoError(t, err)
		for _, symbol := range strings.Fields(string(text)) {
			functions[symbol] = true
		}
	}
	return functions
}

// implemented lists the exported functions that are not stubs.
func implemented(t *testing.T) []string {
	t.Helper()
	stub := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bnvml[A-Z]\w*`).FindAllString(
		run(t, nil, "go", "run", "./generator", "--missing").succeeds(t).stdout, -1) {
		stub[name] = true
	}
	require.NotEmpty(t, stub)
	functions := exported(t, filepath.Join(library, "libnvidia-ml.so.1"))
	return slices.DeleteFunc(functions, func(name string) bool { return stub[name] })
}
