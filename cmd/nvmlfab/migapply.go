package main

import (
	"io"
	"os"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/change/layout"
)

type migApplyCmd struct {
	nodeFlags
	Config string `short:"c" placeholder:"NAME" help:"Which configuration of the file; needed if it has several."`
	File   string `arg:"" help:"A file in the format of NVIDIA's mig-parted, version v1; - is standard input."`
}

func (migApplyCmd) Help() string {
	return `Brings all GPUs that the configuration is about into the state that it describes, in one change: MIG mode, GPU instances and
compute instances. GPUs that are in that state already keep their instances. If anything about the file is wrong or impossible,
the error names the line, and nothing is changed. A configuration looks so:

    version: v1
    mig-configs:
      half-and-half:
        - devices: [0]
          mig-enabled: true
          mig-devices: {3g.40gb: 1, 1g.10gb: 4}
        - devices: all
          device-filter: "0x20B510DE"
          mig-enabled: false

devices is all or a list of indices. device-filter, a PCI device id or a list of them, leaves out GPUs that have another. A name
such as 1c.3g.40gb stands for a compute instance with fewer slices than its GPU instance. Examples:

    nvmlfab mig apply config.yaml
    nvmlfab mig apply --config half-and-half config.yaml

` + whichNode
}

func (c migApplyCmd) Run() error {
	name, text := c.File, []byte(nil)
	var err error
	if name == "-" {
		name = "standard input"
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return err
	}
	file := layout.File{Name: name}
	entries, err := file.Config(text, c.Config)
	if err != nil {
		return err
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		changed, err := file.Apply(t, n.source.Board, entries)
		if err == nil && !changed {
			err = errUnchanged
		}
		return err
	})
}
