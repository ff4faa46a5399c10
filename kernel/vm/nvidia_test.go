//go:build guest

package kernel

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const gib = 1 << 30

// Two GPUs: instance 0 with 80 GiB is /dev/nvidia0, instance 1 with 1 GiB is /dev/nvidia3.
const (
	firstGPU  = "0000:1a:00.0/0/10de:2330/85899345920/GPU-4a4b4c4d-0000-1111-2222-333344445555/NVIDIA_H100_80GB_HBM3/96.00.89.00.01/52/580.105.08"
	secondGPU = "0001:02:03.1/3/10de:1eb8/1073741824/GPU-5a4b4c4d-0000-1111-2222-333344445555/Tesla_T4/90.04.96.00.02/47/N%2FA"
	someGPUs  = "gpus=" + firstGPU + "," + secondGPU
	firstID   = 0x1a00
	secondID  = 0x10203
)

func loadNvidia(t *testing.T) {
	t.Helper()
	load(t, "fakegpu", "nvidia=1", someGPUs)
}

// TestNvidiaExamples: the example programs work with the personality, with all ways to make calls.
func TestNvidiaExamples(t *testing.T) {
	loadNvidia(t)
	for _, options := range [][]string{nil, {"-x"}, {"-c"}, {"-u"}, {"-x", "-c", "-u", "-d", "1"}} {
		o := run(t, "rm_alloc_smoke", append(options, "67108864", "2", "0")...).succeeds(t)
		assert.Contains(t, o.stdout, "holding 134217728 bytes\n")
		o = run(t, "rm_vmm_smoke", append(options, "67108864", "2", "0")...).succeeds(t)
		assert.Contains(t, o.stdout, "holding 134217728 bytes\n")
		assert.Contains(t, o.stdout, "map 1: status 0, ")
		o = run(t, "rm_timeslice_smoke", append(options, "1500")...).succeeds(t)
		assert.Contains(t, o.stdout, "get: status 0, 1024 us\nset: status 0, 1500 us\nget: status 0, 1500 us\n")
	}
	o := run(t, "rm_alloc_smoke", "-d", "1", "536870912", "3", "0")
	assert.Equal(t, 3, o.code)
	assert.Contains(t, o.stdout, "alloc 2: status 0x51, ")
	assert.Equal(t, 1, run(t, "rm_alloc_smoke", "-d", "2", "1", "1", "0").code)
	assert.Equal(t, 2, run(t, "rm_alloc_smoke", "1", "1").code)
	assert.Equal(t, 3, run(t, "rm_timeslice_smoke", "0").code)
}

// ---- Calls outside the resource manager ----------------------------------------------------------------------------

func TestNvidiaOpen(t *testing.T) {
	loadNvidia(t)
	path := filepath.Join(t.TempDir(), "node")
	for _, minor := range []uint32{1, 2, 4, 247, 248, 254} {
		require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(195, minor))))
		_, err := unix.Open(path, unix.O_RDWR, 0)
		assert.ErrorIs(t, err, unix.ENODEV, "minor %d", minor)
		require.NoError(t, os.Remove(path))
	}
	fd := node(t, "nvidia3")
	assert.ErrorIs(t, unix.DeleteModule("fakegpu", unix.O_NONBLOCK), unix.EWOULDBLOCK, "a module that is in use")
	_, err := unix.Read(fd, make([]byte, 1))
	assert.Error(t, err)
	_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	assert.ErrorIs(t, err, unix.ENODEV)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLPRI}}, 0)
	assert.NoError(t, err)
	assert.Zero(t, n)
}

func TestNvidiaVersion(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs, "driver_version=550.163.01")
	ctl := node(t, "nvidiactl")
	for _, c := range []struct {
		command uint32
		version string
		want    error
	}{
		{0, "550.163.01", nil}, {0, "550.163.02", unix.EINVAL}, {0, "550.163.0", unix.EINVAL}, {0, "550.163.011", unix.EINVAL}, {0, "", unix.EINVAL},
		{'1', "550.1", nil}, {'1', "551.163.01", unix.EINVAL}, {'1', "550", unix.EINVAL}, {'1', "5500.1", unix.EINVAL},
		{'2', "", nil}, {'2', "anything", nil}, {'9', "550.163.01", nil}, {'9', "550.1", unix.EINVAL},
	} {
		v := versionParams{Command: c.command}
		copy(v.Version[:], c.version)
		assert.Equal(t, c.want, rmIoctl(ctl, escVersion, &v), "%c %s", c.command, c.version)
		assert.EqualValues(t, 1, v.Reply)
		if c.want != nil || c.command == '2' {
			assert.Equal(t, "550.163.01", text(v.Version[:]))
		}
	}
	full := versionParams{}
	for i := range full.Version {
		full.Version[i] = '5'
	}
	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escVersion, &full), "a text without end")
	assert.Equal(t, unix.EINVAL, rmIoctl(node(t, "nvidia0"), escVersion, &versionParams{Command: '2'}), "of a GPU's node")
	assert.Contains(t, read(t, "/proc/driver/nvidia/version"), "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  ")
}

