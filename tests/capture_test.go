package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// capture runs nvmlfab capture on the product's own library.
func capture(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return run(t, with(library, env...), launcher(t), append([]string{"capture"}, args...)...)
}

// captureSummary is the last line that capture prints.
var captureSummary = regexp.MustCompile(`\d+ GPUs?, \d+ functions, \d+ calls: \d+ values are the same with the profile, \d+ change by themselves, (\d+) differ\n$`)

// TestCapture captures every shipped board. nvidia-smi and all getters of go-nvml answer with the profile as with the board.
func TestCapture(t *testing.T) {
	dir := t.TempDir()
	outcomes := map[string]outcome{}
	var wait sync.WaitGroup
	var mutex sync.Mutex
	room := make(chan struct{}, runtime.NumCPU())
	for _, name := range profiles.Names() {
		wait.Add(1)
		go func() {
			defer wait.Done()
			room <- struct{}{}
			defer func() { <-room }()
			out := capture(t, []string{"NVMLFAB_PROFILE=" + name}, "--keep-identifiers", "-o", filepath.Join(dir, name+".yaml"))
			mutex.Lock()
			defer mutex.Unlock()
			outcomes[name] = out
		}()
	}
	wait.Wait()
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			out := outcomes[name].succeeds(t)
			m := captureSummary.FindStringSubmatch(out.stderr)
			require.NotNil(t, m, out.stderr)
			t.Log(m[0])
			assert.Equal(t, "0", m[1], out.stderr)
			assert.Empty(t, out.stdout)
			file := filepath.Join(dir, name+".yaml")
			board, err := profiles.Load(file)
			require.NoError(t, err)
			assert.Equal(t, len(mustBoard(t, name).Devices), len(board.Devices))

			sameSMI(t, "NVMLFAB_PROFILE="+name, "MOCK_NVML_CONFIG="+file)
			sameGetters(t, [2]string{"NVMLFAB_PROFILE", name}, [2]string{"MOCK_NVML_CONFIG", file})
		})
	}
}

// sameSMI compares what nvidia-smi prints in two environments, but for the time. Readings that move have the same form.
func sameSMI(t *testing.T, first, second string) {
	t.Helper()
	before := parse(t, smi(t, []string{first}, "-q", "-x", "--dtd").succeeds(t).stdout)
	after := parse(t, smi(t, []string{second}, "-q", "-x", "--dtd").succeeds(t).stdout)
	steady := func(d document) (leaves []leaf) {
		for _, l := range d.leaves {
			if slices.Contains(readings, nameOf(l.path)) {
				l.value = form(l.value)
			}
			leaves = append(leaves, l)
		}
		return leaves
	}
	require.NotEmpty(t, before.leaves)
	assert.Equal(t, steady(before), steady(after))
}

// clocked are the getters whose values are the time, or grow with it.
var clocked = []string{"GetVgpuUtilization", "GetSamples", "GetProcessUtilization", "GetProcessesUtilizationInfo", "GetViolationStatus", "GetTotalEnergyConsumption",
	"GetNvLinkUtilizationCounter"}

// sameGetters compares what all getters of go-nvml answer in two environments.
func sameGetters(t *testing.T, first, second [2]string) {
	t.Helper()
	before := allGetters(t, first[0], first[1])
	assert.Greater(t, len(before), 500)
	assert.Equal(t, before, allGetters(t, second[0], second[1]))
}

// allGetters are the answers of all getters of go-nvml with a variable: those of the library, and those of each GPU and MIG device.
func allGetters(t *testing.T, variable, value string) []string {
	t.Helper()
	t.Setenv("NVMLFAB_PROFILE", "")
	t.Setenv("MOCK_NVML_CONFIG", "")
	t.Setenv(variable, value)
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(library, "libnvidia-ml.so.1")))
	require.Equal(t, nvml.SUCCESS, lib.Init())
	defer func() { assert.Equal(t, nvml.SUCCESS, lib.Shutdown()) }()
	n, ret := lib.DeviceGetCount()
	require.Equal(t, nvml.SUCCESS, ret)
	g := getters{}
	for i := range n {
		dev, ret := lib.DeviceGetHandleByIndex(i)
		require.Equal(t, nvml.SUCCESS, ret)
		g.devices = append(g.devices, dev)
	}
	g.of("library", reflect.ValueOf(&lib).Elem(), "SystemGet")
	for i, dev := range g.devices {
		g.of(fmt.Sprint("GPU ", i), reflect.ValueOf(&dev).Elem(), "Get")
		most, _ := dev.GetMaxMigDeviceCount()
		for m := range most {
			if mig, ret := dev.GetMigDeviceHandleByIndex(m); ret == nvml.SUCCESS {
				g.of(fmt.Sprintf("GPU %d MIG %d", i, m), reflect.ValueOf(&mig).Elem(), "Get")
			}
		}
	}
	return g.answers
}

