package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
*/
import "C"

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	library "github.com/nvmlfab/nvmlfab/library/host"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// process is the host.Host of the process that loaded the library.
type process struct{ handles }

func (p *process) Getenv(name string) string { return library.Getenv(name) }

func (p *process) Complain(line string) { library.Complain(line) }

func (p *process) Privileged() bool { return C.getauxval(C.AT_SECURE) != 0 }

func (p *process) Library() string {
	if p.space.path == nil {
		return ""
	}
	return C.GoString(p.space.path)
}

func (p *process) ReadFile(name string) ([]byte, error) { return profiles.Read(name) }

func (p *process) ProcessName(pid uint32) (string, bool) {
	dir := "/proc/" + strconv.FormatUint(uint64(pid), 10)
	if line, err := os.ReadFile(dir + "/cmdline"); err == nil {
		if name, _, _ := bytes.Cut(line, []byte{0}); len(name) > 0 {
			return string(name), true
		}
	}
	name, err := os.ReadFile(dir + "/comm") // of a kernel thread, or of one that has ended
	return strings.TrimSuffix(string(name), "\n"), err == nil
}

func (p *process) Now() time.Time { return time.Now() }

func (p *process) Booted() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(up.Nano()))
}

// processors are read once, since affinities ask for them with every call.
var processors = sync.OnceValue(func() []uint32 {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	var set profiles.CPUSet
	if err != nil || set.UnmarshalText(bytes.TrimSpace(text)) != nil {
		for i := range runtime.NumCPU() {
			set = append(set, uint32(i))
		}
	}
	return set
})

func (p *process) CPUs() []uint32 { return processors() }

func (p *process) SetCPUs(cpus []uint32) error {
	if cpus == nil {
		cpus = p.CPUs()
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(int(cpu))
	}
	return unix.SchedSetaffinity(0, &set)
}

func (p *process) Admin() bool { return syscall.Geteuid() == 0 || capable() }