func text(b []byte) string { s, _, _ := bytes.Cut(b, []byte{0}); return string(s) }

func TestNvidiaCardInfo(t *testing.T) {
	loadNvidia(t)
	ctl := node(t, "nvidiactl")
	var two [2]cardInfo
	require.NoError(t, rmIoctl(ctl, escCardInfo, &two))
	assert.Equal(t, cardInfo{Valid: 1, Bus: 0x1a, Vendor: 0x10de, Device: 0x2330, GPU: firstID, FBSize: 80 * gib}, two[0])
	assert.Equal(t, cardInfo{Valid: 1, Domain: 1, Bus: 2, Slot: 3, Function: 1, Vendor: 0x10de, Device: 0x1eb8, GPU: secondID, FBSize: gib, Minor: 3}, two[1])
	one := cardInfo{Valid: 7}
	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escCardInfo, &one), "no room for both")
	assert.Zero(t, one.Valid)
	assert.Equal(t, unix.EINVAL, rmIoctl(node(t, "nvidia0"), escCardInfo, &two), "of a GPU's node")
}

// TestNvidiaSizes: calls with another size, unknown calls and bad pointers get the right errors.
func TestNvidiaSizes(t *testing.T) {
	loadNvidia(t)
	ctl, gpu := node(t, "nvidiactl"), node(t, "nvidia0")
	sizes := map[uintptr][]int{
		escAllocMemory: {56}, escFree: {16}, escControl: {32}, escAlloc: {32, 48}, escDup: {28}, escHeap: {184}, escMapDMA: {56, 64}, escUnmapDMA: {40, 48},
		escRegisterFD: {4}, escAllocEvent: {16}, escFreeEvent: {16}, escStatusCode: {12}, escVersion: {72}, escXfer: {16}, escSysParams: {8}, escNUMAInfo: {560},
		escOpenComplete: {8},
	}
	for nr, right := range sizes {
		for _, fd := range []int{ctl, gpu} {
			var taken []int
			for size := 0; size < 600; size += 2 {
				if !slices.Contains(right, size) && rmIoctlBytes(fd, nr, make([]byte, size)) != unix.EINVAL {
					taken = append(taken, size)
				}
			}
			assert.Empty(t, taken, "number %d", nr)
		}
		for _, size := range right {
			assert.Equal(t, unix.EFAULT, rmIoctlAt(ctl, escape(nr, uintptr(size)), 0), "number %d", nr)
			assert.Equal(t, unix.EFAULT, rmIoctlAt(ctl, escape(nr, uintptr(size)), 0xffff800000000000), "number %d", nr)
			if nr != escXfer { // its structure is read separately
				assert.Equal(t, unix.EFAULT, rmIoctlAt(ctl, escape(nr, uintptr(size)), readOnly(t)), "number %d", nr)
			}
		}
	}
	for nr := range uintptr(256) {
		if _, known := sizes[nr]; !known && nr != escCardInfo && nr != escAttachGPUs {
			for _, size := range []int{0, 4, 16, 32, 16383} {
				assert.Equal(t, unix.EINVAL, rmIoctlBytes(ctl, nr, make([]byte, size)), "number %d", nr)
			}
		}
	}
	assert.Equal(t, unix.EINVAL, rmIoctlBytes(ctl, escAttachGPUs, nil))
	assert.Equal(t, unix.EINVAL, rmIoctlBytes(ctl, escAttachGPUs, make([]byte, 6)))
	// The letter and the direction of a command do not matter.
	v := versionParams{Command: '2'}
	address := at(&v)
	require.NoError(t, rmIoctlAt(ctl, 72<<16|'G'<<8|escVersion, uintptr(address)))
	assert.Equal(t, "580.105.08", text(v.Version[:]))
}

// readOnly is the address of a read-only page of zeros.
func readOnly(t *testing.T) uintptr {
	t.Helper()
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(page) })
	return uintptr(at(&page[0]))
}