// getters are the answers of getters, as text.
type getters struct {
	devices []nvml.Device
	answers []string
}

// of calls the getters of an object that take nothing, numbers or another GPU.
func (g *getters) of(name string, object reflect.Value, prefix string) {
	for i := range object.Type().NumMethod() {
		method := object.Type().Method(i).Name
		if !strings.HasPrefix(method, prefix) || slices.Contains(clocked, method) {
			continue
		}
		call := object.Method(i)
		if arguments, ok := g.arguments(call.Type()); ok {
			for _, in := range arguments {
				g.add(fmt.Sprintf("%s %s%v", name, method, written(in)), call.Call(in))
			}
		}
	}
}

// arguments are lists of arguments of a function, false if it takes something else.
func (g *getters) arguments(f reflect.Type) ([][]reflect.Value, bool) {
	all := [][]reflect.Value{nil}
	for i := range f.NumIn() {
		var values []reflect.Value
		switch in := f.In(i); {
		case f.IsVariadic() || in.Size() > 8 && in.Kind() != reflect.Interface:
			return nil, false
		case in == reflect.TypeFor[nvml.Device]():
			for _, dev := range g.devices {
				values = append(values, reflect.ValueOf(&dev).Elem())
			}
		case in.Kind() == reflect.Int || in.Kind() == reflect.Int32 || in.Kind() == reflect.Uint32 || in.Kind() == reflect.Uint64:
			for n := range 4 {
				values = append(values, reflect.ValueOf(n).Convert(in))
			}
		default:
			return nil, false
		}
		var more [][]reflect.Value
		for _, before := range all {
			for _, v := range values {
				more = append(more, append(slices.Clone(before), v))
			}
		}
		all = more
	}
	return all, true
}

// add notes an answer. If it has versions, each of them is asked.
func (g *getters) add(call string, out []reflect.Value) {
	if len(out) == 1 && out[0].Kind() == reflect.Struct && out[0].NumMethod() > 0 && strings.HasSuffix(out[0].Type().Name(), "Handler") {
		g.of(call, out[0], "V")
		return
	}
	g.answers = append(g.answers, fmt.Sprintf("%s = %v", call, written(out)))
}

// written is values as text. Handles of GPUs and MIG devices are no numbers that could be equal.
func written(values []reflect.Value) string {
	var all []string
	for _, v := range values {
		if dev, ok := v.Interface().(nvml.Device); ok {
			uuid, _ := dev.GetUUID()
			all = append(all, uuid)
			continue
		}
		if list, ok := v.Interface().([]nvml.Device); ok {
			for _, dev := range list {
				uuid, _ := dev.GetUUID()
				all = append(all, uuid)
			}
			continue
		}
		all = append(all, fmt.Sprintf("%+v", v.Interface()))
	}
	return pointer.ReplaceAllString("("+strings.Join(all, ", ")+")", "Array:pointer")
}

// pointer is a pointer in a struct.
var pointer = regexp.MustCompile(`Array:0x[0-9a-f]+`)

// TestCaptureIdentifiers: unless somebody keeps them, a capture has no identifier of the machine.
func TestCaptureIdentifiers(t *testing.T) {
	out := capture(t, []string{"NVMLFAB_PROFILE=gb200"}).succeeds(t)
	assert.Regexp(t, `, 0 differ\n$`, out.stderr)
	board, err := profiles.Parse("captured", []byte(out.stdout))
	require.NoError(t, err)
	shipped := mustBoard(t, "gb200")
	for i, d := range shipped.Devices {
		for _, id := range []string{string(d.UUID), d.Serial.Value, d.Platform.ChassisSerialNumber.Value, fmt.Sprint(d.Fabric.ClusterUUID.Value)} {
			require.NotEmpty(t, id)
			assert.NotContains(t, out.stdout, id)
		}
		assert.NotEqual(t, d.PDI, board.Devices[i].PDI)
		assert.Equal(t, d.PCI.BusID, board.Devices[i].PCI.BusID)
	}
	assert.Contains(t, out.stdout, "name: NVIDIA GB200 # nvmlDeviceGetName, driver "+shipped.System.DriverVersion.Value)
}

