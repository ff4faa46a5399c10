package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	uuid1 = "GPU-11111111-0000-0000-0000-000000000000"
	blank = " is empty: fill it in, write N/A for what the board does not have, or leave it out"
)

// TestErrors checks the whole text of each message, since programs and people find the mistake by it.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"empty":              {"", "1: is empty: want at least extends or devices"},
		"comments only":      {"# nothing\n", "1: is empty: want at least extends or devices"},
		"text":               {"just text\n", `1: want the sections of a profile, got text "just text"`},
		"list":               {"\n- a\n", "2: want the sections of a profile, got a list"},
		"no devices":         {"version: \"1.0\"\n", "1: there are no devices: give count, devices or extends"},
		"devices without":    {"devices: []\n", "1: there are no devices: give count, devices or extends"},
		"empty layer":        {"count: 1\n---\n", "3: nothing follows this ---: take it away, or write what changes"},
		"extends in a layer": {"count: 1\n---\ncount: 2\nextends: h100\n", "4: extends: only the first document of a profile names what it extends"},
		"typo in a layer":    {"count: 1\n---\ncount: 2\n---\nonyl: [1]\n", `5: unknown key "onyl" in the profile: did you mean "only"?`},
		"only unknown":       {"count: 2\nonly: [2]\n", "2: only[0]: there is no device 2"},
		"only nobody":        {"count: 2\nonly: []\n", "2: only names no device: leave it out to keep all"},
		"only nothing":       {"count: 2\nonly: N/A\n", "2: only names no device: leave it out to keep all"},
		"only twice":         {"count: 2\nonly: [1, 01]\n", "2: only[1]: device 1 is named twice"},
		"only nonsense":      {"count: 2\nonly: [first]\n", `2: only[0]: "first" is neither an index nor a UUID: bad UUID "first": want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits`},
		"not UTF-8":          {"count: 1\nname: \xff\xfe\n", "2: is not text in UTF-8"},
		"control characters": {"count: 1\n\n\x00\n", `3: holds the control character '\x00': want a text file`},
		"too big":            {strings.Repeat("# noise\n", 1<<20), "1: is larger than 4 MiB: want a smaller file"},

		"cut in a section": {"version: \"1\"\ndevices:\n", "2: devices" + blank},
		"cut in a key":     {"devices:\n  - uuid: " + uuid1 + "\n    ser", "3: is not YAML: could not find expected ':'"},
		"cut in a value":   {"devices:\n  - uuid: GPU-1", `2: devices[0].uuid: bad UUID "GPU-1": want GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal digits`},
		"cut in a string":  {"version: \"1.", "1: is not YAML: found unexpected end of stream"},
		"cut in a map":     {"devices:\n  - {index: 0\n", "2: is not YAML: did not find expected ',' or '}'"},
		"indentation":      {"count: 1\n  foo: 2\n", "2: is not YAML: mapping values are not allowed in this context"},
		"unknown anchor":   {"count: 1\nsystem: *s\n", "2: is not YAML: unknown anchor 's' referenced"},
		"too deep":         {strings.Repeat("[", 20000), "1: is not YAML: exceeded max depth of 10000"},

		"unknown section":    {"count: 1\nsistem: {}\n", `2: unknown key "sistem" in the profile: did you mean "system"?`},
		"unknown key":        {"count: 1\nsystem:\n  driver_versoin: \"1\"\n", `3: unknown key "driver_versoin" in system: did you mean "driver_version"?`},
		"unknown device key": {"devices:\n  - uid: x\n", `2: unknown key "uid" in devices[0]: did you mean "uuid"?`},
		"far from any key":   {"count: 1\nzzzzzzzzzz: 1\n", `2: unknown key "zzzzzzzzzz" in the profile`},
		"uuid for all":       {"count: 1\ndevice_defaults:\n  uuid: " + uuid1 + "\n", `3: unknown key "uuid" in device_defaults`},
		"key twice":          {"count: 1\n\ncount: 2\n", `3: key "count" given twice in the profile, first in line 1`},
		"section twice":      {"count: 1\ntopology: {}\npcie_topology: {}\n", "3: topology and pcie_topology are the same: keep one"},
		"key that is a list": {"? [a]\n: b\n", "1: the profile: want a name as key, got a list"},
		"missing key":        {"count: 1\ndevice_defaults:\n  processes:\n    - name: x\n", "4: device_defaults.processes[0]: pid is missing"},
		"empty value":        {"count: 1\nsystem:\n  driver_version:\n", "3: system.driver_version" + blank},
		"empty text":         {"count: 1\nsystem: {driver_version: \"\"}\n", "2: system.driver_version" + blank},

		"text for number":   {"count: lots\n", `1: count: want a whole number, got text "lots"`},
		"fraction":          {"count: 1.5\n", `1: count: want a whole number, got "1.5"`},
		"octal":             {"count: 010\n", "1: count: 010: a number does not start with 0"},
		"negative":          {"count: -1\n", "1: count: -1 is outside 0..4294967295"},
		"too large":         {"count: 99999999999\n", "1: count: 99999999999 is outside 0..4294967295"},
		"too negative":      {"count: 1\ndevice_defaults: {thermal: {tlimit_c: -3000000000}}\n", "2: device_defaults.thermal.tlimit_c: -3000000000 is outside -2147483648..2147483647"},
		"number for text":   {"count: 1\nsystem: {driver_version: 580.1}\n", "2: system.driver_version: want text, got the number 580.1: put it in quotes"},
		"yes for true":      {"count: 1\ndevice_defaults: {display: {attached: yes}}\n", `2: device_defaults.display.attached: want true or false, got text "yes"`},
		"map for number":    {"count: {}\n", "1: count: want a whole number, got keys and values"},
		"number for map":    {"count: 1\ndevice_defaults:\n  memory: 5\n", `3: device_defaults.memory: want keys and values, got "5"`},
		"number for list":   {"devices: 5\n", `1: devices: want a list, got "5"`},
		"text for list":     {"count: 1\nnvlink: {switches: four}\n", `2: nvlink.switches: want a list, got text "four"`},
		"entry not a map":   {"devices:\n  - [1]\n", "2: devices[0]: want keys and values, got a list"},
		"list for text":     {"extends: [h100]\n", "1: extends: want text, got a list"},
		"list for scalar":   {"devices: [{uuid: []}]\n", "1: devices[0].uuid: want text, got a list"},
		"not a number":      {"count: 1\ndevice_defaults: {failure: {probability: .nan}}\n", `2: device_defaults.failure.probability: want a number, got ".nan"`},
		"probability":       {"count: 1\ndevice_defaults: {failure: {probability: 2}}\n", "2: device_defaults.failure.probability: 2 is outside 0..1"},
		"percent":           {"count: 1\ndevice_defaults: {utilization: {gpu: 101}}\n", "2: device_defaults.utilization.gpu: 101 is outside 0..100"},
		"quoted percent":    {"count: 1\ndevice_defaults: {fan: {speed_percent: \"fast\"}}\n", `2: device_defaults.fan.speed_percent: bad percentage "fast": want 0 to 100`},
		"enum":              {"count: 1\ndevice_defaults: {compute_mode: shared}\n", `2: device_defaults.compute_mode: "shared" is not one of default, exclusive_thread, prohibited, exclusive_process`},
		"mode":              {"count: 1\ndevice_defaults: {persistence_mode: maybe}\n", `2: device_defaults.persistence_mode: "maybe" is neither enabled nor disabled`},
		"performance state": {"count: 1\ndevice_defaults: {performance_state: P16}\n", `2: device_defaults.performance_state: bad performance state "P16": want P0 to P15`},
		"page address":      {"count: 1\ndevice_defaults: {retired_pages: {double_bit_retirement: {addresses: [here]}}}\n", `2: device_defaults.retired_pages.double_bit_retirement.addresses[0]: bad address "here": want a number such as 0x1a2b`},
		"cluster UUID":      {"count: 1\ndevice_defaults: {fabric: {cluster_uuid: \"12\"}}\n", `2: device_defaults.fabric.cluster_uuid: bad cluster UUID "12": want 32 hexadecimal digits`},
		"CPU list":          {"count: 1\ntopology: {root_complexes: [{cpu_affinity: 0-99999999}]}\n", `2: topology.root_complexes[0].cpu_affinity: bad CPU list "0-99999999": want numbers below 8192 and ranges such as 0-71,80`},

		"clock list":  {"count: 1\ndevice_defaults: {supported_clocks: {memory_clocks: [{freq_mhz: 1, graphics_clocks: [1410, fast]}]}}\n", `2: device_defaults.supported_clocks.memory_clocks[0].graphics_clocks[1]: want a whole number, got text "fast"`},
		"clock map":   {"count: 1\ndevice_defaults: {supported_clocks: {memory_clocks: [{freq_mhz: 1, graphics_clocks: {}}]}}\n", "2: device_defaults.supported_clocks.memory_clocks[0].graphics_clocks: want a list or text, got keys and values"},
		"clock steps": {"count: 1\ndevice_defaults: {supported_clocks: {memory_clocks: [{freq_mhz: 1, graphics_clocks: 1410-210/15}]}}\n", `2: device_defaults.supported_clocks.memory_clocks[0].graphics_clocks: bad clocks "1410-210/15": want a list, or highest..lowest/step such as 1410..210/15`},

		"absent entry":       {"devices:\n  - name: A\n  - ~\n", "3: devices[1]: an entry of a list cannot be absent"},
		"absent bus id":      {"count: 1\ntopology: {root_complexes: [{devices: [N/A]}]}\n", "2: topology.root_complexes[0].devices[0]: an entry of a list cannot be absent"},
		"many entries":       {"devices: [" + strings.Repeat("{},", 10_001) + "]", "1: devices: 10001 entries are more than the 10000 that a board can have"},
		"no devices at all":  {"extends: h100\ncount: 0\n", "2: count: 0 is outside 1..10000"},
		"num_devices 0":      {"system:\n  num_devices: 0\n", "2: system.num_devices: 0 is outside 1..10000"},
		"index twice":        {"devices:\n  - index: 0\n  - index: 0\n", "3: devices[1]: index 0 is that of the entry in line 2"},
		"index too high":     {"count: 2\ndevices:\n  - index: 2\n", "3: devices[0]: index 2 is outside 0..1: number the entries from 0, or give a higher count"},
		"all-zero UUID":      {"devices:\n  - uuid: GPU-00000000-0000-0000-0000-000000000000\n", "2: devices[0].uuid: the all-zero UUID names no device: give each device its own, or none to have one generated"},
		"UUID twice":         {"devices:\n  - uuid: " + uuid1 + "\n  - index: 1\n    uuid: " + uuid1 + "\n", "4: devices[1].uuid: " + uuid1 + " is that of devices[0]"},
		"bad bus id":         {"devices:\n  - pci: {bus_id: \"01:00\"}\n", `2: devices[0].pci.bus_id: bad bus id "01:00": want domain:bus:device.function such as 0000:53:00.0`},
		"bad device number":  {"devices:\n  - pci: {bus_id: \"0000:01:20.0\"}\n", `2: devices[0].pci.bus_id: bad bus id "0000:01:20.0": a bus has devices 00 to 1f`},
		"bus id twice":       {"devices:\n  - pci: {bus_id: \"01:00.0\"}\n  - pci:\n      bus_id: \"00000000:01:00.0\"\n", "4: devices[1].pci.bus_id: 00000000:01:00.0 is that of devices[0]"},
		"bus id for all":     {"device_defaults:\n  pci: {bus_id: \"0000:01:00.0\"}\ncount: 2\n", "2: devices[1].pci.bus_id: 00000000:01:00.0 is that of devices[0]"},
		"minor number twice": {"devices:\n  - minor_number: 3\n  - minor_number: 3\n", "3: devices[1].minor_number: 3 is that of devices[0]"},
		"memory":             {"count: 1\ndevice_defaults:\n  memory: {total_bytes: 100, used_bytes: 60, reserved_bytes: 60}\n", "3: devices[0].memory: used and reserved are more than the total"},

		"unknown board":     {"count: 1\nextends: h1000\n", `2: extends: unknown board "h1000": did you mean "h100"?`},
		"no board like it":  {"extends: unlike any\n", `1: extends: unknown board "unlike any": want one of ` + strings.Join(Names(), ", ")},
		"merge with itself": {"count: 1\nsystem: &s\n  <<: *s\n", "2: system: the file's aliases describe more than a profile can hold"},
		"alias in itself":   {"count: 1\nnvlink: {links: &l [*l]}\n", "2: nvlink.links[0]: want keys and values, got a list"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse("dir/p.yaml", []byte(c.yaml))
			assert.EqualError(t, err, "dir/p.yaml:"+c.want)
			assert.Nil(t, b)
			var e *Error
			assert.ErrorAs(t, err, &e)
		})
	}
}

