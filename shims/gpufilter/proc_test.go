package gpufilter

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const someMaps = `55d0c0a00000-55d0c0a21000 r--p 00000000 fe:01 1234                       /usr/bin/x
55d0c0a21000-55d0c0a80000 r-xp 00021000 fe:01 1234                       /usr/bin/x
7f0e4a000000-7f0e4a021000 rw-p 00000000 00:00 0
7f0e4a021000-7f0e4e000000 ---p 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestParseMaps(t *testing.T) {
	maps := parseMaps(someMaps)
	require.Len(t, maps, 5)
	for addr, want := range map[uint64]protection{
		0x55d0c0a00000: protRead, 0x55d0c0a20fff: protRead, 0x55d0c0a21000: protRead | protExec,
		0x7f0e4a020ff8: protRead | protWrite, 0x7f0e4a021000: 0, 0xffffffffff600000: protExec,
	} {
		got, ok := maps.at(addr)
		assert.True(t, ok, "%#x", addr)
		assert.Equal(t, want, got, "%#x", addr)
	}
	for _, addr := range []uint64{0, 0x55d0c09fffff, 0x55d0c0a80000, 0x7f0e4e000000, ^uint64(0)} {
		_, ok := maps.at(addr)
		assert.False(t, ok, "%#x", addr)
	}
	for _, c := range []struct {
		addr, n uint64
		want    bool
	}{
		{0x55d0c0a00000, 0x80000, true}, // over two mappings
		{0x55d0c0a00000, 0x80001, false},
		{0x55d0c09fffff, 2, false},
		{0x7f0e4a020fff, 1, true},
		{0x7f0e4a020fff, 2, false},
		{0xffffffffff600000, 1, false},
		{0x55d0c0a00000, ^uint64(0), false},
		{0, 0, true},
	} {
		assert.Equal(t, c.want, maps.readable(c.addr, c.n), "%#x %#x", c.addr, c.n)
	}
}

func TestParseMapsLeavesOutWhatIsNoLine(t *testing.T) {
	for _, line := range []string{"", "\n", "x", "1-2", "1-2 ", "1-2 rw", "1-2 rwq-", "2-1 rw-p", "1-1 rw-p", "g-h rw-p", "1 rw-p",
		"1-11111111111111111 rw-p", "-1 rw-p"} {
		assert.Empty(t, parseMaps(line), line)
	}
	assert.Len(t, parseMaps("garbage\n20-30 rw-p 0\n10-20 r--p"), 2)
}

func TestOwnMaps(t *testing.T) {
	maps, err := readMaps()
	require.NoError(t, err)
	p, ok := maps.at(uint64(hook()))
	assert.True(t, ok)
	assert.Equal(t, protRead|protExec, p)
}

func TestParseAddress(t *testing.T) {
	for address, want := range map[string]gpuID{
		"0000:01:00.0":     0x100,
		"0000:ff:1f.7":     0xffff&0xff<<8 | 0x1f,
		"0001:01:00.0":     0x10100,
		"0009:01:00.0":     0x90100,
		"ffff:00:00.0":     0xffff0000,
		"00000008:06:00.0": 0x80600, // some programs write it like this
		"10000:e1:00.0":    0xe100,  // more than 16 bits
		"0000:1B:00.0":     0x1b00,
	} {
		got, ok := parseAddress(address)
		assert.True(t, ok, address)
		assert.Equal(t, want, got, address)
	}
	for _, address := range []string{"", ".", "..", "0000:01:00", "01:00.0", "0000:01:00.0.0", "0000:100:00.0", "0000:01:20.0", "0000:01:00.8",
		"0000:01:00.0 ", "-1:01:00.0", "100000000:00:00.0", "module", "bind", "0000:01:00:0.0"} {
		_, ok := parseAddress(address)
		assert.False(t, ok, address)
	}
}

const information = "Model: \t\t NVIDIA L4\nIRQ:   \t\t 124\nGPU UUID: \t GPU-????????-????-????-????-????????????\nVideo BIOS: \t ??.??.??.??.??\n" +
	"Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t 0000:01:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n"

func TestParseMinor(t *testing.T) {
	for text, want := range map[string]int{information: 3, "Device Minor:255": 255, "Device Minor: \t 0\n": 0} {
		got, ok := parseMinor(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "Device Minor:", "Device Minor: x", "Device Minor: -1", "Device Minor: 99999999999999999999",
		"Device Minor: ../sda", "Minor: 3", strings.Replace(information, "Device Minor: \t 3\n", "", 1)} {
		_, ok := parseMinor(text)
		assert.False(t, ok, text)
	}
}

// fakeHost makes folders of a host: addresses with minor numbers in /proc, addresses in /sys, and device nodes that
// open in /dev.
func fakeHost(t *testing.T, proc map[string]string, sys, dev []string) host {
	t.Helper()
	root := t.TempDir()
	h := host{gpus: filepath.Join(root, "gpus"), driver: filepath.Join(root, "driver"), dev: filepath.Join(root, "dev")}
	write := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for address, minor := range proc {
		write(filepath.Join(h.gpus, address, "information"), "Device Minor: \t "+minor+"\n")
	}
	for _, name := range sys {
		write(filepath.Join(h.driver, name), "")
	}
	for _, name := range dev {
		write(filepath.Join(h.dev, name), "")
	}
	return h
}

func TestSurvey(t *testing.T) {
	for name, c := range map[string]struct {
		proc     map[string]string
		sys, dev []string
		want     survey
	}{
		"no driver": {nil, nil, nil, survey{}},
		"some": {map[string]string{"0000:01:00.0": "1", "0000:02:00.0": "0", "0001:01:00.0": "2"}, nil, []string{"nvidia0", "nvidia2"},
			survey{[]gpuID{0x200, 0x10100}, []gpuID{0x100}}},
		"a node that is none": {map[string]string{"0000:01:00.0": "1", "0000:02:00.0": "0"}, nil, []string{"nvidia0", "nvidia1/folder"},
			survey{[]gpuID{0x200}, []gpuID{0x100}}},
		"no minor": {map[string]string{"0000:01:00.0": "?", "0000:02:00.0": "0"}, nil, []string{"nvidia0", "nvidia"},
			survey{[]gpuID{0x200}, []gpuID{0x100}}},
		"masked in proc": {map[string]string{"0000:02:00.0": "0"}, []string{"0000:02:00.0", "0000:03:00.0", "bind", "module"}, []string{"nvidia0"},
			survey{[]gpuID{0x200}, []gpuID{0x300}}},
		"one id for two": {map[string]string{"0000:01:00.0": "0", "10000:01:00.0": "1"}, nil, []string{"nvidia1"},
			survey{[]gpuID{0x100}, nil}},
		"something else there": {map[string]string{"0000:01:00.0": "0", "readme": "1"}, nil, []string{"nvidia0"},
			survey{[]gpuID{0x100}, nil}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, fakeHost(t, c.proc, c.sys, c.dev).survey()) })
	}
}

// TestSurveyKeepsNoDescriptors: a survey leaves no descriptor open, not even those of Go's poller.
func TestSurveyKeepsNoDescriptors(t *testing.T) {
	h := fakeHost(t, map[string]string{"0000:01:00.0": "0"}, nil, []string{"nvidia0"})
	before := descriptors()
	h.survey()
	_, err := readMaps()
	require.NoError(t, err)
	assert.Equal(t, before, descriptors())
}

func descriptors() (open []int) {
	for fd := range 1000 {
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); errno == 0 {
			open = append(open, fd)
		}
	}
	return open
}

func TestControl(t *testing.T) {
	assert.Zero(t, host{dev: t.TempDir()}.control(), "there is no nvidiactl")
	h := fakeHost(t, nil, nil, []string{"nvidiactl"})
	assert.Zero(t, h.control(), "it is no device")
	require.NoError(t, os.Remove(filepath.Join(h.dev, "nvidiactl")))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(h.dev, "nvidiactl")))
	assert.EqualValues(t, 1<<8|3, h.control())
}

func TestIsTarget(t *testing.T) {
	for _, path := range []string{"/usr/lib/libcuda.so.1", "libcuda.so", "libnvcuvid.so.570.00", "/a/libcuda.so.x/libnvidia-encode.so.1"} {
		assert.True(t, isTarget(path), path)
	}
	for _, path := range []string{"", "/", "libcudart.so.12", "libcuda.so1", "libcuda", "mylibcuda.so.1", "/usr/lib/libcuda.so.1/x", "libnvidia-ml.so.1"} {
		assert.False(t, isTarget(path), path)
	}
}

func FuzzProc(f *testing.F) {
	for _, text := range []string{someMaps, information, "0001:01:00.0", "10-20 rw-p", "Device Minor: 3"} {
		f.Add(text, uint64(0x7f0e4a000000), uint64(8))
	}
	f.Fuzz(func(t *testing.T, text string, addr, n uint64) {
		maps := parseMaps(text)
		p, ok := maps.at(addr)
		if readable := maps.readable(addr, n); readable && n > 0 && (!ok || p&protRead == 0 || addr+n < addr) {
			t.Errorf("%d bytes from %#x are readable", n, addr)
		}
		if minor, ok := parseMinor(text); ok && (minor < 0 || minor >= 1<<20) {
			t.Errorf("minor %d", minor)
		}
		parseAddress(text)
	})
}
