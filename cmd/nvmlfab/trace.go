package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"
)

type traceFlags struct {
	Output  string `short:"o" placeholder:"FILE" help:"Write the calls and the summary to FILE instead of standard error; - is standard output."`
	JSON    bool   `name:"json" help:"Write each call, and the summary at the end, as a line of JSON."`
	Library string `placeholder:"FILE" help:"Trace the calls of that libnvidia-ml.so.1, such as NVIDIA's own, instead of nvmlfab's. Nothing else is then shown to the program, so no flags of run go with it."`
}

type traceCmd struct {
	traceFlags `embed:""`
	runCmd     `embed:""`
}

func (traceCmd) Help() string {
	return `Prints a line for each NVML call of the program and of all processes that it starts: process (and thread, if it is not
the first one), function, arguments and what the function wrote to them, the result, and how many seconds it took. At the end
there is a table of the functions that were called: how often, how long, and which failed. A function that nvmlfab does not answer
yet is marked as a stub. Examples:

    nvmlfab trace -- nvidia-smi -L
    nvmlfab trace --profile gb200 --nvml 12.8 -o calls.txt -- python3 monitor.py
    nvmlfab trace --json -o calls.json -- ./agent
    nvmlfab trace --library /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 -- nvidia-smi

The flags of nvmlfab run mean the same here. A program sees the same functions as without the trace: one that the library does
not have is not there. Static programs load no library, so there is nothing to trace.

The summary comes when the program and all that it started have ended, or when nvmlfab gets a signal after the program's end.
The exit status is the program's, or 128 and the number of the signal that ended it.`
}

// Run starts the program, waits for it and its descendants, and prints the summary.
func (c *traceCmd) Run(ctx *kong.Context) error {
	status, err := c.trace(ctx)
	if status < 0 {
		return exitError{err, exitRun}
	}
	if err != nil { // after the program's end, whose status is more important
		complain(err)
	}
	os.Exit(status)
	return nil
}

// trace returns the program's status, -1 if it could not be started.
func (c *traceCmd) trace(ctx *kong.Context) (status int, err error) {
	for _, p := range ctx.Path {
		if p.Flag != nil && c.Library != "" && !slices.Contains([]string{"output", "json", "library"}, p.Flag.Name) {
			return -1, fmt.Errorf("--library: the program then sees that library and nothing of nvmlfab's, so leave --%s away", p.Flag.Name)
		}
	}
	s, err := newSession(c.Output, c.JSON, c.Library == "")
	if err != nil {
		return -1, err
	}
	defer func() { err = errors.Join(err, s.remove()) }()
	self, err := os.Executable()
	if err != nil {
		return -1, err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("cannot become the parent of the program's orphans: %w", err)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // nobody reads the output any more: then the summary is lost, and no more
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	process, err := os.StartProcess(self, append([]string{os.Args[0], "traced"}, os.Args[2:]...), &os.ProcAttr{
		Env:   append(os.Environ(), sessionVariable+"="+s.dir),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return -1, err
	}
	status = wait(process.Pid, signals)
	return status, s.summarize()
}

// forwarded are the signals that nvmlfab trace passes on to the program. A terminal sends those of its keys to the program
// itself.
var forwarded = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGCONT}

// wait returns the status of a child when it and all other descendants have ended, or when a signal comes after its end.
func wait(pid int, signals <-chan os.Signal) int {
	type end struct {
		pid    int
		status unix.WaitStatus
	}
	ended, none := make(chan end), make(chan struct{})
	go func() {
		for {
			var status unix.WaitStatus
			child, err := unix.Wait4(-1, &status, 0, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				close(none)
				return
			}
			ended <- end{child, status}
		}
	}()
	status, running := 0, true
	for {
		select {
		case <-none:
			return status
		case e := <-ended:
			if e.pid == pid {
				running = false
				if status = e.status.ExitStatus(); e.status.Signaled() {
					status = 128 + int(e.status.Signal())
				}
			}
			if !running && !others() {
				return status
			}
		case sig := <-signals:
			if !running && sig != unix.SIGWINCH && sig != unix.SIGCONT {
				return status
			}
			if number := sig.(syscall.Signal); running && !byTerminal(number) {
				_ = unix.Kill(pid, number)
			}
		}
	}
}

// byTerminal reports whether a terminal has sent this signal, so that the program, in the same group, has it already.
func byTerminal(sig syscall.Signal) bool {
	if !slices.Contains([]syscall.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH}, sig) {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// others reports whether this process has children, other than nvmlfab's own that wait for the program's end.
func others() bool {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	if len(tasks) == 0 {
		return true
	}
	for _, task := range tasks {
		list, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for _, pid := range strings.Fields(string(list)) {
			args, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			words := strings.Split(string(args), "\x00")
			if exe, _ := os.Readlink("/proc/" + pid + "/exe"); exe != executable() || len(words) < 2 || !slices.Contains([]string{"reap", "ib-daemon"}, words[1]) {
				return true
			}
		}
	}
	return false
}

func executable() string {
	path, _ := os.Readlink("/proc/self/exe")
	return path
}

// sessionVariable tells the session's folder to the second run of nvmlfab, which becomes the program.
const sessionVariable = "NVMLFAB_TRACE_SESSION"

// tracedCmd becomes the traced program.
type tracedCmd struct {
	traceCmd `embed:""`
}

func (c *tracedCmd) Run() error {
	return c.become(append([]string{os.Args[0], "entered-traced"}, os.Args[2:]...))
}

// enteredTracedCmd is the same inside the user namespace.
type enteredTracedCmd struct {
	traceCmd `embed:""`
}

func (c *enteredTracedCmd) Run() error { return c.become(nil) }

func (c *traceCmd) become(again []string) error {
	dir := os.Getenv(sessionVariable)
	if c.Library != "" {
		libraries, err := inFront(dir, c.Library)
		if err == nil {
			err = setLibrary(libraries)
		}
		if err != nil {
			return exitError{err, exitRun}
		}
	} else {
		c.front = func(libraries string) (string, error) {
			return inFront(dir, filepath.Join(libraries, "libnvidia-ml.so.1"))
		}
		if err := c.prepare(again); err != nil {
			return exitError{err, exitRun}
		}
	}
	os.Unsetenv(sessionVariable)
	return become(c.Command)
}