func TestAliasBomb(t *testing.T) {
	bomb := "count: 1\ndevice_defaults:\n  supported_clocks:\n    memory_clocks:\n" +
		"      - {freq_mhz: 1, graphics_clocks: &g [" + strings.Repeat("1,", 100_000) + "]}\n" +
		strings.Repeat("      - {freq_mhz: 1, graphics_clocks: *g}\n", 10_000)
	_, err := Parse("p.yaml", []byte(bomb))
	assert.ErrorContains(t, err, "the file's aliases describe more than a profile can hold")
}

func TestAliasBombOfRanges(t *testing.T) {
	bomb := "count: 1\ndevice_defaults:\n  supported_clocks:\n    memory_clocks:\n" +
		strings.Repeat("      - {freq_mhz: 1, graphics_clocks: 99999..1/1}\n", 10_000)
	_, err := Parse("p.yaml", []byte(bomb))
	assert.ErrorContains(t, err, "the file's aliases describe more than a profile can hold")
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	noise := bytes.Repeat([]byte{0xff, 0xad, 0, 'x'}, 10<<20/4)
	for _, c := range []struct{ path, want string }{ // a line only where one has been read
		{filepath.Join(dir, "none.yaml"), ": cannot be read: no such file or directory"},
		{dir, ": is a directory: want a file"},
		{pipe, ": is not a regular file"},
		{"/dev/null", ": is not a regular file"},
		{file("empty", nil), ":1: is empty: want at least extends or devices"},
		{file("noise", noise), ": is larger than 4 MiB: want a smaller file"},
		{file("short-noise", noise[:1000]), ":1: is not text in UTF-8"},
	} {
		_, err := Load(c.path)
		assert.EqualError(t, err, c.path+c.want)
	}
}

