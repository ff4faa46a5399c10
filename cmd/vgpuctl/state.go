package main

import (
	"fmt"
	"io"
	"reflect"
	"text/tabwriter"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

type statusCmd struct{}

func (statusCmd) Help() string {
	return `Example:

    vgpuctl status`
}

func (statusCmd) Run(s *surroundings) error {
	return s.with(func(d *vgpuctl.Device) error {
		info, err := d.Info()
		if err != nil {
			return err
		}
		return s.print(info, func(w io.Writer) error {
			driver, enforce := "none: load NVIDIA's, or fakegpu with nvidia=1", "no: it takes allow_enforce=1 when the module is loaded, and a driver that it knows"
			if info.Hooked != 0 {
				driver = fmt.Sprintf("%s %s", info.Driver, info.DriverVersion)
			} else if info.Driver.String() != "" {
				driver = fmt.Sprintf("%s %s, not hooked: the kernel log says why", info.Driver, info.DriverVersion)
			}
			if info.MayEnforce != 0 {
				enforce = "yes"
			}
			return pairs(w, "driver", driver, "mode", info.Mode, "may enforce", enforce, "interface", info.ABIVersion)
		})
	})
}

type modeCmd struct {
	Mode string `arg:"" enum:"off,dry-run,enforce" help:"off: nothing is traced; dry-run: everything is accounted, nothing changed; enforce: limits hold."`
}

func (modeCmd) Help() string {
	return `The mode enforce takes a module that was loaded with allow_enforce=1, and a driver that it knows. Example:

    vgpuctl mode enforce`
}

func (c modeCmd) Run(s *surroundings) error {
	mode, err := vgpuctl.ParseMode(c.Mode)
	if err != nil {
		return err
	}
	return s.with(func(d *vgpuctl.Device) error { return d.SetMode(mode) })
}

type statsCmd struct{}

func (statsCmd) Help() string {
	return `docs/vgpuctl.md says what is counted. Example:

    vgpuctl stats --json`
}

func (statsCmd) Run(s *surroundings) error {
	return s.with(func(d *vgpuctl.Device) error {
		stats, err := d.Stats()
		if err != nil {
			return err
		}
		return s.print(stats, func(w io.Writer) error {
			var list []any
			for field, value := range reflect.ValueOf(stats).Fields() {
				list = append(list, field.Tag.Get("json"), value.Uint())
			}
			return pairs(w, list...)
		})
	})
}

// pairs prints a name and a value on each line.
func pairs(w io.Writer, list ...any) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for i := 0; i < len(list); i += 2 {
		fmt.Fprintf(t, "%v\t%v\n", list[i], list[i+1])
	}
	return t.Flush()
}
