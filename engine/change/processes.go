package change

import (
	"fmt"
	"slices"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// AddProcess adds a process to a GPU. There must be room for its memory, and no process of the same id or pid.
func (t *Tx) AddProcess(i int, p state.Process) error {
	r := t.Record(i)
	t.expire(i, r)
	process, err := profiles.ProcessOf(p.Keys)
	if err != nil {
		return err
	}
	d, err := t.Device(i)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Processes, func(have state.Process) bool { return have.ID == p.ID }) {
		return fmt.Errorf("there is a process %q already", p.ID)
	}
	if slices.ContainsFunc(d.Processes, func(have profiles.Process) bool { return have.PID == process.PID }) {
		return fmt.Errorf("there is a process with the pid %d already", process.PID)
	}
	if use, ok := d.MemoryUse(); ok && process.UsedMemoryMiB.Value<<20 > use.Free {
		return fmt.Errorf("%d MiB of memory are more than the %d MiB that are free", process.UsedMemoryMiB.Value, use.Free>>20)
	}
	if p.Started == 0 {
		p.Started = t.Now
	}
	r.Processes = append(r.Processes, p)
	return t.check(i)
}

// RemoveProcesses removes those added processes of a GPU for which of is true, and says how many there were.
func (t *Tx) RemoveProcesses(i int, of func(state.Process) bool) (int, error) {
	return t.endProcesses(i, of)
}

// endProcesses ends processes now.
func (t *Tx) endProcesses(i int, of func(state.Process) bool) (int, error) {
	if i < 0 {
		return 0, nil
	}
	r := t.Record(i)
	t.expire(i, r)
	n := len(r.Processes)
	r.Processes = slices.DeleteFunc(r.Processes, func(p state.Process) bool {
		if !of(p) {
			return false
		}
		t.account(i, r, &p, t.Now)
		return true
	})
	return n - len(r.Processes), t.checkLess(i)
}