func TestLoadWithoutPermission(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	require.NoError(t, os.WriteFile(path, []byte("count: 1\n"), 0))
	runtime.LockOSThread() // the kernel keeps the file system's uid for each thread
	defer runtime.UnlockOSThread()
	syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
	defer syscall.RawSyscall(syscall.SYS_SETFSUID, uintptr(os.Getuid()), 0, 0)
	_, err := Load(path)
	assert.EqualError(t, err, path+": cannot be read: permission denied")
}

func TestLoadFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real"), []byte("count: 2\n"), 0o600))
	link := filepath.Join(dir, "board.yml")
	require.NoError(t, os.Symlink("real", link))
	b, err := Load(link)
	require.NoError(t, err)
	assert.Equal(t, "board", b.Name)
	assert.Len(t, b.Devices, 2)
}

func TestExtendsCircle(t *testing.T) {
	source := func(name string) ([]byte, error) {
		next, ok := map[string]string{"a": "b", "b": "c", "c": "a"}[name]
		if !ok {
			return nil, errors.New("unknown")
		}
		return fmt.Appendf(nil, "extends: %s\n", next), nil
	}
	_, err := parseChain("a", source, nil)
	assert.EqualError(t, err, "a.yaml:1: extends: b.yaml:1: extends: c.yaml:1: extends: goes round in a circle: a, b, c, a")
}