// TestNvidiaXfer: the wrapper accepts structures up to its limit, and no other wrapper.
func TestNvidiaXfer(t *testing.T) {
	loadNvidia(t)
	ctl := node(t, "nvidiactl")
	cards := make([]byte, 16385)
	wrap := func(command, size uint32, pointer uint64) error {
		return rmIoctl(ctl, escXfer, &xferParams{command, size, pointer})
	}
	assert.NoError(t, wrap(escCardInfo, 16384, at(&cards[0])))
	assert.EqualValues(t, 1, cards[72])
	assert.Equal(t, unix.EINVAL, wrap(escCardInfo, 16385, at(&cards[0])))
	assert.Equal(t, unix.EINVAL, wrap(escCardInfo, 0xffffffff, at(&cards[0])))
	assert.Equal(t, unix.EFAULT, wrap(escCardInfo, 144, 0))
	assert.Equal(t, unix.EFAULT, wrap(escCardInfo, 144, uint64(readOnly(t))))
	inner := xferParams{escCardInfo, 144, at(&cards[0])}
	assert.Equal(t, unix.EINVAL, wrap(escXfer, 16, at(&inner)), "a wrapped wrapper")
	assert.Equal(t, unix.EINVAL, wrap(escCardInfo|1<<8, 144, at(&cards[0])), "more than a number")
	root := nvos64{Class: classRoot}
	require.NoError(t, wrap(escAlloc, 48, at(&root)))
	assert.Zero(t, root.Status)
	assert.NotZero(t, root.Object)
}

func TestNvidiaRegisterFD(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 0)
	other, gpu, second := node(t, "nvidiactl"), node(t, "nvidia0"), node(t, "nvidia3")
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(null)
	register := func(fd, ctl int) error { n := int32(ctl); return rmIoctl(fd, escRegisterFD, &n) }
	alloc := func(fd int) uint32 {
		call := nvos02{Root: c.client, Parent: c.device, Object: 0x77, Class: classSystem, Limit: 4095}
		require.NoError(t, rmIoctl(fd, escAllocMemory, &call))
		return call.Status
	}
	assert.EqualValues(t, rmInvalidClient, alloc(gpu), "before it is registered")
	for _, fd := range []int{-1, 9999, null, gpu, second} {
		assert.Equal(t, unix.EINVAL, register(gpu, fd))
	}
	assert.Equal(t, unix.EINVAL, register(other, other), "itself")
	require.NoError(t, register(gpu, c.ctl))
	assert.Equal(t, unix.EINVAL, register(gpu, c.ctl), "twice")
	assert.Zero(t, alloc(gpu))
	require.NoError(t, register(second, other))
	assert.EqualValues(t, rmInvalidClient, alloc(second), "registered with another")
	require.NoError(t, register(other, c.ctl))
	assert.Equal(t, unix.EINVAL, register(node(t, "nvidia0"), other), "one that is registered itself")

	// A client lives as long as its descriptor is open or in use.
	shut(t, c.ctl)
	assert.EqualValues(t, rmDuplicateName, alloc(gpu))
}

func TestNvidiaSmallCalls(t *testing.T) {
	loadNvidia(t)
	ctl, gpu := node(t, "nvidiactl"), node(t, "nvidia3")
	size, another := uint64(128<<20), uint64(64<<20)
	assert.NoError(t, rmIoctl(ctl, escSysParams, &size))
	assert.NoError(t, rmIoctl(node(t, "nvidiactl"), escSysParams, &size))
	assert.Equal(t, unix.EBUSY, rmIoctl(ctl, escSysParams, &another))
	assert.Equal(t, unix.EINVAL, rmIoctl(gpu, escSysParams, &size))

	for _, fd := range []int{ctl, gpu} {
		complete := [2]uint32{7, 7}
		assert.NoError(t, rmIoctl(fd, escOpenComplete, &complete))
		assert.Zero(t, complete)
		event := [4]uint32{1, 2, 3, 9}
		free := func() uint32 { require.NoError(t, rmIoctl(fd, escFreeEvent, &event)); return event[3] }
		alloc := func() uint32 { require.NoError(t, rmIoctl(fd, escAllocEvent, &event)); return event[3] }
		assert.EqualValues(t, rmInvalidEvent, free())
		assert.Zero(t, alloc())
		assert.EqualValues(t, rmNoResources, alloc())
		assert.Zero(t, free())
		assert.Zero(t, alloc())
	}

	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escAttachGPUs, &[2]uint32{firstID, 0x99}), "a GPU that is not there")
	assert.NoError(t, rmIoctl(ctl, escAttachGPUs, &[3]uint32{firstID, 0, secondID}))
	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escAttachGPUs, &[1]uint32{firstID}), "twice")
	assert.Equal(t, unix.EINVAL, rmIoctl(gpu, escAttachGPUs, &[1]uint32{firstID}), "of a GPU's node")

	numa := [140]int32{7, 7}
	assert.NoError(t, rmIoctl(gpu, escNUMAInfo, &numa))
	assert.Equal(t, []int32{-1, 0, 128 << 20, 0}, numa[:4])
	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escNUMAInfo, &numa), "of no GPU")

	code := struct {
		Domain          uint32
		Bus, Slot, _, _ uint8
		Status          uint32
	}{Domain: 1, Bus: 2, Slot: 3, Status: 9}
	assert.NoError(t, rmIoctl(ctl, escStatusCode, &code))
	assert.Zero(t, code.Status)
	code.Slot = 4
	assert.Equal(t, unix.EINVAL, rmIoctl(ctl, escStatusCode, &code))
}

