// Package vgputest replaces the kernel module vgpu in tests of programs that use package vgpuctl: a Module answers as
// the kernel does, but watches no driver.
package vgputest

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"golang.org/x/sys/unix"
)

// Module is a simulated module with its policies; New makes one. Set its fields before use.
type Module struct {
	Info  vgpuctl.Info
	Stats vgpuctl.Stats // without Policies and CgroupPolicies, which are counted
	// Processes are the existing processes; nil: all numbers.
	Processes map[uint32]bool
	// Cgroups are the existing cgroups; nil: all ids.
	Cgroups map[uint64]bool
	// Usage are the answers of GET_USAGE, found by their first three fields. Other processes and cgroups have used no
	// GPU.
	Usage []vgpuctl.Usage
	// Fail is called before every request. If it does not return 0, that is the answer.
	Fail func(request uint32) unix.Errno

	mutex   sync.Mutex
	tasks   map[taskKey]vgpuctl.Limits
	cgroups map[cgroupKey]vgpuctl.Limits
	events  []vgpuctl.Event // the last ones
	more    chan struct{}   // is closed at the next event
}

type (
	taskKey struct {
		tgid  uint32
		minor vgpuctl.Minor
	}
	cgroupKey struct {
		id    uint64
		minor vgpuctl.Minor
	}
)

// EventsKept is the number of events that can still be read. A slower reader loses the oldest.
const EventsKept = 4096

// New makes a module that is hooked to a driver, in dry-run and allowed to enforce.
func New() *Module {
	info := vgpuctl.Info{ABIVersion: vgpuctl.ABIVersion, Mode: vgpuctl.ModeDryRun, MayEnforce: 1, Hooked: 1}
	copy(info.Driver[:], "nvidia")
	copy(info.DriverVersion[:], "580.105.08")
	return &Module{Info: info, tasks: map[taskKey]vgpuctl.Limits{}, cgroups: map[cgroupKey]vgpuctl.Limits{}, more: make(chan struct{})}
}

// Open opens its device.
func (m *Module) Open() *vgpuctl.Device {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return vgpuctl.New(&handle{module: m, last: m.Stats.Events})
}

// Emit sends events to all open devices. It numbers them.
func (m *Module) Emit(events ...vgpuctl.Event) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, e := range events {
		m.Stats.Events++
		e.Sequence = m.Stats.Events
		m.events = append(m.events, e)
	}
	m.events = m.events[max(0, len(m.events)-EventsKept):]
	close(m.more)
	m.more = make(chan struct{})
}

// Policies are the policies of existing processes.
func (m *Module) Policies() []vgpuctl.Policy {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var all []vgpuctl.Policy
	for k, limits := range m.tasks {
		all = append(all, vgpuctl.Policy{Tgid: k.tgid, Minor: k.minor, Limits: limits})
	}
	return all
}

// CgroupPolicies are the policies of existing cgroups.
func (m *Module) CgroupPolicies() []vgpuctl.CgroupPolicy {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var all []vgpuctl.CgroupPolicy
	for k, limits := range m.cgroups {
		all = append(all, vgpuctl.CgroupPolicy{CgroupID: k.id, Minor: k.minor, Limits: limits})
	}
	return all
}

// handle is an open device; it is a vgpuctl.Driver.
type handle struct {
	module *Module
	last   uint64 // sequence of the last event read
}

func (h *handle) Close() error { return nil }

