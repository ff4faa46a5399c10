package state

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/state/word"
)

// Tick is the longest time between two checks of the files. It guarantees that every change is seen; where the number
// can be mapped, changes are seen sooner.
const Tick = 250 * time.Millisecond

// young is the age below which a file is checked again: a second change within the clock's resolution has the same time
// as the first.
const young = 20 * time.Millisecond

// Follower notices that a directory has changed. Stale may be called by any thread, Look by one at a time.
type Follower struct {
	dir  *Dir
	word atomic.Pointer[word.Word] // nil where the number cannot be mapped
	seen atomic.Uint32             // the number when the files were last read
	next atomic.Int64              // when to look again, in ms of the clock that Stale is given
	was  [3]stamp
	// again says that a file was written so shortly before the last look that a later change could look the same.
	again bool
}

// stamp identifies a version of a file.
type stamp struct {
	device, inode, size uint64
	written, changed    int64
}

// Follow follows a directory. The first Look reports a change.
func (d *Dir) Follow() *Follower { return &Follower{dir: d} }

// Close takes the mapping of the number away. Nobody may use the follower, or the address that it gave, any more.
func (f *Follower) Close() {
	if w := f.word.Swap(nil); w != nil {
		w.Close()
	}
}

// Stale reports whether it is time to look: the number has changed, or the last look was a tick ago. The clock counts
// ms and never goes back.
func (f *Follower) Stale(clock int64) bool {
	if w := f.word.Load(); w != nil && w.Load() != f.seen.Load() {
		return true
	}
	return clock >= f.next.Load()
}

// Address is the address of the number, or 0 if it is not mapped. A waiter sleeps for as long as the number stays the
// same.
func (f *Follower) Address() uintptr {
	if w := f.word.Load(); w != nil {
		return w.Address()
	}
	return 0
}

// Look reports whether a file has changed since the last look. If it has, the caller reads the files and then calls
// Seen with the number, which Look read before.
func (f *Follower) Look() (changed bool, number uint32) {
	was := f.was
	f.was = [3]stamp{}
	w := f.word.Load()
	if w != nil {
		number = w.Load()
	}
	fd, err := f.dir.open()
	if err == nil {
		defer unix.Close(fd)
		for i, name := range [...]string{generation, Overrides, file} {
			f.was[i] = stampOf(fd, name)
		}
		switch now := f.was[0]; {
		case now.size < word.Size:
			f.word.Store(nil)
		case w == nil || now.device != was[0].device || now.inode != was[0].inode:
			w, _ = word.Open(fd, generation) // the old mapping stays, since a waiter may sleep on it
			f.word.Store(w)
			if w != nil {
				number = w.Load()
			}
		}
	}
	changed = f.again || number != f.seen.Load() || f.was[1] != was[1] || f.was[2] != was[2]
	f.again = f.fresh()
	return changed, number
}

// fresh reports whether a file is younger than young.
func (f *Follower) fresh() bool {
	now := time.Now().UnixNano()
	for _, s := range f.was[1:] {
		if age := now - s.changed; s != (stamp{}) && age >= 0 && age < int64(young) {
			return true
		}
	}
	return false
}

// Seen stores that the files have been read, and when to look again, in ms of the clock of Stale.
func (f *Follower) Seen(number uint32, next int64) {
	f.seen.Store(number)
	f.next.Store(next)
}

func stampOf(dir int, name string) stamp {
	var s unix.Stat_t
	if unix.Fstatat(dir, name, &s, 0) != nil {
		return stamp{}
	}
	return stamp{s.Dev, s.Ino, uint64(s.Size), s.Mtim.Nano(), s.Ctim.Nano()}
}
