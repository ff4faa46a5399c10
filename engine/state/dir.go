package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/engine/state/caps"
	"github.com/nvmlfab/nvmlfab/engine/state/word"
)

// The files of a state directory.
const (
	Overrides  = "overrides.yaml"
	file       = "state.json"
	generation = "generation"
	fresh      = ".state.json.new"
	lockFile   = "lock"
	// Processes is the folder with a locked file for each real process in a GPU's process list.
	Processes = "processes"
)

// largest is the greatest size of a valid state.json or overrides.yaml.
const largest = 64 << 20

// Dir is a state directory. Its methods may be called by any thread.
type Dir struct {
	path string
	// raised says that this process has raised the number once, in case an earlier writer died before it could.
	raised  atomic.Bool
	watcher watcher
}

// At is the directory with that path, which need not exist yet.
func At(path string) *Dir { return &Dir{path: path} }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// File is the path of the file that each change replaces.
func (d *Dir) File() string { return filepath.Join(d.path, file) }

// open opens the directory.
func (d *Dir) open() (int, error) {
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: d.path, Err: err}
	}
	return fd, nil
}

// Create makes the directory if it does not exist, with the number by which readers notice changes. Readers do not
// write, so without that file they would notice the first change a tick late.
func (d *Dir) Create() error {
	if err := os.Mkdir(d.path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode, err := modeOf(fd)
	if err == nil {
		err = word.Create(fd, generation, mode)
	}
	if err != nil {
		return d.wrong(generation, err)
	}
	return nil
}

// Prepare makes the folders in which the capabilities of GPUs, by their minor numbers, will be.
func (d *Dir) Prepare(gpus []uint32) error {
	fd, err := d.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err == nil {
		err = caps.Prepare(fd, stat.Mode&0o777, gpus)
	}
	if err != nil {
		return d.wrong("", err)
	}
	return nil
}

// Read returns the state in the directory; nil if nothing has changed yet. Parts that equal those of the earlier state
// are shared with it.
func (d *Dir) Read(before *State) (*State, error) {
	fd, err := d.open()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return d.read(fd, before)
}

func (d *Dir) read(fd int, before *State) (*State, error) {
	text, err := slurp(fd, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, d.wrong(file, err)
	}
	s, err := Decode(text, before)
	if s != nil {
		s.seen = d.look(fd, s)
	}
	if err != nil {
		return s, d.wrong(file, err)
	}
	return s, nil
}

// ReadOverrides returns the text of overrides.yaml, nil if there is none, and when it was written, in ms since 1970.
func (d *Dir) ReadOverrides() (text []byte, written int64, err error) {
	fd, err := d.open()
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if unix.Fstatat(fd, Overrides, &stat, 0) == nil {
		written = stat.Mtim.Nano() / 1e6
	}
	text, err = slurp(fd, Overrides)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, d.wrong(Overrides, err)
	}
	return text, written, nil
}

func (d *Dir) wrong(name string, err error) error {
	return fmt.Errorf("%s: %w", filepath.Join(d.path, name), err)
}

// slurp reads a regular file of a directory.
func slurp(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case info.Size() > largest:
		return nil, fmt.Errorf("is larger than %d MiB", largest>>20)
	}
	return io.ReadAll(io.LimitReader(f, largest))
}

// Update changes the state. It takes the directory's lock, reads the state and passes it to change. change returns the
// new state, or nil for no change, and Update commits it as a whole. It returns one of these errors:
//
//   - [ErrBusy]: others hold the lock for too long.
//   - [ErrNewer]: the state has a format that this version does not write.
//   - fs.ErrPermission, or one for which [Full] is true: the directory cannot be written.
//   - the error of change.
//
// A state.json that cannot be read is renamed to state.json.bad, and change gets nil, as without the file; aside is the
// error that says so.
func (d *Dir) Update(change func(now *State) (*State, error)) (s *State, aside, err error) {
	fd, err := d.open()
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	unlock, err := lock(fd)
	if err != nil {
		return nil, nil, d.wrong("", err)
	}
	defer unlock()
	if err := fits(word.Size); err != nil {
		return nil, nil, d.wrong(generation, err)
	}
	if err := d.repair(fd); err != nil {
		return nil, nil, d.wrong(generation, err)
	}
	before, err := d.read(fd, nil)
	switch {
	case errors.Is(err, ErrNewer):
		return nil, nil, err
	case errors.Is(err, errTorn):
		aside = fmt.Errorf("%w; it is kept as %s.bad, and the node begins anew", err, file)
		if err := unix.Renameat(fd, file, fd, file+".bad"); err != nil {
			return nil, nil, d.wrong(file, err)
		}
	case err != nil:
		return nil, nil, err
	}
	sweep(fd, before)
	// The files of a new instance are made before others see it, and those of a destroyed one are removed afterwards. If a
	// writer dies in between, files without an instance are left, which the next writer removes.
	committed := before
	defer func() { caps.Trim(fd, committed.capabilities()) }()
	after, err := change(before)
	if err != nil || after == nil {
		return before, aside, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, aside, d.wrong("", err)
	}
	if err := caps.Make(fd, stat.Mode&0o777, after.capabilities()); err != nil {
		return nil, aside, d.wrong("", err)
	}
	if err := d.commit(fd, after); err != nil {
		return nil, aside, d.wrong(file, err)
	}
	committed = after
	return after, aside, word.Raise(fd, generation)
}

// fits refuses to write files larger than the process's limit (ulimit -f), since trying sends a signal that ends it.
func fits(size int) error {
	var most unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &most) == nil && most.Cur < uint64(size) {
		return unix.EFBIG
	}
	return nil
}

// repair makes the file of the number if necessary, and completes the change of a writer that died.
func (d *Dir) repair(fd int) error {
	mode, err := modeOf(fd)
	if err != nil {
		return err
	}
	if err := word.Create(fd, generation, mode); err != nil {
		return err
	}
	if d.raised.Swap(true) {
		return nil
	}
	_ = unix.Unlinkat(fd, fresh, 0)
	return word.Raise(fd, generation)
}

// modeOf is the mode of files in a directory: the directory's without the execute bits. It is set explicitly, since the
// process's umask could make files unreadable for the others.
func modeOf(fd int) (uint32, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, err
	}
	return stat.Mode & 0o666, nil
}

// commit writes a state to a new file and renames that over the old one.
func (d *Dir) commit(dir int, s *State) (err error) {
	text, err := s.Encode()
	if err != nil {
		return err
	}
	if err := fits(len(text)); err != nil {
		return err
	}
	mode, err := modeOf(dir)
	if err != nil {
		return err
	}
	_ = unix.Unlinkat(dir, fresh, 0)
	fd, err := unix.Openat(dir, fresh, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", fresh, err)
	}
	defer unix.Close(fd)
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(dir, fresh, 0)
		}
	}()
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	for rest := text; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		rest = rest[n:]
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	return unix.Renameat(dir, fresh, dir, file)
}

// Full reports whether an error means that a disk or a quota is full.
func Full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// Refused reports whether an error means that the process may not write the directory.
func Refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// Clean is a path without a slash at its end.
func Clean(path string) string {
	if path == "" {
		return ""
	}
	return strings.TrimRight(filepath.Clean(path), "/")
}
