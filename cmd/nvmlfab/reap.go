package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reap starts nvmlfab reap. Generation 1 starts the next generation and ends, since the program must not have a child
// that it did not start.
func reap(dir, generation string, pidfd *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "reap", dir, strconv.Itoa(os.Getpid()), generation)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if pidfd == nil {
		cmd.Stderr = os.Stderr
		return cmd.Run()
	}
	cmd.ExtraFiles = []*os.File{pidfd}
	return cmd.Start()
}

// reapCmd removes a folder when a process, and all other processes with the preloaded library, have ended. It is
// started twice, the second time with the process as descriptor 3.
type reapCmd struct {
	Dir        string `arg:""`
	Process    int    `arg:""`
	Generation string `arg:""`
}

func (c reapCmd) Run() error {
	if c.Generation == "1" {
		fd, err := unix.PidfdOpen(c.Process, 0)
		if err != nil {
			return err
		}
		return reap(c.Dir, "2", os.NewFile(uintptr(fd), "pidfd"))
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: 3, Events: unix.POLLIN}}, -1)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return err
		}
	}
	// A daemon outlives the process. While a process executes another program, it has the file closed for a moment, so
	// it must be free three times in a row.
	for free := 0; free < 3; free++ {
		if used(filepath.Join(c.Dir, usersFile)) {
			free = -1
		}
		time.Sleep(time.Second)
	}
	return os.RemoveAll(c.Dir)
}

// used reports whether a process has a file open or mapped for writing. The kernel then refuses a read lease.
func used(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err == unix.EAGAIN
}
