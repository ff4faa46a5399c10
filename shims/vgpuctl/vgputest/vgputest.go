// Package vgputest stands in for the kernel module vgpu in tests of programs that use package vgpuctl: a Module answers as the
// kernel does, but watches no driver. tests/kernel holds the two against each other.
package vgputest

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/nvmlfab/nvmlfab/shims/vgpuctl"
	"golang.org/x/sys/unix"
)

// Module is a module with its policies. Its fields are set before it is used.
type Module struct {
	Info  vgpuctl.Info
	Stats vgpuctl.Stats // Policies and CgroupPolicies, which is the number of those there are, aside
	// Processes are those that there are; nil: all.
	Processes map[uint32]bool
	// Cgroups are those that there are; nil: all.
	Cgroups map[uint64]bool
	// Usage is what GET_USAGE answers, by its three first fields.
	Usage []vgpuctl.Usage
	// Fail is asked before every request; what is not 0 is the answer.
	Fail func(request uint32) unix.Errno

	mutex    sync.Mutex
	tasks    map[taskKey]vgpuctl.Limits
	cgroups  map[cgroupKey]vgpuctl.Limits
	sequence uint64
	open     map[*handle]bool
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

// QueueLength is how many events wait for a reader. Those that come when it is full are lost to it.
const QueueLength = 1024

// New makes a module that is hooked to a driver, in dry-run and allowed to enforce.
func New() *Module {
	info := vgpuctl.Info{ABIVersion: vgpuctl.ABIVersion, Mode: vgpuctl.ModeDryRun, MayEnforce: 1, Hooked: 1}
	copy(info.Driver[:], "nvidia")
	copy(info.DriverVersion[:], "580.105.08")
	return &Module{Info: info}
}

// Open opens its device.
func (m *Module) Open() *vgpuctl.Device {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.open == nil {
		m.open = map[*handle]bool{}
	}
	h := &handle{module: m, queue: make(chan vgpuctl.Event, QueueLength)}
	m.open[h] = true
	return vgpuctl.New(h)
}

// Emit sends events to all open devices. It numbers them.
func (m *Module) Emit(events ...vgpuctl.Event) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, e := range events {
		m.sequence++
		m.Stats.Events++
		e.Sequence = m.sequence
		for h := range m.open {
			select {
			case h.queue <- e:
			default:
				m.Stats.EventsLost++
			}
		}
	}
}

// Policies are those of processes that there are.
func (m *Module) Policies() []vgpuctl.Policy {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var all []vgpuctl.Policy
	for k, limits := range m.tasks {
		all = append(all, vgpuctl.Policy{Tgid: k.tgid, Minor: k.minor, Limits: limits})
	}
	return all
}

// CgroupPolicies are those of cgroups that there are.
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
	queue  chan vgpuctl.Event
}

func (h *handle) Close() error {
	h.module.mutex.Lock()
	defer h.module.mutex.Unlock()
	delete(h.module.open, h)
	return nil
}

func (h *handle) Read(ctx context.Context, p []byte) (int, error) {
	size := binary.Size(vgpuctl.Event{})
	if len(p) < size {
		return 0, unix.EINVAL
	}
	n := 0
	put := func(e vgpuctl.Event) { n += encode(p[n:], &e) }
	select {
	case e := <-h.queue:
		put(e)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for len(p)-n >= size {
		select {
		case e := <-h.queue:
			put(e)
		default:
			return n, nil
		}
	}
	return n, nil
}

func encode(p []byte, value any) int {
	n, err := binary.Encode(p, binary.NativeEndian, value)
	if err != nil {
		panic(err)
	}
	return n
}

// with decodes an argument, lets answer change it, and encodes it.
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
			if m.Processes != nil && !m.Processes[p.Tgid] {
				return unix.ESRCH
			}
			return change(&m.tasks, request&0xff-vgpuctl.IoctlSetPolicy&0xff, taskKey{p.Tgid, p.Minor}, &p.Limits)
		})
	case vgpuctl.IoctlSetCgroupPolicy, vgpuctl.IoctlGetCgroupPolicy, vgpuctl.IoctlClearCgroupPolicy:
		return with(argument, func(p *vgpuctl.CgroupPolicy) unix.Errno {
			if p.Reserved != 0 {
				return unix.EINVAL
			}
			if m.Cgroups != nil && !m.Cgroups[p.CgroupID] {
				return unix.ENOENT
			}
			return change(&m.cgroups, request&0xff-vgpuctl.IoctlSetCgroupPolicy&0xff, cgroupKey{p.CgroupID, p.Minor}, &p.Limits)
		})
	}
	return unix.ENOTTY
}

// change sets, gets or clears a policy, by how: 0, 1 or 2.
func change[K comparable](policies *map[K]vgpuctl.Limits, how uint32, key K, limits *vgpuctl.Limits) unix.Errno {
	there, ok := (*policies)[key]
	switch how {
	case 0:
		if limits.Check() != nil {
			return unix.EINVAL
		}
		if *policies == nil {
			*policies = map[K]vgpuctl.Limits{}
		}
		(*policies)[key] = *limits
		return 0
	case 1:
		if ok {
			*limits = there
			return 0
		}
	case 2:
		if ok {
			delete(*policies, key)
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
	if u.Tgid != 0 && u.CgroupID != 0 {
		return unix.EINVAL
	}
	for _, known := range m.Usage {
		if known.Tgid == u.Tgid && known.CgroupID == u.CgroupID && known.Minor == u.Minor {
			*u = known
			return 0
		}
	}
	return unix.ENOENT
}
