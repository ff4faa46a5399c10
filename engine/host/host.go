// Package host is the engine's interface to its process. In the core that is the process that loaded the library; tests
// use a simulated one.
package host

import (
	"errors"
	"time"
)

// Host is the process that the engine runs in.
type Host interface {
	// Getenv reads the present environment.
	Getenv(name string) string
	// Privileged reports whether the process runs with another user's privileges, so that it must ignore all variables.
	Privileged() bool
	// Library is the path, without links, of the library that the program loaded; empty if nobody knows it.
	Library() string
	// ReadFile reads a configuration file. Its error names the file.
	ReadFile(name string) ([]byte, error)
	// Now is the time, and Booted is the time when the machine was booted, by the same clock.
	Now() time.Time
	Booted() time.Time
	// Clock counts ms and never goes back. It is read with every call, so it may lag by some ms.
	Clock() int64
	// Follow says whether the engine follows directories, which makes calls bring the time along. The number of the newest
	// change lies at word, 0 where it cannot be mapped, and was seen when the files were last read. A change replaces
	// the file of that name, which is empty if nobody else can change the node.
	Follow(follows bool, word uintptr, seen uint32, file string)
	// Wake wakes the threads that wait for events, so that they ask again.
	Wake()
	// CPUs are the processors of the machine, ascending. SetCPUs lets the calling thread run on these alone; without any, on
	// all.
	CPUs() []uint32
	SetCPUs(cpus []uint32) error
	// Admin reports whether the calling thread may administer GPUs: it is root or has CAP_SYS_ADMIN.
	Admin() bool
	// ProcessName is the path by which a live process was started, or where it has none the name that the system gives it;
	// false if there is no such process.
	ProcessName(pid uint32) (string, bool)
	// Complain prints one line for the person who runs the process.
	Complain(line string)
	// Keep stores the configuration of the node until the next Keep; it returns ErrMemory if it cannot. Kept returns
	// what is stored, in forked processes too.
	Keep(config []byte) error
	Kept() []byte
	Handles
}

// Kind is the kind of object that a handle stands for. Kinds are stored in memory that outlives the core, so their
// numbers must never change.
type Kind uint32

// These are the kinds of handles in nvml.h. An nvmlDevice_t is a whole GPU or a MIG device.
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

// Key names the object that a handle stands for. A serial is never used for another object of the same kind and device.
type Key struct {
	Kind   Kind
	Device uint32
	Serial uint64
}

// Reasons why a handle cannot be made.
var (
	ErrEnded  = errors.New("the generation of handles has ended")
	ErrMemory = errors.New("no memory is left for handles")
)

// Handles is the memory that holds the handles. Forked processes inherit it. A generation starts with the first
// nvmlInit and ends with the last nvmlShutdown. Handles end with their generation, and no address is ever used again.
type Handles interface {
	// Generation is the number of the present generation.
	Generation() uint64
	// Take makes a handle for a key. It returns ErrEnded after the end of the generation, and ErrMemory without memory.
	Take(generation uint64, key Key) (handle uintptr, err error)
	// Key returns the key of a handle of that generation; false for any other number.
	Key(generation uint64, handle uintptr) (Key, bool)
	// Release makes a handle stale and frees its record; false if the handle was stale already.
	Release(generation uint64, handle uintptr) bool
	// SetRecord stores a record with a handle. It returns ErrEnded if the handle is stale, and ErrMemory if there is no
	// memory. Record returns the record, in forked processes too; false if the handle is stale.
	SetRecord(generation uint64, handle uintptr, record []byte) error
	Record(generation uint64, handle uintptr) ([]byte, bool)
	// All calls f with every handle of that generation.
	All(generation uint64, f func(handle uintptr, key Key))
}
