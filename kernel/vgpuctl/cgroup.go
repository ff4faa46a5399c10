package vgpuctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ErrNotCgroup2 is the error for a folder or process that is not in cgroup2, as on a host with cgroup v1.
var ErrNotCgroup2 = errors.New("it is no cgroup of version 2")

const wantCgroup2 = "the module knows cgroup2 alone: name a folder below a mount of it, or boot the host with systemd.unified_cgroup_hierarchy=1"

// CgroupID is the id of the cgroup with this folder: the folder's inode number. No other cgroup gets it until the next
// boot.
func CgroupID(path string) (uint64, error) {
	op := "find cgroup " + strconv.Quote(path)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		advice := "name a folder of a mount of cgroup2, such as /sys/fs/cgroup/system.slice"
		return 0, &Error{op, err, advice}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, &Error{op, err, ""}
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, &Error{op, ErrNotCgroup2, wantCgroup2}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, &Error{op, err, ""}
	}
	return stat.Ino, nil
}

// CgroupOfPID is the folder of a process's cgroup as this process sees it, in its own cgroup namespace and mounts. The
// process may have left the cgroup when the function returns.
func CgroupOfPID(pid int) (path string, err error) {
	op := fmt.Sprintf("find the cgroup of process %d", pid)
	cgroup, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return "", &Error{op, unix.ESRCH, noProcess}
	}
	if err != nil {
		return "", &Error{op, err, ""}
	}
	mounts, err := mountinfo.GetMounts(cgroup2)
	if err != nil {
		return "", &Error{op, err, "mount /proc"}
	}
	if path, err = cgroupFolder(string(cgroup), mounts); err != nil {
		return "", &Error{op, err, wantCgroup2}
	}
	return path, nil
}

// cgroup2 selects the mounts of cgroup2.
var cgroup2 = mountinfo.FSTypeFilter("cgroup2")

// cgroupFolder finds the folder from the content of /proc/PID/cgroup and the mounts of cgroup2.
func cgroupFolder(cgroup string, mounts []*mountinfo.Info) (string, error) {
	path := ""
	for line := range strings.Lines(cgroup) {
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = rest
		}
	}
	if path == "" {
		return "", ErrNotCgroup2
	}
	if strings.HasSuffix(path, " (deleted)") {
		return "", fmt.Errorf("%q is no longer there", path)
	}
	for _, m := range mounts {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(m.Root, "/"))
		if ok && (rest == "" || rest[0] == '/') && rest != "/.." && !strings.HasPrefix(rest, "/../") {
			return filepath.Join(m.Mountpoint, rest), nil
		}
	}
	if len(mounts) == 0 {
		return "", fmt.Errorf("%w: none is mounted", ErrNotCgroup2)
	}
	return "", fmt.Errorf("%q is outside of what this process has mounted of cgroup2", path)
}

// CgroupPaths maps the ids of cgroups to their folders, for all cgroups of cgroup2 that this process can see.
func CgroupPaths() map[uint64]string {
	paths := map[uint64]string{}
	mounts, err := mountinfo.GetMounts(cgroup2)
	if err != nil {
		return paths
	}
	for _, m := range mounts {
		filepath.WalkDir(m.Mountpoint, func(path string, entry fs.DirEntry, err error) error {
			if err != nil { // it has been removed meanwhile
				return nil
			}
			if !entry.IsDir() {
				return nil
			}
			if id, err := CgroupID(path); err == nil && paths[id] == "" {
				paths[id] = path
			}
			return nil
		})
	}
	return paths
}
