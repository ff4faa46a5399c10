package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A real process is one of the system that nvmlfab run has put on a GPU's list. It holds a POSIX lock on a file of its own,
// by a descriptor that stays open when it executes another program. Nobody else can hold that lock, and the kernel takes it
// back when the process ends, whatever ends it. Whoever may read the directory may ask the kernel who holds the lock, and is
// told the process id as its own namespace has it. A program that closes all of its descriptors loses the lock; it is then
// looked for by its process id and the time of its start.

// sight is what is known of a real process.
type sight struct {
	pid  uint32 // in the namespace of this process; 0 if it cannot be seen from there
	died int64  // when it was found to have ended, in ms since 1970; 0 while it lives
}

// sights are the real processes by ID, as they were seen at one time.
type sights struct{ of map[string]sight }

// watcher remembers what was seen of a directory's real processes.
type watcher struct {
	mu   sync.Mutex
	last *sights
}

// End is when a process has ended or will end by itself, in ms since 1970; 0 if neither. A real process ends when its end is
// noticed.
func (s *State) End(p *Process) int64 {
	if died := s.sight(p).died; died != 0 && (p.Until == 0 || died < p.Until) {
		return died
	}
	return p.Until
}

// Hidden reports whether a process lives where this process cannot see it, as in a container beside its own: it uses the
// GPU, but is on no list.
func (s *State) Hidden(p *Process) bool {
	return p.Real != nil && s.sight(p).pid == 0
}

// PID is the process id of a real process in the namespace of this process.
func (s *State) PID(p *Process) uint32 { return s.sight(p).pid }

func (s *State) sight(p *Process) sight {
	if p.Real == nil {
		return sight{}
	}
	if s.seen != nil {
		if seen, ok := s.seen.of[p.ID]; ok {
			return seen
		}
	}
	return sight{pid: uint32(p.Real.PID)}
}

// Sights identifies what is known of the real processes: two states with equal sights show them alike.
func (s *State) Sights() any {
	if s == nil || s.seen == nil {
		return nil
	}
	return s.seen
}

// real calls f with every real process.
func (s *State) real(f func(*Process)) {
	for _, r := range s.Devices {
		for i := range r.Processes {
			if p := &r.Processes[i]; p.Real != nil {
				f(p)
			}
		}
	}
}

// look finds out which of a state's real processes live.
func (d *Dir) look(fd int, s *State) *sights {
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	now := time.Now().UnixMilli()
	seen := map[string]sight{}
	var own *Real
	s.real(func(p *Process) {
		if _, done := seen[p.ID]; done {
			return
		}
		if own == nil {
			own = self()
		}
		pid, lives := own.sees(fd, p)
		if lives {
			seen[p.ID] = sight{pid: pid}
			return
		}
		died := now
		if d.watcher.last != nil {
			if before := d.watcher.last.of[p.ID]; before.died != 0 {
				died = before.died
			}
		}
		seen[p.ID] = sight{died: max(died, p.Started)}
	})
	switch last := d.watcher.last; {
	case len(seen) == 0:
		d.watcher.last = nil
	case last == nil || !maps.Equal(last.of, seen):
		d.watcher.last = &sights{seen}
	}
	return d.watcher.last
}

// Moved reports whether a real process of a state has begun or ended to live, or to be seen, since the state was read.
func (d *Dir) Moved(s *State) bool {
	if s == nil {
		return false
	}
	any := false
	s.real(func(*Process) { any = true })
	if !any {
		return false
	}
	fd, err := d.open()
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return d.look(fd, s) != s.seen
}

// sees reports whether a real process lives, and its id for the process own. It opens no file of its own process's: closing
// that would give up the lock.
func (own *Real) sees(dir int, p *Process) (pid uint32, lives bool) {
	r := p.Real
	near := own.Namespace != 0 && own.Namespace == r.Namespace && own.Boot == r.Boot
	if near && own.PID == r.PID && own.Start == r.Start {
		return uint32(r.PID), true
	}
	if pid, held := holder(dir, p.ID); held {
		return pid, true
	}
	if near && r.PID > 0 {
		start, err := startOf(strconv.Itoa(r.PID))
		return uint32(r.PID), err == nil && start == r.Start
	}
	return 0, false
}

// holder is the process that holds the lock on the file of a real process.
func holder(dir int, id string) (pid uint32, held bool) {
	if strings.Contains(id, "/") {
		return 0, false
	}
	// Closing a file gives up the locks that the process itself has on it. So no link is followed, and no file opened that is
	// not as nvmlfab makes it: it could be one that the program has locked.
	processes, err := unix.Openat(dir, Processes, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(processes)
	var stat unix.Stat_t
	if unix.Fstatat(processes, id, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Size != 0 || stat.Nlink != 1 {
		return 0, false
	}
	fd, err := unix.Openat(processes, id, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return 0, false
	}
	return uint32(max(lock.Pid, 0)), true
}

// self identifies this process. Without /proc it has no namespace and no start.
func self() *Real {
	r := &Real{PID: os.Getpid()}
	var stat unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &stat) == nil {
		r.Namespace = stat.Ino
	}
	if text, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		r.Boot = strings.TrimSpace(string(text))
	}
	r.Start, _ = startOf("self")
	return r
}

var errEnded = errors.New("has ended")

// startOf is when a process started, in clock ticks after the boot. One that has ended and that nobody has waited for yet has
// given its memory back.
func startOf(pid string) (uint64, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third on
	if len(fields) < 20 {
		return 0, errEnded
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, errEnded
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// Enrol makes this process one that can be put on GPUs' lists, also after it has executed another program: it makes its file
// and holds the lock for as long as it lives. To be called in an Update, so that nobody takes the file for a leftover.
func (d *Dir) Enrol() (id string, r *Real, err error) {
	r = self()
	if r.Namespace == 0 || r.Start == 0 {
		return "", nil, errors.New("no /proc: a process cannot be told from one that gets its id later")
	}
	id = fmt.Sprintf("run-%d-%d-%d", r.Namespace, r.PID, r.Start)
	dir, err := d.open()
	if err != nil {
		return "", nil, err
	}
	defer unix.Close(dir)
	mode, err := modeOf(dir)
	if err != nil {
		return "", nil, err
	}
	if err := unix.Mkdirat(dir, Processes, 0o700); err == nil {
		err = unix.Fchmodat(dir, Processes, mode|mode>>2&0o111, 0)
		if err != nil {
			return "", nil, d.wrong(Processes, err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return "", nil, d.wrong(Processes, err)
	}
	processes, err := unix.Openat(dir, Processes, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, d.wrong(Processes, err)
	}
	defer unix.Close(processes)
	// Without O_CLOEXEC: the program that is executed has it open.
	fd, err := unix.Openat(processes, id, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err == nil {
		// A high number, since scripts choose low ones for files of their own.
		if high, e := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 200); e == nil {
			unix.Close(fd)
			fd = high
		}
		err = unix.Fchmod(fd, mode)
	}
	if err == nil {
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err != nil {
		return "", nil, d.wrong(Processes+"/"+id, err)
	}
	return id, r, nil
}

// sweep removes the files of real processes that are on no list. The caller holds the directory's lock.
func sweep(dir int, s *State) {
	fd, err := unix.Openat(dir, Processes, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), Processes)
	defer f.Close()
	known := map[string]bool{}
	if s != nil {
		s.real(func(p *Process) { known[p.ID] = true })
	}
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, "run-") && !known[name] {
			_ = unix.Unlinkat(fd, name, 0)
		}
	}
}
