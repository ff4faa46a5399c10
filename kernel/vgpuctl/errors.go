package vgpuctl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Error says what failed, why, and what to do next. errors.Is matches its errno, and errors such as fs.ErrNotExist.
type Error struct {
	Op     string // the operation, with its subject: "set the policy of process 7 for GPU 0"
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
	loadIt  = "load the module with make -C kernel load, as root"
	beRoot  = "run this as root, in the initial user namespace: it takes CAP_SYS_ADMIN there"
	strange = "it is no vgpuctl device, or of a module older than this program: build and load the module of the same release"
)

// general is the advice for an errno of any request.
var general = map[unix.Errno]string{
	unix.EPERM:  beRoot,
	unix.EACCES: beRoot,
	unix.ENOTTY: strange,
	unix.EFAULT: strange,
	unix.ENOMEM: "the kernel is short of memory: free some and try again",
}

// particular is the advice for an errno of one request. It replaces the general advice.
var particular = map[uint32]map[unix.Errno]string{
	opening: {
		unix.ENOENT: "the module is not loaded: " + loadIt,
		unix.ENXIO:  "there is a node but no module for it: " + loadIt,
		unix.ENODEV: "there is a node but no module for it: " + loadIt,
	},
	IoctlSetMode: {
		unix.EPERM: "the module must have been loaded with allow_enforce=1 and know the driver, see vgpuctl status: " +
			"make -C kernel reload ALLOW_ENFORCE=1",
		unix.EINVAL: "this module has no such mode: want off, dry-run or enforce",
	},
	IoctlGetUsage:          {unix.ENOENT: unused, unix.ESRCH: noProcess},
	IoctlSetPolicy:         {unix.ESRCH: noProcess, unix.ENOSPC: tooMany, unix.EINVAL: badLimits},
	IoctlGetPolicy:         {unix.ESRCH: noProcess, unix.ENOENT: noPolicy},
	IoctlClearPolicy:       {unix.ESRCH: noProcess, unix.ENOENT: noPolicy},
	IoctlSetCgroupPolicy:   {unix.ENOENT: noCgroup, unix.ESRCH: noCgroup, unix.ENOSPC: tooMany, unix.EINVAL: badLimits},
	IoctlGetCgroupPolicy:   {unix.ENOENT: noPolicy},
	IoctlClearCgroupPolicy: {unix.ENOENT: noPolicy},
}

// These replace a request in errors of other operations.
const (
	opening = 0
	reading = 1
)

const (
	noProcess = "name a process that runs, by its number in this PID namespace"
	noCgroup  = "name a folder of cgroup2 that is there, and in this cgroup namespace, by its inode number"
	unused    = "it has used no GPU since the module was loaded, or is not there: vgpuctl usage shows all that have"
	noPolicy  = "there is no policy for exactly that: vgpuctl policy list shows those there are"
	tooMany   = "there is no room for more policies: clear some that are no longer needed"
	badLimits = "this module knows no such limits: build and load the module of the same release"
)

// explain makes an Error from an error of the kernel.
func explain(op string, request uint32, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Err: err}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		e.Err = errno
		if e.Advice = particular[request][errno]; e.Advice == "" {
			e.Advice = general[errno]
		}
	}
	return e
}
