//go:build cgo

// Package gpufilter lets a container that has only some of the host's GPUs open NVENC sessions.
//
// On drivers 570 to 595 such a session fails: libcuda and libnvcuvid ask NVIDIA's resource manager for all of the
// host's GPUs and give up if the device node of one does not open. The filter removes these GPUs from the answers. It
// changes the slots through which NVIDIA's libraries call ioctl, and nothing else in the process; docs/nvenc-filter.md
// has the details.
package gpufilter

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Variables that control the filter.
const (
	variable      = "NVMLFAB_GPUFILTER" // "off" turns it off
	debugVariable = "NVMLFAB_DEBUG"     // if set, the filter prints what it did on standard error
)

// libraries are the libraries that enumerate GPUs, without versions.
var libraries = []string{"libcuda.so", "libnvcuvid.so", "libnvidia-encode.so"}

var installing sync.Mutex

// Install puts the filter into the loaded NVIDIA libraries, if a GPU of the host is hidden from this process and
// NVMLFAB_GPUFILTER is not "off". Call it before every NVENC session: it costs next to nothing unless a library was
// loaded or unloaded since the last call. An error means that a library could not be changed and is as it was.
func Install() error {
	installing.Lock()
	defer installing.Unlock()
	if getenv(variable) == "off" {
		debugf("off, as %s says", variable)
		return nil
	}
	if unchanged() {
		return nil
	}
	objects, generation := loaded()
	var targets []*object
	for i := range objects {
		if o := &objects[i]; isTarget(o.name) {
			targets = append(targets, o)
		}
	}
	if len(targets) == 0 {
		debugf("no NVIDIA library is loaded")
		remember(generation, nil)
		return nil
	}
	gpus := thisHost.survey()
	debugf("GPUs that open: %s; that do not: %s", idList(gpus.keep), idList(gpus.hidden))
	if len(gpus.hidden) == 0 || len(gpus.keep) == 0 {
		remember(generation, nil)
		return nil
	}
	if err := publish(gpus.keep, thisHost.control()); err != nil {
		return err
	}
	var patched []uint64
	var failed []error
	for _, o := range targets {
		slots, err := o.patch()
		patched, failed = append(patched, slots...), append(failed, err)
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	remember(generation, patched)
	return nil
}

// patch directs o's calls of ioctl to the hook and returns the changed slots.
func (o *object) patch() ([]uint64, error) {
	release, ok := o.hold()
	if !ok { // it has been unloaded meanwhile
		return nil, nil
	}
	defer release()
	maps, err := readMaps()
	if err != nil {
		return nil, err
	}
	slots, err := o.slots(processMemory{maps}, machines[runtime.GOARCH], "ioctl")
	if err != nil {
		return nil, err
	}
	changed := 0
	for _, slot := range slots {
		if load(slot) == hook() {
			continue
		}
		protection, ok := maps.at(slot)
		if !ok {
			return nil, fmt.Errorf("%s: %#x is in no line of /proc/self/maps", o.name, slot)
		}
		if err := store(slot, hook(), protection); err != nil {
			return nil, fmt.Errorf("%s: cannot make %#x writable: %w", o.name, slot, err)
		}
		changed++
	}
	debugf("%s: %d of %d slots of ioctl changed", o.name, changed, len(slots))
	return slots, nil
}

// BoundImport returns the address that the first loaded object whose path contains object calls for symbol. That is a
// function or, for a lazy import that has not been called yet, a place in the object's own PLT. There is none if no
// such object is loaded, or if it does not import the symbol.
func BoundImport(object, symbol string) (address uintptr, ok bool) {
	objects, _ := loaded()
	for i := range objects {
		o := &objects[i]
		if !strings.Contains(o.name, object) {
			continue
		}
		release, ok := o.hold()
		if !ok {
			return 0, false
		}
		defer release()
		maps, err := readMaps()
		if err != nil {
			return 0, false
		}
		slots, err := o.slots(processMemory{maps}, machines[runtime.GOARCH], symbol)
		if err != nil || len(slots) == 0 || !maps.readable(slots[0], 8) {
			return 0, false
		}
		return load(slots[0]), true
	}
	return 0, false
}

// isTarget reports whether path is the path of one of the libraries, with or without a version.
func isTarget(path string) bool {
	base := filepath.Base(path)
	for _, name := range libraries {
		if version, ok := strings.CutPrefix(base, name); ok && (version == "" || version[0] == '.') {
			return true
		}
	}
	return false
}

func idList(ids []gpuID) string {
	if len(ids) == 0 {
		return "none"
	}
	var text []string
	for _, id := range ids {
		text = append(text, fmt.Sprintf("%#x", uint32(id)))
	}
	return strings.Join(text, " ")
}
