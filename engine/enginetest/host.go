// Package enginetest gives tests a process for the engine to run in.
package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Base is the address of the first handle, and Stride the distance between two handles.
const (
	Base   = 0x7f00_0000_0000
	Stride = 64
)

// Host is a simulated process.
type Host struct {
	Env        map[string]string
	Path       string            // of the library
	Names      map[uint32]string // of the system's processes
	SetUser    bool              // the process runs with another user's privileges
	User       bool              // the process may not administer GPUs
	Limit      int               // number of handles that there is room for; 0 means any number
	Complaints []string          // what the engine complained of
	Bound      []uint32          // the CPUs that a thread was bound to

	Wakes int // how often the engine woke threads that wait

	mu         sync.Mutex
	generation uint64
	slots      []slot
	config     []byte
}

type slot struct {
	generation uint64
	key        host.Key
	record     []byte
}

// New makes a process with an environment, given as NAME, value, NAME, value and so on.
func New(env ...string) *Host {
	h := &Host{Env: map[string]string{}, generation: 1}
	for i := 0; i < len(env); i += 2 {
		h.Env[env[i]] = env[i+1]
	}
	return h
}

// Start starts an engine on a profile, or on the default board if profile is empty, and stops it when the test ends.
func Start(t testing.TB, profile string) *engine.Snapshot {
	t.Helper()
	s, _ := StartHost(t, profile)
	return s
}

// StartHost is Start for tests that change the process.
func StartHost(t testing.TB, profile string) (*engine.Snapshot, *Host) {
	t.Helper()
	h := New()
	if profile != "" {
		h.Env["MOCK_NVML_CONFIG"] = Write(t, profile)
	}
	e := engine.New(h)
	require.NoError(t, e.Start())
	t.Cleanup(e.Stop)
	return e.Snapshot(), h
}

// Write writes a profile to a file and returns its path.
func Write(t testing.TB, profile string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(profile), 0o600))
	return path
}

// Clock is the clock of every process.
var Clock = time.Now

// At stops the clock for the rest of the test.
func At(t testing.TB, now time.Time) {
	t.Helper()
	Clock = func() time.Time { return now }
	t.Cleanup(func() { Clock = time.Now })
}

// Boot is the boot time of every process's machine.
var Boot = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Getenv reads the process's environment.
func (h *Host) Getenv(name string) string { return h.Env[name] }

// Privileged returns SetUser.
func (h *Host) Privileged() bool { return h.SetUser }

// Library returns Path.
func (h *Host) Library() string { return h.Path }

// ReadFile reads a file of the test's.
func (h *Host) ReadFile(name string) ([]byte, error) { return profiles.Read(name) }

// ProcessName returns the name that Names has.
func (h *Host) ProcessName(pid uint32) (string, bool) {
	name, ok := h.Names[pid]
	return name, ok
}

// Now returns the time of Clock.
func (h *Host) Now() time.Time { return Clock() }

// Complain appends a line to Complaints.
func (h *Host) Complain(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Complaints = append(h.Complaints, line)
}

// Follow does nothing: Clock is right at every call.
func (h *Host) Follow(bool, uintptr, uint32, string) {}

// Wake counts.
func (h *Host) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Wakes++
}

// Clock counts with the clock of every process, in ms.
func (h *Host) Clock() int64 { return Clock().UnixMilli() }

// Booted returns Boot.
func (h *Host) Booted() time.Time { return Boot }

// Admin returns the opposite of User.
func (h *Host) Admin() bool { return !h.User }

// CPUs are eight processors.
func (h *Host) CPUs() []uint32 { return []uint32{0, 1, 2, 3, 4, 5, 6, 7} }

// SetCPUs keeps what it is given in Bound.
func (h *Host) SetCPUs(cpus []uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Bound = cpus
	return nil
}

// Keep stores the configuration of the engine.
func (h *Host) Keep(config []byte) error {
	h.config = config
	return nil
}

// Kept returns what Keep stored.
func (h *Host) Kept() []byte { return h.config }

// Generation is the number of the present generation.
func (h *Host) Generation() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// Take makes a handle.
func (h *Host) Take(generation uint64, key host.Key) (uintptr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if generation != h.generation {
		return 0, host.ErrEnded
	}
	if h.Limit > 0 && len(h.slots) >= h.Limit {
		return 0, host.ErrMemory
	}
	h.slots = append(h.slots, slot{generation: generation, key: key})
	return uintptr(Base + (len(h.slots)-1)*Stride), nil
}

// at is the slot of a handle; nil if the handle is stale or not a handle.
func (h *Host) at(generation uint64, handle uintptr) *slot {
	offset := handle - Base
	if offset%Stride != 0 || offset/Stride >= uintptr(len(h.slots)) {
		return nil
	}
	s := &h.slots[offset/Stride]
	if s.generation != generation || s.key.Kind == host.None {
		return nil
	}
	return s
}

// Key tells what a handle stands for.
func (h *Host) Key(generation uint64, handle uintptr) (host.Key, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.at(generation, handle); s != nil {
		return s.key, true
	}
	return host.Key{}, false
}

// Release makes a handle stale.
func (h *Host) Release(generation uint64, handle uintptr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.at(generation, handle)
	if s == nil {
		return false
	}
	*s = slot{generation: generation}
	return true
}

// SetRecord stores a record with a handle.
func (h *Host) SetRecord(generation uint64, handle uintptr, record []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.at(generation, handle)
	if s == nil {
		return host.ErrEnded
	}
	s.record = slices.Clone(record)
	return nil
}

// Record returns what SetRecord stored.
func (h *Host) Record(generation uint64, handle uintptr) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.at(generation, handle); s != nil {
		return slices.Clone(s.record), true
	}
	return nil, false
}

// All calls f with every handle of a generation.
func (h *Host) All(generation uint64, f func(uintptr, host.Key)) {
	h.mu.Lock()
	slots := len(h.slots)
	h.mu.Unlock()
	for i := range slots {
		address := uintptr(Base + i*Stride)
		if key, ok := h.Key(generation, address); ok {
			f(address, key)
		}
	}
}

// End ends the generation, as the front does at the last nvmlShutdown.
func (h *Host) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.generation++
}
