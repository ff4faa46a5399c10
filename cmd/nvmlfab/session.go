package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"golang.org/x/sys/unix"
)

// A session is a folder for one trace, which processes of the program use as long as they run:
//
//	lib/libnvidia-ml.so.1          a copy of the tracing library, which the program loads
//	lib/libnvmlfab-traced.so.1     a link to the library after it
//	out                            a link to where lines go
//	relay                          a pipe for processes that cannot follow it
//	shared                         what is counted; .nvmlfab-users is the same file
type session struct {
	dir    string
	output *os.File // for lines and the summary
	relay  *relay
	undo   func()
	json   bool
}

const (
	tracer     = "libnvmlfab-trace.so"
	sharedFile = "shared"
	outLink    = "out"
	relayPipe  = "relay"
	tracedName = "libnvmlfab-traced.so.1"
)

// These are the sizes of library/trace/trace.h.
const (
	traceMagic     = 0x3165636172746e66
	traceFunctions = 1024
	traceSlots     = 256
	traceCodes     = 32
)

// counters is what all processes of a trace count in, struct shared of library/trace/trace.h.
type counters struct {
	Magic, JSON, Device, File, Processes, Lost, Error uint64
	Entry                                             [traceFunctions + traceSlots]struct {
		Stub, Calls, Ended, Nanoseconds, Longest uint64
		Codes                                    [traceCodes]uint64
	}
}

// traceIndex is the place of a symbol among the counters.
func traceIndex(s abi.Symbol) int {
	if s.Kind == "slot" {
		return traceFunctions + s.Number - firstSlot
	}
	return s.Number
}

// firstSlot is the number of nvidia-smi's table at the call gate.
const firstSlot = 0x8000

// newSession makes the folder of a trace. If the library is nvmlfab's own, it is known which functions are stubs.
func newSession(output string, json, own bool) (*session, error) {
	s := &session{json: json}
	var err error
	for _, parent := range []string{"/dev/shm", os.TempDir()} {
		if parent, err = filepath.Abs(parent); err == nil {
			if s.dir, err = os.MkdirTemp(parent, "nvmlfab-trace-*"); err == nil {
				break
			}
		}
	}
	if err != nil {
		return nil, err
	}
	err = os.Chmod(s.dir, 0o711)
	for _, step := range []func() error{func() error { return s.direct(output) }, func() error { return s.share(own) }, s.passOn} {
		if err == nil {
			err = step()
		}
	}
	if err == nil {
		err = reap(s.dir, "1", nil) // in case that this process cannot remove it
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// share makes the file with the counters. Processes of other users count, too.
func (s *session) share(own bool) error {
	c := counters{Magic: traceMagic}
	if s.json {
		c.JSON = 1
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.output.Fd()), &st); err != nil {
		return err
	}
	c.Device, c.File = st.Dev, st.Ino
	if own {
		for i := range traceSlots {
			c.Entry[traceFunctions+i].Stub = 1
		}
		for _, symbol := range abi.Symbols() {
			c.Entry[traceIndex(symbol)].Stub = 0
			if !symbol.Implemented {
				c.Entry[traceIndex(symbol)].Stub = 1
			}
		}
	}
	var text bytes.Buffer
	if err := binary.Write(&text, binary.NativeEndian, &c); err != nil {
		return err
	}
	path := filepath.Join(s.dir, sharedFile)
	if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return err
	}
	return os.Link(path, filepath.Join(s.dir, usersFile))
}

// direct opens the output and makes the link by which processes find it. Each opens it on its own and appends to it, so that
// the lines of all processes are whole.
func (s *session) direct(output string) error {
	s.undo = func() {}
	link := filepath.Join(s.dir, outLink)
	if output != "" && output != "-" {
		path, err := filepath.Abs(output)
		if err != nil {
			return err
		}
		if s.output, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o644); err != nil {
			return err
		}
		return os.Symlink(path, link)
	}
	s.output = os.Stderr
	if output == "-" {
		s.output = os.Stdout
	}
	fd := int(s.output.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG { // whatever the program itself writes there must not overwrite lines
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_APPEND); err != nil {
			return err
		}
		s.undo = func() { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags) }
	}
	return os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), link)
}

// relay passes lines on that processes cannot write themselves: a socket, or a pipe of another user, cannot be opened again,
// and a file of this process not from another user namespace.
type relay struct {
	pipe *os.File
	to   io.Writer
	done chan struct{}
	err  error // of a write
}