// FuzzParse: any file gives a board or an error with a line, and never a panic.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		source, err := Source(name)
		require.NoError(f, err)
		f.Add(source)
	}
	published, err := os.ReadFile("testdata/published-keys.yaml")
	require.NoError(f, err)
	f.Add(published)
	for _, seed := range []string{
		"", "count: 1\n", "extends: h100\ncount: 3\n", "devices:\n  - uuid: " + uuid1 + "\n", "a: &a [*a]\n", "<<: {count: 1}\n",
		"count: 1\nsystem: &s\n  <<: *s\n", "nvlink: {links: [{link: 0}]}\ncount: 1\n", "count: !!int \"1\"\n", "? {}\n: 1\n", "- - -\n", "count: 0x1\n...\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse("p.yaml", data)
		if err == nil {
			require.NotEmpty(t, b.Devices)
			return
		}
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Positive(t, e.Line)
		require.LessOrEqual(t, e.Line, 1+bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r")))
	})
}

func TestTexts(t *testing.T) {
	for text, want := range map[string]string{
		"device_defaults: {name: \"A\\nB\"}":                       "x.yaml:2: device_defaults.name: \"A\\nB\" holds a control character",
		"device_defaults: {name: \"A\\eB\"}":                       "holds a control character",
		"device_defaults: {name: " + strings.Repeat("x", 96) + "}": "x.yaml:2: device_defaults.name: 96 bytes are more than the 95 that programs have room for",
		"system: {driver_version: abc}":                            "x.yaml:2: system.driver_version: \"abc\" is no version: want numbers between dots",
		"system: {driver_version: ' 550.1'}":                       "is no version",
		"system: {driver_version: '550..1'}":                       "is no version",
		"system: {driver_version: '-1.0.0'}":                       "is no version",
		"device_defaults: {name: \"A\\u202eB\"}":                   "device_defaults.name: \"A\\u202eB\" holds a character that changes the direction of text",
		"device_defaults: {serial: \"1\\t2\"}":                     "device_defaults.serial: \"1\\t2\" holds a control character",
	} {
		_, err := Parse("x.yaml", []byte("extends: h100\n"+text))
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"device_defaults: {name: " + strings.Repeat("x", 95) + "}", "system: {driver_version: '550'}", "device_defaults: {name: 'Grün <&>'}"} {
		_, err := Parse("x.yaml", []byte("extends: h100\n"+text))
		require.NoError(t, err, text)
	}
}
