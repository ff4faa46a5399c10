// Package vgpuctl sets limits on what tasks and cgroups use of the GPUs of NVIDIA's driver, and reads what they use. It
// uses the kernel module vgpu through /dev/vgpuctl; docs/vgpuctl.md describes the interface, and
// docs/vgpu-device-plugin.md how a device plugin gives a container its policy.
package vgpuctl

import (
	"fmt"
)

// Path is the path of the device.
const Path = "/dev/vgpuctl"

// Device is an open device. Several goroutines may use it at the same time.
type Device struct{ driver Driver }

// Open opens the device. It requires CAP_SYS_ADMIN in the initial user namespace.
func Open() (*Device, error) { return OpenPath(Path) }

// OpenPath opens the device at another path.
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

// New makes a device that uses a driver.
func New(driver Driver) *Device { return &Device{driver} }

// Close closes the device. Policies and the mode stay.
func (d *Device) Close() error { return d.driver.Close() }

func call[T wire](d *Device, op string, request uint32, argument *T) error {
	return explain(op, request, d.driver.Ioctl(request, bytesOf(argument)))
}

// Info returns the state of the module.
func (d *Device) Info() (Info, error) {
	var info Info
	err := call(d, "ask the module how it stands", IoctlGetInfo, &info)
	return info, err
}

// SetMode sets the mode. EPERM, for ModeEnforce: the module may not enforce, see Info.MayEnforce.
func (d *Device) SetMode(mode Mode) error {
	return call(d, fmt.Sprintf("set the mode %s", mode), IoctlSetMode, &mode)
}

// Stats returns counts of what the module has seen and done.
func (d *Device) Stats() (Stats, error) {
	var stats Stats
	err := call(d, "read the counts", IoctlGetStats, &stats)
	return stats, err
}

// TaskUsage is what a process uses of a GPU, or of all GPUs for MinorAny. tgid is its number in the caller's PID
// namespace. ESRCH: there is no such process; ENOENT: it has used no GPU.
func (d *Device) TaskUsage(tgid uint32, minor Minor) (Usage, error) {
	usage := Usage{Tgid: tgid, Minor: minor}
	op := fmt.Sprintf("read what process %d uses of %s", tgid, gpu(minor))
	if tgid == 0 {
		return usage, &Error{op, errZero, noProcess}
	}
	err := call(d, op, IoctlGetUsage, &usage)
	return usage, err
}

// CgroupUsage is what a cgroup and those below it use of a GPU, or of all GPUs for MinorAny. ENOENT: they have used no
// GPU, or there is no such cgroup.
func (d *Device) CgroupUsage(id uint64, minor Minor) (Usage, error) {
	usage := Usage{CgroupID: id, Minor: minor}
	err := call(d, fmt.Sprintf("read what cgroup %d uses of %s", id, gpu(minor)), IoctlGetUsage, &usage)
	return usage, err
}

// SetPolicy sets the policy of a process for a GPU, and replaces an earlier one. The policy ends with the process. tgid
// is the process's number in the caller's PID namespace. ESRCH: there is no such process.
func (d *Device) SetPolicy(tgid uint32, minor Minor, limits Limits) error {
	op := "set " + taskPolicy(tgid, minor)
	if err := limits.check(op, minor); err != nil {
		return err
	}
	return call(d, op, IoctlSetPolicy, &Policy{tgid, minor, limits})
}

// GetPolicy returns the policy of exactly that process and minor. ENOENT: there is none.
func (d *Device) GetPolicy(tgid uint32, minor Minor) (Limits, error) {
	p := Policy{Tgid: tgid, Minor: minor}
	err := call(d, "read "+taskPolicy(tgid, minor), IoctlGetPolicy, &p)
	return p.Limits, err
}

// ClearPolicy removes the policy of exactly that process and minor. ENOENT: there is none.
func (d *Device) ClearPolicy(tgid uint32, minor Minor) error {
	return call(d, "clear "+taskPolicy(tgid, minor), IoctlClearPolicy, &Policy{Tgid: tgid, Minor: minor})
}

// SetCgroupPolicy sets the policy of a cgroup, and of those below it that have none, for a GPU. It replaces an earlier
// one. The policy ends with the cgroup. CgroupID returns the id.
func (d *Device) SetCgroupPolicy(id uint64, minor Minor, limits Limits) error {
	op := "set " + cgroupPolicy(id, minor)
	if err := limits.check(op, minor); err != nil {
		return err
	}
	return call(d, op, IoctlSetCgroupPolicy, &CgroupPolicy{CgroupID: id, Minor: minor, Limits: limits})
}

// GetCgroupPolicy returns the policy of exactly that cgroup and minor. ENOENT: there is none.
func (d *Device) GetCgroupPolicy(id uint64, minor Minor) (Limits, error) {
	p := CgroupPolicy{CgroupID: id, Minor: minor}
	err := call(d, "read "+cgroupPolicy(id, minor), IoctlGetCgroupPolicy, &p)
	return p.Limits, err
}

// ClearCgroupPolicy removes the policy of exactly that cgroup and minor. ENOENT: there is none.
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