// TestCaptureReal: NVIDIA's own libraries answer that there is no driver.
func TestCaptureReal(t *testing.T) {
	for _, branch := range []string{"470", "535", "550"} {
		t.Run(branch, func(t *testing.T) {
			real := fetched(t, "libnvidia-ml-"+branch, "libnvidia-ml.so.1")
			file := filepath.Join(t.TempDir(), "profile.yaml")
			out := run(t, nil, launcher(t), "capture", "--library", real, "-o", file)
			assert.Equal(t, 1, out.code)
			assert.Contains(t, out.complains(t), "nvmlInit_v2 answers DRIVER_NOT_LOADED: NVIDIA's driver is not running here: load it")
			assert.NoFileExists(t, file)
		})
	}
}

// TestCaptureWithout: there is no library, no place for the profile, or nothing that would be a library.
func TestCaptureWithout(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.so")
	require.NoError(t, os.WriteFile(none, []byte("no library\n"), 0o644))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no library":      {nil, "there is no libnvidia-ml.so.1 on this machine, which comes with NVIDIA's driver: install the driver, or name the library by --library"},
		"no such file":    {[]string{"--library", filepath.Join(dir, "absent.so")}, "absent.so: cannot open shared object file"},
		"no library file": {[]string{"--library", none}, "the library cannot be loaded"},
		"another library": {[]string{"--library", filepath.Join(library, "libcuda-none.so.1")}, "it has neither nvmlInit_v2 nor nvmlInit, so it is no NVML library"},
		"a folder":        {[]string{"-o", dir}, "is a directory"},
		"no folder":       {[]string{"-o", none + "/profile.yaml"}, "not a directory"},
		"no time":         {[]string{"--timeout", "0s"}, "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, nil, launcher(t), append([]string{"capture"}, c.args...)...)
			assert.Equal(t, 1, out.code)
			assert.Contains(t, out.complains(t), c.want)
			assert.Empty(t, out.stdout)
		})
	}
}

// TestCaptureBadLibraries: what a library cannot do is left out and told, or ends the capture, in a time that has a bound.
func TestCaptureBadLibraries(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(root, "tests", "testdata", "capture.c")
	run(t, nil, "gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, "bad.so"), source, "-ldl").succeeds(t)
	bad := func(t *testing.T, what string, args ...string) outcome {
		return run(t, []string{"BAD=" + what, "BAD_LIBRARY=" + filepath.Join(library, "libnvidia-ml.so.1"), "NVMLFAB_PROFILE=l4"},
			launcher(t), append([]string{"capture", "--library", filepath.Join(dir, "bad.so"), "-o", filepath.Join(t.TempDir(), "profile.yaml")}, args...)...)
	}
	t.Run("crash", func(t *testing.T) {
		out := bad(t, "crash").succeeds(t)
		assert.Contains(t, out.stderr, "left out: nvmlDeviceGetSerial(GPU 0): the library ended its process: SEGMENTATION FAULT\n")
		assert.Regexp(t, `\d+ functions`, out.stderr)
	})
	t.Run("exit", func(t *testing.T) {
		assert.Contains(t, bad(t, "exit").succeeds(t).stderr, "left out: nvmlDeviceGetSerial(GPU 0): the library ended its process: exit status 3\n")
	})
	t.Run("hang", func(t *testing.T) {
		started := time.Now()
		assert.Contains(t, bad(t, "hang", "--timeout", "10s").succeeds(t).stderr, "left out: nvmlDeviceGetSerial(GPU 0): the call does not come back within 10s\n")
		assert.Less(t, time.Since(started), 10*time.Minute)
	})
	for what, want := range map[string]string{
		"crash at start": "the library ended its process: SEGMENTATION FAULT",
		"hang at start":  "the call does not come back within 2s",
		"hang at load":   "the call does not come back within 2s",
	} {
		t.Run(what, func(t *testing.T) {
			out := bad(t, what, "--timeout", "2s")
			assert.Equal(t, 1, out.code)
			assert.Contains(t, out.complains(t), want)
		})
	}
}
