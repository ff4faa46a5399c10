package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemonName is the program that answers management datagrams.
const daemonName = "mock-ib"

// start starts the daemon for the programs that see a tree, and waits until it can be reached. It ends with the last of
// them: mounted says that these are the processes in this mount namespace, otherwise they are those with the preloaded
// library.
func (f ibFlags) start(root string, mounted bool) error {
	if f.IB != ibFull {
		return nil
	}
	path := filepath.Join(home(), "bin", daemonName)
	if !exists(path) {
		return fmt.Errorf("no %s in %s: run make, or keep the folders bin and lib of a release side by side", daemonName, filepath.Dir(path))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	pid, way := os.Getpid(), "preloaded"
	if mounted {
		way = daemonMounted
	}
	cmd := exec.Command(self, "ib-daemon", root, strconv.Itoa(pid), way, "1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{tell}
	cmd.Env = withoutPreload(root)
	err = cmd.Run()
	tell.Close()
	if err != nil {
		return fmt.Errorf("%s cannot be started: %w", daemonName, err)
	}
	answer, err := io.ReadAll(ready)
	if text := strings.TrimSpace(string(answer)); err == nil && text != daemonReady {
		err = errors.New(cmp.Or(strings.TrimPrefix(text, daemonName+": "), "it ended without a word"))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", daemonName, err)
	}
	return nil
}

const (
	daemonReady   = "ready"
	daemonMounted = "mounted"
)

// withoutPreload is the environment for the daemon: it sees the machine as it is.
func withoutPreload(root string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" || name == ibTier || name == ibRoot
	})
	return append(env, ibRoot+"="+root)
}

// ibDaemonCmd keeps the daemon for as long as there are programs that may need it. It is started twice: generation 1 starts
// the next one and ends, since the program must not have a child that it did not start. Descriptor 3 is for the word that
// the daemon is ready, or for what is wrong; in generation 2 descriptor 4 is the process that becomes the program.
type ibDaemonCmd struct {
	Root       string `arg:""`
	Process    int    `arg:""`
	Way        string `arg:"" enum:"mounted,preloaded"`
	Generation string `arg:""`
}

func (c ibDaemonCmd) Run() error {
	tell := os.NewFile(3, "ready")
	if c.Generation == "1" {
		pidfd, err := unix.PidfdOpen(c.Process, 0)
		if err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		next := exec.Command(self, "ib-daemon", c.Root, strconv.Itoa(c.Process), c.Way, "2")
		next.ExtraFiles = []*os.File{tell, os.NewFile(uintptr(pidfd), "pidfd")}
		return next.Start()
	}
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	log, err := os.CreateTemp(filepath.Join(c.Root, "run"), "mock-ib.*.log")
	if err != nil {
		fmt.Fprintln(tell, err)
		return err
	}
	daemon := exec.Command(filepath.Join(home(), "bin", daemonName))
	daemon.Stderr = log
	// The daemon is not to outlive this process, however it ends.
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	words, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		fmt.Fprintln(tell, err)
		return err
	}
	line := make([]byte, 256)
	if n, _ := words.Read(line); n == 0 {
		daemon.Wait()
		text, _ := os.ReadFile(log.Name())
		first, _, _ := bytes.Cut(text, []byte("\n"))
		fmt.Fprintln(tell, string(first))
		return nil
	}
	fmt.Fprintln(tell, daemonReady)
	tell.Close()
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	program := make(chan struct{})
	go func() {
		c.wait(daemon.Process.Pid)
		close(program)
	}()
	select {
	case err := <-ended: // killed by somebody: programs are told that there is no device
		return err
	case <-program:
	}
	daemon.Process.Signal(syscall.SIGTERM)
	return <-ended
}

// wait returns when the program and all processes that it has left have ended.
func (c ibDaemonCmd) wait(daemon int) {
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: 4, Events: unix.POLLIN}}, -1); err != unix.EINTR {
			break
		}
	}
	for c.others(daemon) {
		time.Sleep(500 * time.Millisecond)
	}
}

// others says whether there are processes that see the tree, beside this one and the daemon.
func (c ibDaemonCmd) others(daemon int) bool {
	if c.Way != daemonMounted {
		return used(filepath.Join(c.Root, usersFile))
	}
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == daemon {
			continue
		}
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err == nil && ns == mine {
			return true
		}
	}
	return false
}
