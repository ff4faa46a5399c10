package main

import (
	"fmt"

	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type fakegpuCmd struct {
	Profile *string `placeholder:"NAME|FILE" help:"A shipped profile, or a profile file."`
	GPUs    *uint32 `name:"gpus" placeholder:"N" help:"How many GPUs there are, instead of the profile's number."`
	Driver  string  `placeholder:"VERSION" help:"The driver's version, instead of the profile's."`
}

func (fakegpuCmd) Help() string {
	return `fakegpu.ko then has /dev/nvidiactl, a /dev/nvidiaN for each of the profile's GPUs, and /proc/driver/nvidia: addresses, minor
numbers, UUIDs and memory are those that NVML reports. Example, as root in a virtual machine:

    insmod fakegpu.ko $(nvmlfab fakegpu --profile h100)

Without --profile the environment chooses: MOCK_NVML_CONFIG a profile file, else NVMLFAB_PROFILE a shipped profile, else it
is ` + profiles.Default + `.`
}

func (c fakegpuCmd) Run() error {
	p, err := choose(c.Profile)
	if err != nil {
		return err
	}
	if err := p.change(c.GPUs, c.Driver); err != nil {
		return err
	}
	line, err := machine.ModuleParameters(p.board)
	if err != nil {
		return err
	}
	_, err = fmt.Println(line)
	return err
}
