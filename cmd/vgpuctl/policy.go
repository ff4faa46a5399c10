package main

import (
	"fmt"
	"io"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

type policyCmd struct {
	Set   setCmd   `cmd:"" help:"Set a policy, in place of one that is there."`
	Get   getCmd   `cmd:"" help:"Show a policy."`
	Clear clearCmd `cmd:"" help:"Clear a policy."`
	List  listCmd  `cmd:"" help:"List all policies."`
}

type setCmd struct {
	target
	limits
}

func (setCmd) Help() string {
	return `A policy of a process goes before those of its cgroups, and one for a GPU before one for any. It ends with the process or the
cgroup. What is not given is not limited. Examples:

    vgpuctl policy set --pid 1234 --memory 8G
    vgpuctl policy set --cgroup /sys/fs/cgroup/jobs/a --gpu 0 --memory 8G --weight 3 --timeslice-max 10ms`
}

func (c *setCmd) AfterApply() error { return c.target.check() }

func (c setCmd) Run(s *surroundings) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	cgroup, err := c.resolve(s)
	if err != nil {
		return err
	}
	return s.with(func(d *vgpuctl.Device) error {
		if cgroup != 0 {
			return d.SetCgroupPolicy(cgroup, vgpuctl.Minor(c.GPU), policy)
		}
		return d.SetPolicy(c.PID, vgpuctl.Minor(c.GPU), policy)
	})
}

// gpuFlag selects the GPU of an existing policy.
type gpuFlag struct {
	GPU minor `name:"gpu" default:"any" placeholder:"N" help:"The N of /dev/nvidiaN; any: the policy that was set for any."`
}

type getCmd struct {
	target
	gpuFlag
}

func (getCmd) Help() string {
	return `It shows the policy that was set for exactly that GPU, or for any. Example:

    vgpuctl policy get --pid 1234`
}

func (c *getCmd) AfterApply() error { return c.target.check() }

func (c getCmd) Run(s *surroundings) error {
	cgroup, err := c.resolve(s)
	if err != nil {
		return err
	}
	return s.with(func(d *vgpuctl.Device) error {
		var policy any
		var l vgpuctl.Limits
		minor := vgpuctl.Minor(c.GPU)
		if cgroup != 0 {
			l, err = d.GetCgroupPolicy(cgroup, minor)
			policy = vgpuctl.CgroupPolicy{CgroupID: cgroup, Minor: minor, Limits: l}
		} else {
			l, err = d.GetPolicy(c.PID, minor)
			policy = vgpuctl.Policy{Tgid: c.PID, Minor: minor, Limits: l}
		}
		if err != nil {
			return err
		}
		return s.print(policy, func(w io.Writer) error {
			memory, weight, longest, shortest, dry := "no limit", "none", "the module's", "the module's", "no"
			if l.MemoryLimitBytes != 0 {
				memory = vgpuctl.FormatSize(l.MemoryLimitBytes)
			}
			if l.Weight != 0 {
				weight = fmt.Sprint(l.Weight)
			}
			if l.TimesliceMinUs != 0 {
				shortest = vgpuctl.FormatTimeslice(l.TimesliceMinUs)
			}
			if l.TimesliceMaxUs != 0 {
				longest = vgpuctl.FormatTimeslice(l.TimesliceMaxUs)
			}
			if l.Flags&vgpuctl.LimitDryRun != 0 {
				dry = "yes"
			}
			return pairs(w, "memory", memory, "weight", weight, "timeslice-min", shortest, "timeslice-max", longest, "dry-run", dry)
		})
	})
}

type clearCmd struct {
	target
	gpuFlag
}

func (clearCmd) Help() string {
	return `It clears the policy that was set for exactly that GPU, or for any. Example:

    vgpuctl policy clear --cgroup /sys/fs/cgroup/jobs/a --gpu 0`
}

func (c *clearCmd) AfterApply() error { return c.target.check() }

func (c clearCmd) Run(s *surroundings) error {
	cgroup, err := c.resolve(s)
	if err != nil {
		return err
	}
	return s.with(func(d *vgpuctl.Device) error {
		if cgroup != 0 {
			return d.ClearCgroupPolicy(cgroup, vgpuctl.Minor(c.GPU))
		}
		return d.ClearPolicy(c.PID, vgpuctl.Minor(c.GPU))
	})
}

type listCmd struct{}

func (listCmd) Help() string {
	return `It reads the files policies and cgroup_policies of the module in debugfs. Example:

    vgpuctl policy list`
}

func (listCmd) Run(s *surroundings) error { return s.tables("policies", "cgroup_policies") }
