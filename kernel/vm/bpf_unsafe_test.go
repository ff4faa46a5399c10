//go:build guest

package kernel

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// instruction is a BPF instruction.
type instruction struct {
	code      uint8
	registers uint8 // destination, source << 4
	offset    int16
	immediate int32
}

// loadDeviceFilter loads a program that allows a cgroup every device but one. It returns the program's descriptor. The
// kernel calls the program with a struct bpf_cgroup_dev_ctx in r1: access_type, major and minor, of 32 bits each.
func loadDeviceFilter(major, minor uint32) (int, error) {
	const load, jumpUnlessEqual, move, exit = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, unix.BPF_JMP | 0x50 | unix.BPF_K, 0xb0 | 0x07, 0x95
	program := []instruction{
		{code: load, registers: 2 | 1<<4, offset: 4},
		{code: load, registers: 3 | 1<<4, offset: 8},
		{code: move, registers: 0, immediate: 1},
		{code: jumpUnlessEqual, registers: 2, offset: 2, immediate: int32(major)},
		{code: jumpUnlessEqual, registers: 3, offset: 1, immediate: int32(minor)},
		{code: move, registers: 0, immediate: 0},
		{code: exit},
	}
	license := [4]byte{'G', 'P', 'L'}
	attributes := struct {
		kind, count             uint32
		instructions, license   uint64
		logLevel, logSize       uint32
		log                     uint64
		version, flags          uint32
		name                    [16]byte
		ifindex, expectedAttach uint32
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(program)),
		instructions: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
		expectedAttach: unix.BPF_CGROUP_DEVICE,
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	runtime.KeepAlive(program)
	runtime.KeepAlive(&license)
	return int(fd), result(errno)
}

// attachDeviceFilter attaches the program to a cgroup.
func attachDeviceFilter(program, cgroup int) error {
	attributes := struct{ target, program, kind, flags uint32 }{uint32(cgroup), uint32(program), unix.BPF_CGROUP_DEVICE, 0}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	return result(errno)
}