func (s *session) passOn() error {
	path := filepath.Join(s.dir, relayPipe)
	if err := unix.Mkfifo(path, 0o622); err != nil {
		return &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	if err := os.Chmod(path, 0o622); err != nil {
		return err
	}
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // open for writing, too, so that it has no end
	if err != nil {
		return err
	}
	s.relay = &relay{pipe: pipe, to: s.output, done: make(chan struct{})}
	go func() {
		defer close(s.relay.done)
		if _, err := io.Copy(s.output, pipe); !errors.Is(err, os.ErrDeadlineExceeded) {
			s.relay.err = err
			_, _ = io.Copy(io.Discard, pipe) // a full pipe would stop the program
		}
	}()
	return nil
}

// close passes on what is still in the pipe.
func (r *relay) close() error {
	if err := r.pipe.SetReadDeadline(time.Now()); err != nil {
		return err
	}
	<-r.done
	raw, err := r.pipe.SyscallConn()
	if err != nil {
		return err
	}
	var rest bytes.Buffer
	err = raw.Control(func(fd uintptr) {
		part := make([]byte, 64<<10)
		for {
			n, err := unix.Read(int(fd), part)
			if n <= 0 || err != nil {
				return
			}
			rest.Write(part[:n])
		}
	})
	if r.err == nil && rest.Len() > 0 {
		_, r.err = r.to.Write(rest.Bytes())
	}
	return errors.Join(err, r.err, r.pipe.Close())
}

func (s *session) remove() error {
	if s.undo != nil {
		s.undo()
	}
	return os.RemoveAll(s.dir)
}

// inFront puts the tracing library in front of another one, in the session's folder, and returns the folder for the dynamic linker.
func inFront(session, library string) (string, error) {
	dir := filepath.Join(session, "lib")
	library, err := filepath.Abs(library)
	if err != nil {
		return "", err
	}
	has, err := exports(library)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(home(), "lib", tracer))
	if err != nil {
		return "", fmt.Errorf("no %s beside nvmlfab: run make, or keep the folders bin and lib of a release side by side: %w", tracer, err)
	}
	if err := fitTracer(text, session, dir, has); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return dir, nil // by the run outside of the user namespace
	} else if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "libnvidia-ml.so.1"), text, 0o755); err != nil {
		return "", err
	}
	links := map[string]string{tracedName: library}
	for _, beside := range []string{"libnvidia-ml.so", "libnvmlfab-core.so.1"} {
		path := filepath.Join(filepath.Dir(library), beside)
		if exists(path) {
			links[beside] = path
		}
	}
	if links["libnvidia-ml.so"] != "" {
		links["libnvidia-ml.so"] = "libnvidia-ml.so.1"
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// exports are the symbols that a library has.
func exports(library string) (map[string]bool, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = has[s.Name] || s.Section != elf.SHN_UNDEF
	}
	if !has["nvmlInit_v2"] && !has["nvmlInit"] {
		return nil, fmt.Errorf("%s is no NVML library: it has no nvmlInit", library)
	}
	return has, nil
}

// placeholder is what the tracing library has in place of its session: these words, and zeros up to the room that there is.
const placeholder = "@nvmlfab-trace-session@"

// fitTracer writes the session into the tracing library, and takes away from it what the library after it does not have.
func fitTracer(text []byte, session, dir string, has map[string]bool) error {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", tracer, err)
	}
	symbols, err := f.DynamicSymbols()
	table := f.Section(".dynsym")
	if err != nil || table == nil {
		return fmt.Errorf("%s has no symbols: build it again", tracer)
	}
	for i, s := range symbols {
		if strings.HasPrefix(s.Name, "nvml") && !has[s.Name] { // an undefined symbol without a value does not exist
			at := table.Offset + uint64(i+1)*elf.Sym64Size
			clear(text[at+6 : at+elf.Sym64Size])
		}
	}
	strs := f.Section(".dynstr")
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(placeholder))
		if i < 0 {
			return nil
		}
		at += i
		end := at + len(placeholder)
		for text[end] == '0' {
			end++
		}
		value := session
		if strs != nil && uint64(at) >= strs.Offset && uint64(at) < strs.Offset+strs.Size {
			value = dir
		}
		if len(value) > end-at {
			return fmt.Errorf("%s: the path of a folder for temporary files is too long; set TMPDIR to another one", value)
		}
		clear(text[at:end])
		copy(text[at:], value)
		at = end
	}
}
