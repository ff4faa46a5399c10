package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/plugin"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// harmless are the Xid errors after which NVIDIA's device plugin keeps a GPU: they are those of programs.
var harmless = []uint64{13, 31, 43, 45, 68, 109}

// healthy says whether containers can use a GPU. NVIDIA's device plugin learns it from Xid errors.
func healthy(d *profiles.Device) bool {
	f := &d.Failure
	switch {
	case f.Mode.Value != "" && f.Mode.Value != "none" && !f.Waits():
		return false
	case f.Xid.Code.Valid && !f.Waits() && !slices.Contains(harmless, f.Xid.Code.Value):
		return false
	}
	return d.RecoveryAction.Value == "" || d.RecoveryAction.Value == "none"
}

// view is the node as it is now, for those who look at it often. A state directory is read again when its file has changed.
type view struct {
	staged *machine.Staged
	tree   string
	seen   os.FileInfo
	numa   []int64
	offers []offer // what the kubelet knows
}

// look returns the tree in force and its state; nil if there is none.
func (v *view) look(current string) *machine.Staged {
	tree, err := filepath.EvalSymlinks(current)
	if err != nil {
		v.staged = nil
		return nil
	}
	if v.staged == nil || v.tree != tree {
		if v.staged, err = machine.OpenStaged(tree); err != nil {
			v.staged = nil
			return nil
		}
		v.tree, v.seen, v.numa = tree, nil, nil
		for i := range v.staged.Source.Board.Devices {
			v.numa = append(v.numa, numaOf(tree, &v.staged.Source.Board.Devices[i]))
		}
	}
	info, err := os.Stat(v.staged.Dir.File())
	if err != nil {
		v.staged.Source.State, v.seen = nil, nil
	} else if v.seen == nil || !os.SameFile(info, v.seen) || !info.ModTime().Equal(v.seen.ModTime()) {
		if _, err := v.staged.Read(); err == nil {
			v.seen = info
		}
	}
	return v.staged
}

// numaOf is the NUMA node of a GPU of a tree; -1 if it is at none.
func numaOf(tree string, d *profiles.Device) int64 {
	id := d.PCI.BusID.Value
	name := fmt.Sprintf("%04x:%02x:%02x.%x", id.Domain, id.Bus, id.Device, id.Function)
	text, err := os.ReadFile(filepath.Join(tree, "sys/bus/pci/devices", name, "numa_node"))
	if err != nil {
		return -1
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		return n
	}
	return -1
}

// Devices are the GPUs and MIG devices of the node for the kubelet.
func (a *Agent) Devices() (list []plugin.Device) {
	a.looking.Lock()
	defer a.looking.Unlock()
	staged := a.view.look(filepath.Join(a.o.Root, current))
	if staged == nil {
		return nil
	}
	now := time.Now().UnixMilli()
	all, err := offers(&staged.Source, a.o.MIGStrategy, now)
	if err != nil {
		a.o.Log(err)
		return nil
	}
	if !slices.Equal(all, a.view.offers) { // somebody has cut GPUs: the CDI specification and the labels have to follow
		a.view.offers = all
		a.Kick()
	}
	for _, o := range all {
		d, err := staged.Source.Device(o.gpu, now)
		list = append(list, plugin.Device{Resource: o.resource, ID: o.uuid, Healthy: err == nil && healthy(d), NUMA: a.view.numa[o.gpu]})
	}
	return list
}