// TestNvidiaUVM: the memory manager's node can be initialised. No GPU can be registered with it.
func TestNvidiaUVM(t *testing.T) {
	loadNvidia(t)
	const initialize, deinitialize, registerGPU, pageable, mm = 0x30000001, 0x30000002, 37, 39, 75
	fd, second := node(t, "nvidia-uvm"), node(t, "nvidia-uvm")
	type start struct {
		Flags     uint64
		Status, _ uint32
	}
	status := func(fd int, command uintptr, words ...uint32) uint32 {
		t.Helper()
		require.NoError(t, rmIoctlAt(fd, command, uintptr(at(&words[0]))))
		return words[len(words)-1]
	}
	const illegalAction, nothingToDo = 0x16, 0x10006
	assert.EqualValues(t, illegalAction, status(fd, pageable, 0, 9))
	assert.EqualValues(t, rmInvalidArgument, status(second, mm, uint32(fd), 9), "the first is not initialised")
	for _, s := range []struct {
		flags uint64
		want  uint32
	}{{4, rmInvalidArgument}, {2, 0}, {2, 0}, {1, rmInvalidArgument}} {
		p := start{Flags: s.flags, Status: 9}
		require.NoError(t, rmIoctlAt(fd, initialize, uintptr(at(&p))))
		assert.Equal(t, s.want, p.Status, "%d", s.flags)
	}
	assert.EqualValues(t, nothingToDo, status(second, mm, uint32(fd), 9))
	for _, bad := range []int{-1, 9999, node(t, "nvidiactl")} {
		assert.EqualValues(t, rmInvalidArgument, status(second, mm, uint32(bad), 9))
	}
	assert.Zero(t, status(fd, pageable, 1, 9))
	assert.EqualValues(t, rmNotSupported, status(fd, registerGPU, make([]uint32, 10)...))
	assert.NoError(t, rmIoctlAt(fd, deinitialize, 0))
	assert.Equal(t, unix.EINVAL, rmIoctlAt(fd, 76, 0))
	assert.Equal(t, unix.EFAULT, rmIoctlAt(fd, initialize, 0))
	assert.Equal(t, unix.EFAULT, rmIoctlAt(fd, initialize, readOnly(t)))
}

// ---- Lifetimes ------------------------------------------------------------------------------------------------------

// TestNvidiaFork: a client lives until the last process with its descriptor has ended, in whatever way.
func TestNvidiaFork(t *testing.T) {
	loadNvidia(t)
	fd, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	c := clientOn(t, fd, 1)
	_, status := c.memory(gib)
	require.Zero(t, status)
	cmd := exec.Command("/bin/rm_alloc_smoke", "1", "0", "1000")
	ctl := os.NewFile(uintptr(c.ctl), "nvidiactl")
	cmd.ExtraFiles = []*os.File{ctl}
	require.NoError(t, cmd.Start())
	require.NoError(t, ctl.Close())

	other := newClient(t, 1)
	_, status = other.memory(1)
	assert.EqualValues(t, rmNoMemory, status)
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	cmd.Wait()
	for range 100 { // a killed process's memory is freed a little later
		if _, status = other.memory(1); status == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	assert.Zero(t, status)
}

// holding is a process that holds memory of the second GPU.
type holding struct{ client, memory uint32 }

// startHolding starts such a process, which ends with the test.
func startHolding(t *testing.T) holding {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/rm_alloc_smoke", "-d", "1", "4096", "1", "1000")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var h holding
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "holding") {
		fmt.Sscanf(lines.Text(), "client: status 0, object 0x%x", &h.client)
		fmt.Sscanf(lines.Text(), "alloc 0: status 0, object 0x%x", &h.memory)
	}
	require.NotZero(t, h.client)
	require.NotZero(t, h.memory)
	return h
}
