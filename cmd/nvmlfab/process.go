package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type processCmd struct {
	Add    processAddCmd    `cmd:"" help:"Add a process to GPUs' lists."`
	Remove processRemoveCmd `cmd:"" help:"Take added processes off again."`
	List   processListCmd   `cmd:"" help:"List the processes on the GPUs."`
}

// size is an amount of memory such as 2GiB.
type size uint64

// UnmarshalText reads a number with a unit: B, KiB, MiB or GiB. K, M and G mean the same.
func (s *size) UnmarshalText(text []byte) error {
	number := strings.TrimRight(string(text), "KMGiBkmgb")
	unit := map[string]uint64{"b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}[strings.ToLower(string(text[len(number):]))]
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || unit == 0 || v < 0 || v*float64(unit) > math.MaxInt64 {
		return fmt.Errorf("want an amount of memory with its unit, such as 512MiB or 2GiB, not %.40q", text)
	}
	*s = size(v * float64(unit))
	return nil
}

type processAddCmd struct {
	nodeFlags
	gpuFlag
	PID     *uint32   `name:"pid" placeholder:"N" help:"The process's id; one that no process of the GPUs has, from 100001 on, if left out."`
	Name    string    `default:"/usr/bin/python3" placeholder:"PATH" help:"The path of its program; /usr/bin/python3 by default."`
	Memory  *size     `placeholder:"SIZE" help:"The GPU memory that it uses, such as 2GiB."`
	Type    string    `enum:"C,G,C+G" default:"C" help:"What it does: C computes, G draws, C+G both; C by default."`
	SM      *uint32   `name:"sm" placeholder:"PERCENT" help:"How much of the GPU it uses."`
	MemUtil *uint32   `name:"mem" placeholder:"PERCENT" help:"How much of the memory's bandwidth it uses."`
	Enc     *uint32   `name:"enc" placeholder:"PERCENT" help:"How much of the encoders it uses."`
	Dec     *uint32   `name:"dec" placeholder:"PERCENT" help:"How much of the decoders it uses."`
	For     *duration `placeholder:"DURATION" help:"Take it off by itself after that time, such as 30s or 5m."`
}

func (processAddCmd) Help() string {
	return `The process need not exist: it is an entry on the lists of the GPUs, and their memory and utilisation follow from it. The id is
printed. Examples:

    nvmlfab process add --gpu 0 --memory 20GiB --sm 85
    nvmlfab process add --gpu 0,1 --pid 4242 --name /usr/bin/train --memory 512MiB --for 1m

` + whichNode
}

// keys are the process as an entry of a profile.
func (c processAddCmd) keys(pid uint32) profiles.Settings {
	keys := profiles.Settings{"pid": pid, "type": c.Type, "name": c.Name}
	if c.Memory != nil {
		keys["used_memory_mib"] = uint64(*c.Memory) >> 20
	}
	for key, value := range map[string]*uint32{"sm_util": c.SM, "mem_util": c.MemUtil, "enc_util": c.Enc, "dec_util": c.Dec} {
		if value != nil {
			keys[key] = *value
		}
	}
	return keys
}

func (c processAddCmd) Run() error {
	if len(c.GPU) == 0 {
		return errors.New("say on which GPUs it is with --gpu, such as --gpu 0 or --gpu all")
	}
	if c.PID != nil && *c.PID == 0 {
		return errors.New("--pid: no process has the id 0")
	}
	if c.Memory != nil && uint64(*c.Memory)%(1<<20) != 0 {
		return errors.New("--memory: NVML's lists know whole MiB alone: give a multiple of 1MiB")
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	list, err := n.gpus(c.GPU)
	if err != nil {
		return err
	}
	var pid uint32
	err = n.change(func(t *change.Tx) error {
		if c.PID != nil {
			pid = *c.PID
		} else {
			if pid, err = freePID(t); err != nil {
				return err
			}
		}
		for _, i := range list {
			p := state.Process{ID: strconv.FormatUint(uint64(pid), 10), Keys: c.keys(pid), Until: c.For.until(t.Now)}
			if err := t.AddProcess(i, p); err != nil {
				return about(i, err)
			}
		}
		return nil
	})
	if err == nil && c.PID == nil {
		_, err = fmt.Println(pid)
	}
	return err
}

// freePID is a pid that no process of the node's GPUs has.
func freePID(t *change.Tx) (uint32, error) {
	used := map[uint32]bool{}
	for i := range t.Devices() {
		d, err := t.Device(i)
		if err != nil {
			return 0, err
		}
		for _, p := range d.Processes {
			used[p.PID] = true
		}
	}
	pid := uint32(100001)
	for used[pid] {
		pid++
	}
	return pid, nil
}

type processRemoveCmd struct {
	nodeFlags
	gpuFlag
	All bool     `help:"Take off all added processes."`
	PID []uint32 `arg:"" optional:"" name:"pid" help:"The process's id."`
}

func (processRemoveCmd) Help() string {
	return `Without --gpu, it is taken off every GPU. Processes of the profile stay, and those that nvmlfab run has started stay for as
long as they live. Examples:

    nvmlfab process remove 4242
    nvmlfab process remove --gpu 0 --all

` + whichNode
}

func (c processRemoveCmd) Run() error {
	if c.All == (len(c.PID) > 0) {
		return errors.New("say which processes by their ids, or --all")
	}
	n, err := c.open(true)
	if err != nil {
		return err
	}
	gpus := c.GPU
	if len(gpus) == 0 {
		gpus = []string{"all"}
	}
	list, err := n.gpus(gpus)
	if err != nil {
		return err
	}
	return n.change(func(t *change.Tx) error {
		removed := 0
		for _, i := range list {
			count, err := t.RemoveProcesses(i, func(p state.Process) bool {
				process, err := profiles.ProcessOf(p.Keys)
				return p.Real == nil && (c.All || err == nil && slices.Contains(c.PID, process.PID))
			})
			if err != nil {
				return about(i, err)
			}
			removed += count
		}
		if removed == 0 && !c.All {
			return fmt.Errorf("no added process has the id %s: nvmlfab process list lists them", strings.Trim(fmt.Sprint(c.PID), "[]"))
		}
		if removed == 0 {
			return errUnchanged
		}
		return nil
	})
}

type processListCmd struct {
	nodeFlags
	Output string `short:"o" enum:"table,json" default:"table" help:"Print a table, or json for programs."`
}

func (processListCmd) Help() string {
	return `ADDED says whether a process is the profile's, was added, or is real: a program that nvmlfab run has started. Example:

    nvmlfab process list

` + whichNode
}

// process is a process as it is printed.
type process struct {
	GPU    uint32     `json:"gpu"`
	UUID   string     `json:"uuid"`
	PID    uint32     `json:"pid"`
	Type   string     `json:"type"`
	Name   string     `json:"name,omitempty"`
	Memory *uint64    `json:"used_memory_mib,omitempty"`
	SM     *uint32    `json:"sm_util,omitempty"`
	Origin string     `json:"origin"`
	Until  *time.Time `json:"until,omitempty"`
}

func (c processListCmd) Run() error {
	n, err := c.open(false)
	if err != nil {
		return err
	}
	if err := n.read(); err != nil {
		return err
	}
	list := []process{}
	now := time.Now().UnixMilli()
	for i := range n.source.Board.Devices {
		d, err := n.source.Device(i, now)
		if err != nil {
			return err
		}
		_, record := n.source.Records(i)
		for j := range d.Processes {
			p := &d.Processes[j]
			entry := process{GPU: d.Index, UUID: string(d.UUID), PID: p.PID, Type: p.Type.Or("C"), Name: p.Name.Value,
				Memory: given(p.UsedMemoryMiB), SM: given(p.SMUtil), Origin: "profile"}
			for _, added := range record.Processes {
				if as, err := profiles.ProcessOf(added.Keys); err == nil && as.PID == p.PID && !ended(added.Until, now) {
					entry.Origin = "added"
					if added.Real != nil {
						entry.Origin = "real"
					}
					if added.Until != 0 {
						until := time.UnixMilli(added.Until).UTC()
						entry.Until = &until
					}
				}
			}
			list = append(list, entry)
		}
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tPID\tTYPE\tNAME\tMEMORY\tSM\tADDED")
	for _, p := range list {
		memory, sm := "N/A", reading(p.SM, "%.0f %%", 1)
		if p.Memory != nil {
			memory = fmt.Sprintf("%d MiB", *p.Memory)
		}
		origin := p.Origin
		if p.Until != nil {
			origin += ", " + time.Duration(max(p.Until.UnixMilli()-now, 0)*1e6).Round(time.Second).String() + " left"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", p.GPU, p.PID, p.Type, or(p.Name, "N/A"), memory, sm, origin)
	}
	return w.Flush()
}
