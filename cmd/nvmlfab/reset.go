package main

import (
	"errors"
	"fmt"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
)

type resetCmd struct {
	nodeFlags
	gpuFlag
}

func (resetCmd) Help() string {
	return `Resets GPUs as nvidia-smi --gpu-reset does: pending modes come into force, errors since the last reset are forgotten, what NVML's
setters have set is taken back, processes are gone, and so are faults that a reset cures. What nvmlfab set has set stays, and a
lost GPU stays lost. Example:

    nvmlfab reset --gpu 3

` + whichNode
}

func (c resetCmd) Run() error {
	if len(c.GPU) == 0 {
		return errors.New("say which GPUs with --gpu, such as --gpu 3 or --gpu all")
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.gpus(c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		for _, i := range list {
			d, err := t.Device(i)
			if err != nil {
				return err
			}
			if d.Failure.Loses() && !d.Failure.Waits() {
				return about(i, errors.New("it is lost, and a reset does not reach it: nvmlfab heal brings it back"))
			}
			if ret := t.Reset(i); ret != abi.SUCCESS {
				return about(i, fmt.Errorf("it cannot be reset: NVML would answer %d", ret))
			}
		}
		return nil
	})
}
