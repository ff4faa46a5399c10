package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles/capture"
)

// caller is a running nvmlfab-call, which has loaded a library.
type caller struct {
	path    string // of the library
	cmd     *exec.Cmd
	in      *os.File
	out     *os.File
	read    *bufio.Reader
	timeout time.Duration
}

// errHangs says that a call did not come back in time.
var errHangs = errors.New("the call does not come back")

// crashError says how a library ended its process.
type crashError struct{ how string }

func (e *crashError) Error() string { return "the library ended its process: " + e.how }

// newCaller loads a library. The process has this environment, and what the library prints goes to errors.
func newCaller(library string, env []string, timeout time.Duration, errors io.Writer) (*caller, error) {
	program := filepath.Join(home(), "lib", "nvmlfab-call")
	if !exists(program) {
		return nil, fmt.Errorf("no nvmlfab-call in %s: run make bin, or keep the folders bin and lib of a release side by side", filepath.Dir(program))
	}
	questions, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, answers, err := os.Pipe()
	if err != nil {
		questions.Close()
		in.Close()
		return nil, err
	}
	c := &caller{in: in, out: out, read: bufio.NewReaderSize(out, 1<<16), timeout: timeout}
	c.cmd = exec.Command(program, library)
	c.cmd.Env, c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = env, questions, answers, errors
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// What the library starts may keep the other end of errors.
	c.cmd.WaitDelay = time.Second
	err = c.cmd.Start()
	questions.Close()
	answers.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	c.deadline()
	if c.path, err = capture.Greeting(c.read); err != nil {
		err = c.fault(err)
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *caller) deadline() {
	at := time.Now().Add(c.timeout)
	_ = c.in.SetWriteDeadline(at)
	_ = c.out.SetReadDeadline(at)
}

// Call makes a call. After an error no further call is possible.
func (c *caller) Call(q capture.Question) (capture.Reply, error) {
	c.deadline()
	if err := q.Write(c.in); err != nil {
		return capture.Reply{}, c.fault(err)
	}
	reply, err := q.Read(c.read)
	if err != nil {
		return capture.Reply{}, c.fault(err)
	}
	return reply, nil
}

// fault says what is behind a failure to talk to the process.
func (c *caller) fault(err error) error {
	if load := (*capture.LoadError)(nil); errors.As(err, &load) {
		return err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w within %s", errHangs, c.timeout)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(c.timeout):
		return fmt.Errorf("%w within %s", errHangs, c.timeout)
	}
	status := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return &crashError{strings.ToUpper(status.Signal().String())}
	}
	return &crashError{fmt.Sprintf("exit status %d", status.ExitStatus())}
}

// close ends the process.
func (c *caller) close() {
	c.in.Close()
	c.out.Close()
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}
