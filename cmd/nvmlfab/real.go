package main

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// gpuMemory is an amount of memory of a GPU, such as 2GiB@1.
type gpuMemory struct {
	size size
	gpu  string
}

// UnmarshalText reads an amount of memory, and an index or a UUID after an @. Without it GPU 0 is meant.
func (m *gpuMemory) UnmarshalText(text []byte) error {
	amount, gpu, named := strings.Cut(string(text), "@")
	if named && gpu == "" {
		return fmt.Errorf("want a GPU after the @, such as 2GiB@0, not %.40q", text)
	}
	m.gpu = cmp.Or(gpu, "0")
	if err := m.size.UnmarshalText([]byte(amount)); err != nil {
		return err
	}
	if m.size%(1<<20) != 0 {
		return fmt.Errorf("NVML's lists know whole MiB alone: give a multiple of 1MiB, not %.40q", amount)
	}
	return nil
}

// checkProcess finds mistakes in what is said about the program as a process on GPUs, before anything is mounted.
func (c *runCmd) checkProcess(board *profiles.Board) error {
	if c.SM != nil && len(c.Memory) == 0 {
		return errors.New("--process-sm: say on which GPUs the program is with --process-memory")
	}
	if c.SM != nil && *c.SM > 100 {
		return fmt.Errorf("--process-sm: want a percentage from 0 to 100, not %d", *c.SM)
	}
	known := map[int]bool{}
	for _, m := range c.Memory {
		i, err := change.Find(board, m.gpu)
		if err != nil {
			return fmt.Errorf("--process-memory: %w", err)
		}
		if known[i] {
			return fmt.Errorf("--process-memory: GPU %d is named twice", i)
		}
		known[i] = true
	}
	return nil
}

// enrol puts this process, which is about to become the program, on the lists of GPUs. The environment is the program's.
func (c *runCmd) enrol() error {
	if len(c.Memory) == 0 {
		return nil
	}
	path, err := lookPath(c.Command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil // become reports the error
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	n, err := nodeFlags{}.open(true)
	if err != nil {
		return err
	}
	err = n.change(func(t *change.Tx) error {
		id, real, err := n.dir.Enrol()
		if err != nil {
			return err
		}
		for i := range t.Devices() {
			// Another run may have been this process before it executed this one.
			if _, err := t.RemoveProcesses(i, func(p state.Process) bool { return p.ID == id }); err != nil {
				return err
			}
		}
		for _, m := range c.Memory {
			i, err := change.Find(n.source.Board, m.gpu)
			if err != nil {
				return err
			}
			keys := profiles.Settings{"pid": uint32(real.PID), "type": "C", "name": path, "used_memory_mib": uint64(m.size) >> 20}
			if c.SM != nil {
				keys["sm_util"] = *c.SM
			}
			if err := t.AddProcess(i, state.Process{ID: id, Keys: keys, Real: real}); err != nil {
				return about(i, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("--process-memory: %w", err)
	}
	return nil
}
