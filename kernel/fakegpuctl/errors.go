package fakegpuctl

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Error says what failed, why, and what to do next. errors.Is matches its errno, and errors such as fs.ErrNotExist.
type Error struct {
	Op     string // the operation, with its subject: "allocate 4096 bytes"
	Err    error  // mostly a unix.Errno
	Advice string // what to do next
}

func (e *Error) Error() string {
	if e.Advice == "" {
		return fmt.Sprintf("cannot %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("cannot %s: %v: %s", e.Op, e.Err, e.Advice)
}

func (e *Error) Unwrap() error { return e.Err }

const (
	loadIt   = "load the module with make -C kernel load MODULE=fakegpu, as root"
	strange  = "it is no fakegpu device, or of a module older than this program: build and load the module of the same release"
	noHandle = "use a handle that Alloc of this Device returned and Free has not had"
)

// opening replaces the request in errors of Open.
const opening = 0

var advice = map[uint32]map[unix.Errno]string{
	opening: {
		unix.ENOENT: "the module is not loaded: " + loadIt,
		unix.ENXIO:  "there is a node but no module for it: " + loadIt,
		unix.ENODEV: "there is a node but no module for it: " + loadIt,
		unix.EACCES: "run this as root, or have the administrator open the node to you",
		unix.ENOMEM: "the kernel is short of memory: free some and try again",
		unix.EMFILE: "each Device is a descriptor: close some, or raise the limit with ulimit -n",
	},
	ioctlAlloc: {
		unix.EINVAL: "ask for at least one byte",
		unix.ENOSPC: "this is more than a Device may hold, see Info: free allocations first, or load the module with greater context_bytes or max_handles",
		unix.ENOMEM: "others hold the memory of the GPU, see Info: try again when they have freed some, or load the module with greater device_bytes",
	},
	ioctlFree: {unix.EINVAL: noHandle},
	ioctlSubmit: {
		unix.EINVAL: noHandle,
		unix.EAGAIN: "too many jobs are under way: wait for one and try again, or load the module with greater max_jobs",
	},
	ioctlWait: {unix.EINVAL: "wait for a number that Submit of this Device returned"},
}

// explain makes an Error from an error of the kernel.
func explain(op string, request uint32, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Err: err}
	if errors.Is(err, os.ErrClosed) {
		e.Err, e.Advice = os.ErrClosed, "the Device is closed: open another"
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		e.Err, e.Advice = errno, advice[request][errno]
		if errno == unix.ENOTTY || errno == unix.EFAULT {
			e.Advice = strange
		}
	}
	return e
}
