//go:build cgo

package gpufilter

import (
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// host are the folders in which to look for GPUs and their device nodes.
type host struct{ gpus, driver, dev string }

var thisHost = host{gpus: "/proc/driver/nvidia/gpus", driver: "/sys/bus/pci/drivers/nvidia", dev: "/dev"}

// survey is the result of a search for the host's GPUs.
type survey struct {
	keep   []gpuID // GPUs whose node opens, in ascending order
	hidden []gpuID // the others
}

// survey opens every GPU's device node. It is not enough that a node exists: some runtimes create all nodes, and the
// device cgroup refuses to open some of them.
func (h host) survey() survey {
	reachable := map[gpuID]bool{}
	for _, name := range readDir(h.gpus) { // without a driver there are no GPUs
		id, ok := parseAddress(name)
		if !ok {
			continue
		}
		information, _ := readFile(filepath.Join(h.gpus, name, "information"))
		minor, ok := parseMinor(information)
		reachable[id] = reachable[id] || ok && h.opens("nvidia"+strconv.Itoa(minor))
	}
	// In /proc a runtime may show a container only its own GPUs. In /sys the container sees all GPUs of the driver.
	for _, name := range readDir(h.driver) {
		id, ok := parseAddress(name)
		if _, known := reachable[id]; ok && !known {
			reachable[id] = false
		}
	}

	var s survey
	for id, ok := range reachable {
		if ok {
			s.keep = append(s.keep, id)
		} else {
			s.hidden = append(s.hidden, id)
		}
	}
	slices.Sort(s.keep)
	slices.Sort(s.hidden)
	return s
}

// opens reports whether a device node opens for reading and writing.
func (h host) opens(node string) bool {
	fd, err := open(filepath.Join(h.dev, node), syscall.O_RDWR)
	if err != nil {
		return false
	}
	syscall.Close(fd)
	return true
}

// control returns the device number of nvidiactl, or 0 if it cannot be determined.
func (h host) control() uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(h.dev, "nvidiactl"), &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFCHR {
		return 0
	}
	return st.Rdev
}

// These functions avoid package os, which would leave the two descriptors of Go's poller open in the host's process.

func open(path string, flags int) (fd int, err error) {
	for {
		fd, err = syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readAll calls read until it returns 0, and passes on everything that was read.
func readAll(path string, flags int, read func(fd int, b []byte) (int, error), take func([]byte)) error {
	fd, err := open(path, flags)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	b := make([]byte, 16<<10)
	for {
		switch n, err := read(fd, b); {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return nil
		default:
			take(b[:n])
		}
	}
}

func readFile(path string) (string, error) {
	var text []byte
	err := readAll(path, syscall.O_RDONLY, syscall.Read, func(b []byte) { text = append(text, b...) })
	return string(text), err
}

// readDir returns the names in a folder; none if the folder cannot be read.
func readDir(path string) []string {
	var names []string
	err := readAll(path, syscall.O_RDONLY|syscall.O_DIRECTORY, syscall.ReadDirent, func(b []byte) {
		_, _, names = syscall.ParseDirent(b, -1, names)
	})
	if err != nil {
		return nil
	}
	return names
}
