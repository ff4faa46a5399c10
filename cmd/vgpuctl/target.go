package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

// target is the process or cgroup of a policy or of a usage.
type target struct {
	PID    uint32 `name:"pid" xor:"target" placeholder:"N" help:"A process, by its number in this PID namespace."`
	Cgroup string `xor:"target" placeholder:"PATH" help:"A cgroup, and those below it: a folder of cgroup2, or its inode number."`
}

var errTarget = errors.New("say whose with --pid or --cgroup")

func (t target) none() bool { return t == target{} }

// resolve returns the id of the cgroup, or 0 for a process.
func (t target) resolve(s *surroundings) (cgroup uint64, err error) {
	if t.Cgroup == "" {
		return 0, nil
	}
	if id, err := strconv.ParseUint(t.Cgroup, 10, 64); err == nil && id != 0 {
		return id, nil
	}
	return s.cgroupID(t.Cgroup)
}

// minor is a GPU on the command line.
type minor vgpuctl.Minor

func (m *minor) UnmarshalText(text []byte) error {
	if string(text) == "any" {
		*m = minor(vgpuctl.MinorAny)
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil || vgpuctl.Minor(n) == vgpuctl.MinorAny {
		return fmt.Errorf("%q is no GPU: want the N of /dev/nvidiaN, or any", text)
	}
	*m = minor(n)
	return nil
}

type size uint64

func (n *size) UnmarshalText(text []byte) error {
	bytes, err := vgpuctl.ParseSize(string(text))
	*n = size(bytes)
	return err
}

type timeslice uint64

func (t *timeslice) UnmarshalText(text []byte) error {
	us, err := vgpuctl.ParseTimeslice(string(text))
	*t = timeslice(us)
	return err
}

// limits are the flags that make up a policy.
type limits struct {
	GPU          minor      `name:"gpu" default:"any" placeholder:"N" help:"The N of /dev/nvidiaN; any: every GPU that has no policy of its own."`
	Memory       *size      `placeholder:"SIZE" help:"Most device memory, in bytes, or K, M, G or T (powers of 1024); 0: no limit."`
	Weight       *uint32    `placeholder:"N" help:"Multiply timeslices by this, at most 10000; 0: only clamp them."`
	TimesliceMin *timeslice `name:"timeslice-min" placeholder:"TIME" help:"Shortest timeslice, such as 500us or 2ms; 0: the module's."`
	TimesliceMax *timeslice `name:"timeslice-max" placeholder:"TIME" help:"Longest timeslice; 0: the module's."`
	DryRun       bool       `help:"Report what the policy would do, and do nothing, even while the module enforces."`
}

func (l limits) policy() (vgpuctl.Limits, error) {
	if l.Memory == nil && l.Weight == nil && l.TimesliceMin == nil && l.TimesliceMax == nil {
		return vgpuctl.Limits{}, errors.New("there is no limit: give --memory, --weight, --timeslice-min or --timeslice-max; --memory 0 exempts from a wider policy")
	}
	var p vgpuctl.Limits
	if l.Memory != nil {
		p.MemoryLimitBytes = uint64(*l.Memory)
	}
	if l.Weight != nil {
		p.Weight = *l.Weight
	}
	if l.TimesliceMin != nil {
		p.TimesliceMinUs = uint64(*l.TimesliceMin)
	}
	if l.TimesliceMax != nil {
		p.TimesliceMaxUs = uint64(*l.TimesliceMax)
	}
	if l.DryRun {
		p.Flags |= vgpuctl.LimitDryRun
	}
	return p, p.Check()
}

// check requires either a process or a cgroup.
func (t target) check() error {
	if t.none() {
		return errTarget
	}
	return nil
}
