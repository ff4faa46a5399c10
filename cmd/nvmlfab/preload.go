package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
)

// temporary writes a tree for this process, and sees to it that the tree goes when the process ends, however it ends.
func temporary(tree *machine.Tree) (string, error) {
	for name := range tree.Children {
		if name != "sys" {
			delete(tree.Children, name) // which the preloaded library leaves alone
		}
	}
	dir, err := os.MkdirTemp("/dev/shm", "nvmlfab-*") // faster than a disk
	if err != nil {
		dir, err = os.MkdirTemp("", "nvmlfab-*")
	}
	if err != nil {
		return "", err
	}
	if err := reap(dir, "1", nil); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := tree.Write(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, os.Chmod(dir, 0o755)
}

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

// reapCmd removes a folder when a process has ended. It is started twice over, the second time with the process as
// descriptor 3.
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
			return os.RemoveAll(c.Dir)
		}
		if err != unix.EINTR {
			return err
		}
	}
}
