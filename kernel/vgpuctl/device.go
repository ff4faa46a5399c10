// Package vgpuctl sets what tasks and cgroups may use of the GPUs of NVIDIA's driver, and tells what they do use. It speaks
// to the kernel module vgpu through /dev/vgpuctl; docs/vgpuctl.md describes the interface and docs/vgpu-device-plugin.md
// how a device plugin gives a container its policy.
package vgpuctl

import (
	"fmt"
)

// Path is where the device is.
const Path = "/dev/vgpuctl"

// Device is an open device. It may be used by several goroutines at a time.
type Device struct{ driver Driver }

// Open opens the device, which takes CAP_SYS_ADMIN in the initial user namespace.
func Open() (*Device, error) { return OpenPath(Path) }

// OpenPath opens the device where its node is elsewhere.
func OpenPath(path string) (*Device, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, explain("open "+path, opening, err)
	}
	d := New(f)
	info, err := d.Info()
	if err == nil && info.ABIVersion < ABIVersion {
		err = &Error{"use " + path, fmt.Errorf("its interface is version %d, want %d", info.ABIVersion, ABIVersion), strange}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// New makes a device of what drives it.
func New(driver Driver) *Device { return &Device{driver} }

// Close closes the device. What was set stays.
func (d *Device) Close() error { return d.driver.Close() }

func call[T wire](d *Device, op string, request uint32, argument *T) error {
	return explain(op, request, d.driver.Ioctl(request, bytesOf(argument)))
}

// Info tells how the module stands.
func (d *Device) Info() (Info, error) {
	var info Info
	err := call(d, "ask the module how it stands", IoctlGetInfo, &info)
	return info, err
}

// SetMode changes what the module does with what it sees. EPERM, of ModeEnforce: the module may not, see Info.MayEnforce.
func (d *Device) SetMode(mode Mode) error {
	return call(d, fmt.Sprintf("set the mode %s", mode), IoctlSetMode, &mode)
}

// Stats counts what the module has seen and done.
func (d *Device) Stats() (Stats, error) {
	var stats Stats
	err := call(d, "read the counts", IoctlGetStats, &stats)
	return stats, err
}

// TaskUsage is what a process uses of a GPU, or of all with MinorAny. tgid is as in the caller's PID namespace.
// ESRCH: there is no such process; ENOENT: it has used no GPU.
func (d *Device) TaskUsage(tgid uint32, minor Minor) (Usage, error) {
	usage := Usage{Tgid: tgid, Minor: minor}
	op := fmt.Sprintf("read what process %d uses of %s", tgid, gpu(minor))
	if tgid == 0 {
		return usage, &Error{op, errZero, noProcess}
	}
	err := call(d, op, IoctlGetUsage, &usage)
	return usage, err
}

// CgroupUsage is what a cgroup and those below it use of a GPU, or of all with MinorAny. ENOENT: they
// have used no GPU, or there is no such cgroup.
func (d *Device) CgroupUsage(id uint64, minor Minor) (Usage, error) {
	usage := Usage{CgroupID: id, Minor: minor}
	err := call(d, fmt.Sprintf("read what cgroup %d uses of %s", id, gpu(minor)), IoctlGetUsage, &usage)
	return usage, err
}

// SetPolicy says what a process may use of a GPU, in place of what was said before. It ends with the process. tgid is as in
// the caller's PID namespace. ESRCH: there is no such process.
func (d *Device) SetPolicy(tgid uint32, minor Minor, limits Limits) error {
	op := "set " + taskPolicy(tgid, minor)
	if err := limits.check(op, minor); err != nil {
		return err
	}
	return call(d, op, IoctlSetPolicy, &Policy{tgid, minor, limits})
}

// GetPolicy is what SetPolicy said for exactly that process and minor. ENOENT: nothing.
func (d *Device) GetPolicy(tgid uint32, minor Minor) (Limits, error) {
	p := Policy{Tgid: tgid, Minor: minor}
	err := call(d, "read "+taskPolicy(tgid, minor), IoctlGetPolicy, &p)
	return p.Limits, err
}

// ClearPolicy takes back what SetPolicy said for exactly that process and minor. ENOENT: nothing.
func (d *Device) ClearPolicy(tgid uint32, minor Minor) error {
	return call(d, "clear "+taskPolicy(tgid, minor), IoctlClearPolicy, &Policy{Tgid: tgid, Minor: minor})
}

// SetCgroupPolicy says what a cgroup, and those below it that have no policy, may use of a GPU, in place of what was said
// before. It ends with the cgroup. CgroupID tells the id.
func (d *Device) SetCgroupPolicy(id uint64, minor Minor, limits Limits) error {
	op := "set " + cgroupPolicy(id, minor)
	if err := limits.check(op, minor); err != nil {
		return err
	}
	return call(d, op, IoctlSetCgroupPolicy, &CgroupPolicy{CgroupID: id, Minor: minor, Limits: limits})
}

// GetCgroupPolicy is what SetCgroupPolicy said for exactly that cgroup and minor. ENOENT: nothing.
func (d *Device) GetCgroupPolicy(id uint64, minor Minor) (Limits, error) {
	p := CgroupPolicy{CgroupID: id, Minor: minor}
	err := call(d, "read "+cgroupPolicy(id, minor), IoctlGetCgroupPolicy, &p)
	return p.Limits, err
}

// ClearCgroupPolicy takes back what SetCgroupPolicy said for exactly that cgroup and minor. ENOENT: nothing.
func (d *Device) ClearCgroupPolicy(id uint64, minor Minor) error {
	return call(d, "clear "+cgroupPolicy(id, minor), IoctlClearCgroupPolicy, &CgroupPolicy{CgroupID: id, Minor: minor})
}

func taskPolicy(tgid uint32, minor Minor) string {
	return fmt.Sprintf("the policy of process %d for %s", tgid, gpu(minor))
}

func cgroupPolicy(id uint64, minor Minor) string {
	return fmt.Sprintf("the policy of cgroup %d for %s", id, gpu(minor))
}

func gpu(minor Minor) string {
	if minor == MinorAny {
		return "any GPU"
	}
	return "GPU " + minor.String()
}
