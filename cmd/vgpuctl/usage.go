package main

import (
	"io"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

type usageCmd struct {
	target
	GPU minor `name:"gpu" default:"any" placeholder:"N" help:"The N of /dev/nvidiaN; any: all together."`
}

func (usageCmd) Help() string {
	return `Without --pid and --cgroup it shows all that the module knows of, from the files tasks and cgroups of the module in debugfs.
Examples:

    vgpuctl usage
    vgpuctl usage --cgroup /sys/fs/cgroup/jobs/a --gpu 0`
}

func (c *usageCmd) AfterApply() error {
	if c.none() && vgpuctl.Minor(c.GPU) != vgpuctl.MinorAny {
		return errTarget
	}
	return nil
}

func (c usageCmd) Run(s *surroundings) error {
	if c.none() {
		return s.tables("tasks", "cgroups")
	}
	cgroup, err := c.resolve(s)
	if err != nil {
		return err
	}
	return s.with(func(d *vgpuctl.Device) error {
		var u vgpuctl.Usage
		if cgroup != 0 {
			u, err = d.CgroupUsage(cgroup, vgpuctl.Minor(c.GPU))
		} else {
			u, err = d.TaskUsage(c.PID, vgpuctl.Minor(c.GPU))
		}
		if err != nil {
			return err
		}
		return s.print(u, func(w io.Writer) error {
			return pairs(w, "device memory", vgpuctl.FormatSize(u.DeviceBytes), "at most", vgpuctl.FormatSize(u.PeakDeviceBytes),
				"system memory", vgpuctl.FormatSize(u.SystemBytes), "addresses", vgpuctl.FormatSize(u.VirtualBytes),
				"allocations", u.Allocations, "denied", u.Denied,
				"timeslices set", u.Timeslices, "last timeslice", vgpuctl.FormatTimeslice(u.TimesliceUs))
		})
	})
}
