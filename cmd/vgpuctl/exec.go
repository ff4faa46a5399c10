package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"golang.org/x/sys/unix"
)

type execCmd struct {
	limits
	Parent  string   `placeholder:"PATH" help:"Make the cgroup below this one, a folder of cgroup2, instead of the caller's own."`
	Command []string `arg:"" name:"cmd" passthrough:"partial" help:"The program and its arguments."`
}

func (execCmd) Help() string {
	return `Flags of vgpuctl stand before the program, and what follows the program is its own. The program, and all that it starts, is
in a new cgroup with that policy from its first instruction on. Examples:

    vgpuctl exec --memory 8G -- python3 train.py
    vgpuctl exec --gpu 0 --weight 3 --timeslice-max 10ms -- setpriv --reuid 1000 --regid 1000 --clear-groups ./job

vgpuctl waits for the program, hands on the signals that it gets itself (SIGINT and SIGQUIT of the terminal reach the program
anyway), and removes the cgroup. If programs that it started are left in it then, the cgroup stays, with its policy.

The exit status is that of the program, 128 and the signal's number if it was ended by one, 127 if there is no such program,
126 if it cannot be executed, and 125 if anything else is wrong.`
}

// AfterApply removes the -- before the program, which the parser leaves in place.
func (c *execCmd) AfterApply() error {
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New(`expected "<cmd> ..."`)
	}
	return nil
}

func (c execCmd) Run(s *surroundings) error {
	policy, err := c.policy()
	if err != nil {
		return exitError{err, exitExec}
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // PATH may name the working directory
		return cannotRun(c.Command[0], err)
	}
	signals := caught()
	defer signal.Stop(signals)
	folder, err := newCgroup(c.Parent)
	if err != nil {
		return exitError{err, exitExec}
	}
	err = s.with(func(d *vgpuctl.Device) error {
		id, err := s.cgroupID(folder)
		if err != nil {
			return err
		}
		return d.SetCgroupPolicy(id, vgpuctl.Minor(c.GPU), policy)
	})
	if err != nil {
		return exitError{errors.Join(err, os.Remove(folder)), exitExec}
	}
	err = inCgroup(folder, path, c.Command, signals)
	if left := removeCgroup(folder); left != nil {
		complain(s.stderr, left)
	}
	return err
}

func cannotRun(name string, err error) error {
	status, advice := exitNotExecutable, "name a program that may be executed"
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status, advice = exitNotFound, "name its path, or have its folder in PATH"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner // only the reason
	}
	return exitError{fmt.Errorf("cannot run %q: %w: %s", name, err, advice), status}
}

// newCgroup makes a cgroup with a unique name.
func newCgroup(parent string) (folder string, err error) {
	if parent == "" {
		if parent, err = vgpuctl.CgroupOfPID(os.Getpid()); err != nil {
			return "", err
		}
	}
	if _, err = vgpuctl.CgroupID(parent); err != nil { // otherwise it would make a folder on some disk
		return "", err
	}
	folder, err = os.MkdirTemp(parent, "vgpuctl-")
	if err != nil {
		return "", fmt.Errorf("cannot make a cgroup: %w: name one that may be written with --parent", err)
	}
	return folder, os.Chmod(folder, 0o755)
}

// caught receives the signals that this process forwards to the program, and SIGINT and SIGQUIT, which the terminal
// sends to both. Ignored signals stay ignored, for the program too.
func caught() chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// inCgroup runs a program in a cgroup, as if it were this one.
func inCgroup(folder, path string, argv []string, signals <-chan os.Signal) error {
	cgroup, err := os.Open(folder)
	if err != nil {
		return exitError{err, exitExec}
	}
	defer cgroup.Close()
	child, err := os.StartProcess(path, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())},
	})
	if err != nil {
		return cannotRun(argv[0], err)
	}
	go func() {
		for received := range signals {
			if received != unix.SIGINT && received != unix.SIGQUIT {
				child.Signal(received)
			}
		}
	}()
	state, err := child.Wait()
	if err != nil {
		return exitError{err, exitExec}
	}
	status := state.ExitCode()
	if wait := state.Sys().(syscall.WaitStatus); wait.Signaled() {
		status = exitSignal + int(wait.Signal())
	}
	return exitError{nil, status}
}

// removeCgroup removes a cgroup whose processes have ended or are about to end. It returns an error if processes are
// left.
func removeCgroup(folder string) error {
	for range 100 {
		err := os.Remove(folder)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("the cgroup stays, with its policy: %w: remove it with rmdir", err)
		}
		if left, err := os.ReadFile(filepath.Join(folder, "cgroup.procs")); err == nil && len(left) > 0 {
			return fmt.Errorf("the cgroup %s stays, with its policy: processes %s are in it: remove it with rmdir when they have ended",
				folder, strings.Join(strings.Fields(string(left)), ", "))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the cgroup %s stays, with its policy: it has cgroups below it: remove these and it with rmdir", folder)
}