func (h *handle) Read(ctx context.Context, p []byte) (int, error) {
	if len(p) < binary.Size(vgpuctl.Event{}) {
		return 0, unix.EINVAL
	}
	for {
		n, more := h.take(p)
		if n > 0 {
			return n, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// take writes as many events as fit, and returns a channel that is closed when there are more.
func (h *handle) take(p []byte) (n int, more <-chan struct{}) {
	m := h.module
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, e := range m.events {
		if e.Sequence <= h.last {
			continue
		}
		if len(p)-n < binary.Size(e) {
			break
		}
		n += encode(p[n:], &e)
		m.Stats.EventsLost += e.Sequence - h.last - 1
		h.last = e.Sequence
	}
	return n, m.more
}

func encode(p []byte, value any) int {
	n, err := binary.Encode(p, binary.NativeEndian, value)
	if err != nil {
		panic(err)
	}
	return n
}

// with decodes an argument, calls answer to change it, and encodes it again.
func with[T any](argument []byte, answer func(*T) unix.Errno) unix.Errno {
	var value T
	if _, err := binary.Decode(argument, binary.NativeEndian, &value); err != nil || binary.Size(value) != len(argument) {
		return unix.EFAULT
	}
	errno := answer(&value)
	encode(argument, &value)
	return errno
}

func (h *handle) Ioctl(request uint32, argument []byte) error {
	h.module.mutex.Lock()
	defer h.module.mutex.Unlock()
	if errno := h.module.answer(request, argument); errno != 0 {
		return errno
	}
	return nil
}

func (m *Module) answer(request uint32, argument []byte) unix.Errno {
	if m.Fail != nil {
		if errno := m.Fail(request); errno != 0 {
			return errno
		}
	}
	switch request {
	case vgpuctl.IoctlGetInfo:
		return with(argument, func(info *vgpuctl.Info) unix.Errno { *info = m.Info; return 0 })
	case vgpuctl.IoctlSetMode:
		return with(argument, m.setMode)
	case vgpuctl.IoctlGetStats:
		return with(argument, func(stats *vgpuctl.Stats) unix.Errno {
			*stats = m.Stats
			stats.Policies, stats.CgroupPolicies = uint64(len(m.tasks)), uint64(len(m.cgroups))
			return 0
		})
	case vgpuctl.IoctlGetUsage:
		return with(argument, m.usage)
	case vgpuctl.IoctlSetPolicy, vgpuctl.IoctlGetPolicy, vgpuctl.IoctlClearPolicy:
		return with(argument, func(p *vgpuctl.Policy) unix.Errno {
			if !valid(p.Minor) {
				return unix.EINVAL
			}
			if !there(m.Processes, p.Tgid) {
				return unix.ESRCH
			}
			return change(m.tasks, request&0xff-vgpuctl.IoctlSetPolicy&0xff, taskKey{p.Tgid, p.Minor}, &p.Limits)
		})
	case vgpuctl.IoctlSetCgroupPolicy, vgpuctl.IoctlGetCgroupPolicy, vgpuctl.IoctlClearCgroupPolicy:
		return with(argument, func(p *vgpuctl.CgroupPolicy) unix.Errno {
			if !valid(p.Minor) || p.Reserved != 0 {
				return unix.EINVAL
			}
			if !there(m.Cgroups, p.CgroupID) {
				return unix.ENOENT
			}
			return change(m.cgroups, request&0xff-vgpuctl.IoctlSetCgroupPolicy&0xff, cgroupKey{p.CgroupID, p.Minor}, &p.Limits)
		})
	}
	return unix.ENOTTY
}

// change sets, gets or clears a policy if how is 0, 1 or 2.
func change[K comparable](policies map[K]vgpuctl.Limits, how uint32, key K, limits *vgpuctl.Limits) unix.Errno {
	there, ok := policies[key]
	switch how {
	case 0:
		if limits.Check() != nil {
			return unix.EINVAL
		}
		policies[key] = *limits
		return 0
	case 1:
		if ok {
			*limits = there
			return 0
		}
	case 2:
		if ok {
			delete(policies, key)
			return 0
		}
	}
	return unix.ENOENT
}

func (m *Module) setMode(mode *vgpuctl.Mode) unix.Errno {
	switch {
	case *mode > vgpuctl.ModeEnforce:
		return unix.EINVAL
	case *mode == vgpuctl.ModeEnforce && m.Info.MayEnforce == 0:
		return unix.EPERM
	}
	m.Info.Mode = *mode
	return 0
}

func (m *Module) usage(u *vgpuctl.Usage) unix.Errno {
	switch {
	case u.Tgid != 0 && u.CgroupID != 0:
		return unix.EINVAL
	case u.Tgid != 0 && !there(m.Processes, u.Tgid):
		return unix.ESRCH
	}
	for _, known := range m.Usage {
		if known.Tgid == u.Tgid && known.CgroupID == u.CgroupID && known.Minor == u.Minor {
			*u = known
			return 0
		}
	}
	return unix.ENOENT
}

func valid(minor vgpuctl.Minor) bool { return minor <= vgpuctl.MinorMax || minor == vgpuctl.MinorAny }

func there[K comparable](all map[K]bool, one K) bool { return all == nil || all[one] }
