// Package host is the process around the engine, as the engine sees it. The core gives it the process that loaded the
// library, and tests give it one of their own.
package host

import (
	"errors"
	"time"
)

// Host is the process around the engine.
type Host interface {
	// Getenv reads the environment as it is now.
	Getenv(name string) string
	// Privileged says that the process runs with another user's privileges, so that no variable may be obeyed.
	Privileged() bool
	// ReadFile reads a configuration file. Its error names the file.
	ReadFile(name string) ([]byte, error)
	// Now tells the time, and Booted when the machine was booted, by the same clock.
	Now() time.Time
	Booted() time.Time
	// Admin says whether the calling thread may administer GPUs: as root, or with CAP_SYS_ADMIN.
	Admin() bool
	// Complain says a line to whoever runs the process.
	Complain(line string)
	// Keep holds on to what the node is made of until it is given something else, ErrMemory if it cannot. Kept returns
	// that, in forked processes too.
	Keep(config []byte) error
	Kept() []byte
	Handles
}

// Kind is what a handle stands for. Kinds are noted in memory that outlives the core, so their numbers do not change.
type Kind uint32

// The kinds of handles that nvml.h has. An nvmlDevice_t is a whole GPU or a MIG device.
const (
	None            Kind = 0
	Device          Kind = 1
	EventSet        Kind = 2
	MigDevice       Kind = 3
	GpuInstance     Kind = 4
	ComputeInstance Kind = 5
	SystemEventSet  Kind = 6
	GpmSample       Kind = 7
	Unit            Kind = 8
)

// Key names what a handle stands for. A serial is never used again for another object of that kind and device.
type Key struct {
	Kind   Kind
	Device uint32
	Serial uint64
}

// Why a handle is not made.
var (
	ErrEnded  = errors.New("the generation of handles has ended")
	ErrMemory = errors.New("no memory is left for handles")
)

// Handles is the memory that handles lie in. Forked processes inherit it. A generation begins with the first nvmlInit and
// ends with the last nvmlShutdown; no handle outlives its generation, and no address is ever given out again.
type Handles interface {
	// Generation is the number of the generation that is now.
	Generation() uint64
	// Take makes a handle for a key; ErrEnded or ErrMemory if it cannot.
	Take(generation uint64, key Key) (handle uintptr, err error)
	// Key tells what a handle of that generation stands for, false for any other number.
	Key(generation uint64, handle uintptr) (Key, bool)
	// Release makes a handle stale and drops its record, false if it was stale.
	Release(generation uint64, handle uintptr) bool
	// SetRecord puts a record down with a handle: ErrEnded if the handle is stale, ErrMemory if there is no room. Record
	// reads it, in forked processes too; false if the handle is stale.
	SetRecord(generation uint64, handle uintptr, record []byte) error
	Record(generation uint64, handle uintptr) ([]byte, bool)
	// All calls f with every handle of that generation.
	All(generation uint64, f func(handle uintptr, key Key))
}
