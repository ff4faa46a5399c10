// Package enginetest gives the engine a process to run in, for tests.
package enginetest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
)

// Base is the address of handle number 0, and Stride the distance between two handles.
const (
	Base   = 0x7f00_0000_0000
	Stride = 16
)

// Host is a process with an environment of its own and room for Limit handles, any number if that is 0.
type Host struct {
	Env   map[string]string
	Limit uint64

	mu          sync.Mutex
	start, next uint64
	kinds       map[uint64]engine.Kind
	config      []byte
}

// Use makes the engine run in a process with that environment, given as NAME, value, NAME, value and so on.
func Use(env ...string) *Host {
	h := &Host{Env: map[string]string{}, kinds: map[uint64]engine.Kind{}}
	for i := 0; i < len(env); i += 2 {
		h.Env[env[i]] = env[i+1]
	}
	engine.Use(h)
	return h
}

// Start starts the engine on a profile, on the default board if that is empty, and stops it when the test ends.
func Start(t testing.TB, profile string) *engine.Node {
	t.Helper()
	h := Use()
	if profile != "" {
		h.Env["MOCK_NVML_CONFIG"] = Write(t, profile)
	}
	require.NoError(t, engine.Start())
	t.Cleanup(engine.Stop)
	return engine.Current()
}

// Write writes a profile to a file and returns its path.
func Write(t testing.TB, profile string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(profile), 0o600))
	return path
}

// At stops the engine's clock for the rest of the test.
func At(t testing.TB, now time.Time) {
	t.Helper()
	engine.Clock = func() time.Time { return now }
	t.Cleanup(func() { engine.Clock = time.Now })
}

// Keep and Kept hold on to what the engine was configured with.
func (h *Host) Keep(config []byte) { h.config = config }

// Kept returns what Keep was given.
func (h *Host) Kept() []byte { return h.config }

// Getenv reads the process's environment.
func (h *Host) Getenv(name string) string { return h.Env[name] }

// Handles returns the handles' base and the numbers that this generation uses.
func (h *Host) Handles() (base uintptr, start, next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Base, h.start, h.next
}

// Reserve takes the next number.
func (h *Host) Reserve(kind engine.Kind) (number uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Limit > 0 && h.next >= h.Limit {
		return 0, false
	}
	number = h.next
	h.kinds[number] = kind
	h.next++
	return number, true
}

// Kind reads what a number stands for.
func (h *Host) Kind(number uint64) engine.Kind {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kinds[number]
}

// Note changes what a number stands for.
func (h *Host) Note(number uint64, kind engine.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kinds[number] = kind
}

// NextGeneration is what the front does at the last nvmlShutdown: the next handles follow those used so far.
func (h *Host) NextGeneration() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.start = h.next
}
