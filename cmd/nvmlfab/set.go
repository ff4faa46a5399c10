package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type setCmd struct {
	nodeFlags
	gpuFlag
	For  *duration `placeholder:"DURATION" help:"Take it back by itself after that time, such as 30s or 5m."`
	Keys []string  `arg:"" name:"key=value" sep:"none" help:"A key of the profile and its value, such as thermal.temperature_gpu_c=90; N/A is what the board does not have."`
}

func (setCmd) Help() string {
	return `Every program that uses the node sees the new value at its next call. The keys are those of profiles, with dots between a
section and what is in it; nvmlfab profiles schema prints them all. Keys of system and nvlink are the node's, and go without
--gpu. Either all of a command is done or, if anything about it is wrong, nothing. Examples:

    nvmlfab set --gpu 3 thermal.temperature_gpu_c=90 utilization.gpu=100
    nvmlfab set --gpu all --for 30s power.current_draw_mw=650000
    nvmlfab set nvlink.defaults.state=inactive

` + whichNode
}

func (c setCmd) Run() error {
	keys, err := assignments(c.Keys)
	if err != nil {
		return err
	}
	node, err := ofNode(slices.Collect(maps.Keys(keys)), c.GPU)
	if err != nil {
		return err
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.which(node, c.GPU)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		for _, i := range list {
			if err := t.Set(i, change.ByUser, c.For.until(t.Now), keys); err != nil {
				return about(i, err)
			}
		}
		return nil
	})
}

// assignments are the keys and values of arguments KEY=VALUE.
func assignments(args []string) (profiles.Settings, error) {
	all := profiles.Settings{}
	for _, arg := range args {
		s, err := profiles.Assign(arg)
		if err != nil {
			return nil, err
		}
		for key := range s {
			if _, twice := all[key]; twice {
				return nil, fmt.Errorf("%s is given twice", key)
			}
		}
		maps.Copy(all, s)
	}
	return all, nil
}

// ofNode says whether keys belong to the node, and so need no GPU.
func ofNode(keys, gpus []string) (bool, error) {
	slices.Sort(keys)
	var node, device string
	for _, key := range keys {
		if profiles.OfNode(key) {
			node = key
		} else {
			device = key
		}
	}
	switch {
	case node != "" && device != "":
		return false, fmt.Errorf("%s belongs to the node and %s to a GPU: use two commands", node, device)
	case node != "" && len(gpus) > 0:
		return false, fmt.Errorf("%s belongs to the node: leave out --gpu", node)
	case device != "" && len(gpus) == 0:
		return false, fmt.Errorf("%s belongs to a GPU: say which with --gpu, such as --gpu 0 or --gpu all", device)
	}
	return node != "", nil
}

// which are the numbers of the GPUs that a command is about; -1 stands for the node.
func (n *node) which(node bool, gpus []string) ([]int, error) {
	if node {
		return []int{-1}, nil
	}
	return n.gpus(gpus)
}

// about says which GPU an error is about.
func about(i int, err error) error {
	if gpu := fmt.Sprintf("GPU %d: ", i); i >= 0 && !strings.HasPrefix(err.Error(), gpu) {
		return fmt.Errorf("%s%w", gpu, err)
	}
	return err
}

type unsetCmd struct {
	nodeFlags
	gpuFlag
	All  bool     `help:"Take back everything that was set, on the GPUs or, without --gpu, on the node and all of its GPUs."`
	Keys []string `arg:"" optional:"" name:"key" help:"A key or a section of the profile, such as power.enforced_limit_mw or thermal."`
}

func (unsetCmd) Help() string {
	return `The GPU then has the profile's value again. What NVML's own setters have set, by nvidia-smi -pl for example, is taken back
too; faults and scenarios stay (see nvmlfab heal). Examples:

    nvmlfab unset --gpu 3 thermal.temperature_gpu_c
    nvmlfab unset --gpu 3 --all
    nvmlfab unset --all

` + whichNode
}

func (c unsetCmd) Run() error {
	var node bool
	var err error
	switch {
	case c.All && len(c.Keys) > 0:
		return errors.New("--all takes back every key: leave out either --all or the keys")
	case !c.All && len(c.Keys) == 0:
		return errors.New("say which keys, or --all")
	case c.All:
		node = len(c.GPU) == 0
	default:
		for _, key := range c.Keys {
			if err := profiles.Known(key); err != nil {
				return err
			}
		}
		if node, err = ofNode(slices.Clone(c.Keys), c.GPU); err != nil {
			return err
		}
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.which(node, c.GPU)
	if err != nil {
		return err
	}
	if c.All && node {
		for i := range n.source.Board.Devices {
			list = append(list, i)
		}
	}
	set := func(l state.Layer) bool {
		return l.By == change.ByUser || l.By == change.BySetter || l.By == change.ByBoard
	}
	any := false
	err = n.change(func(t *change.Tx) error {
		for _, i := range list {
			dropped, err := false, error(nil)
			if c.All {
				var layers int
				layers, err = t.DropLayers(i, set)
				dropped = layers > 0
			} else {
				dropped, err = t.Unset(i, set, c.Keys...)
			}
			if err != nil {
				return about(i, err)
			}
			any = any || dropped
		}
		if !any {
			return errUnchanged
		}
		return nil
	})
	if err == nil && !any {
		_, err = fmt.Printf("nothing was set%s\n", suffix(strings.Join(c.Keys, ", ")))
	}
	return err
}

// suffix is text after a colon, and nothing for nothing.
func suffix(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
