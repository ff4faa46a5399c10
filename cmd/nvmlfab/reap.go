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

// reap starts nvmlfab reap. A generation of 1 starts the next and ends: the program must not have a child that it does not
// know of.
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

// reapCmd removes a folder when a process has ended, and all others that the preloaded library has been loaded into. It is
// started twice over, the second time with the process as descriptor 3.
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
	// A daemon outlives the process. One that is just becoming another program has the file open again a moment later.
	for free := 0; free < 3; free++ {
		if used(filepath.Join(c.Dir, usersFile)) {
			free = -1
		}
		time.Sleep(time.Second)
	}
	return os.RemoveAll(c.Dir)
}

// used says whether a process has a file open, or mapped, for writing: then there is no lease for reading to be had.
func used(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return err == unix.EAGAIN
}
