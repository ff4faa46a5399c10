package machine

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrDriver is the error about a machine on which NVIDIA's kernel driver is loaded.
var ErrDriver = errors.New("NVIDIA's kernel driver is loaded on this machine, whose GPUs device nodes of the same numbers would open")

// CheckDriver returns ErrDriver on a machine on which NVIDIA's kernel driver is loaded. It does not take what nvmlfab shows for it,
// nor the kernel module fakegpu.
func CheckDriver() error { return checkDriver("/proc/driver/nvidia/version", "/sys/module/fakegpu") }

func checkDriver(version, module string) error {
	var where unix.Statfs_t
	if unix.Statfs(version, &where) != nil || where.Type != unix.PROC_SUPER_MAGIC {
		return nil
	}
	if _, err := os.Stat(module); err == nil {
		return nil
	}
	return ErrDriver
}
