package vgpuctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	tmpfs   = "23 28 0:21 / /tmp rw - tmpfs tmpfs rw\n"
	v1      = "33 31 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
	unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	hybrid  = "31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n"
	part    = "40 30 0:26 /a\\040b/c /mnt/my\\134cgroup rw - cgroup2 none rw\n"
)

func TestCgroupFolder(t *testing.T) {
	for name, test := range map[string]struct{ cgroup, mounts, want, err string }{
		"unified":           {"0::/system.slice/x.service\n", tmpfs + unified, "/sys/fs/cgroup/system.slice/x.service", ""},
		"root":              {"0::/\n", unified, "/sys/fs/cgroup", ""},
		"hybrid":            {"4:memory:/m\n1:name=systemd:/s\n0::/u\n", v1 + hybrid, "/sys/fs/cgroup/unified/u", ""},
		"blanks and colons": {"0::/a b:c/d\\e\n", unified, "/sys/fs/cgroup/a b:c/d\\e", ""},
		"part of it":        {"0::/a b/c/d\n", part, "/mnt/my\\cgroup/d", ""},
		"all of a part":     {"0::/a b/c\n", part, "/mnt/my\\cgroup", ""},
		"another part":      {"0::/a b/cd\n", part, "", `"/a b/cd" is outside of what this process has mounted of cgroup2`},
		"part, then all":    {"0::/a b/cd\n", part + unified, "/sys/fs/cgroup/a b/cd", ""},
		"above namespace":   {"0::/../other\n", unified, "", `"/../other" is outside of what this process has mounted of cgroup2`},
		"mounted from above": {"0::/../other\n", "40 30 0:26 /.. /host rw - cgroup2 none rw\n",
			"/host/other", ""},
		"far above":       {"0::/../../x\n", "40 30 0:26 /.. /host rw - cgroup2 none rw\n", "", `"/../../x" is outside of what this process has mounted of cgroup2`},
		"removed":         {"0::/x (deleted)\n", unified, "", `"/x (deleted)" is no longer there`},
		"version 1":       {"4:memory:/m\n1:name=systemd:/s\n", v1, "", "it is no cgroup of version 2"},
		"not mounted":     {"0::/x\n", v1, "", "it is no cgroup of version 2: none is mounted"},
		"optional fields": {"0::/x\n", "30 23 0:26 / /c rw shared:4 master:1 propagate_from:2 - cgroup2 c rw\n", "/c/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(test.mounts), cgroup2)
			require.NoError(t, err)
			path, err := cgroupFolder(test.cgroup, mounts)
			assert.Equal(t, test.want, path)
			if test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, test.err)
			}
		})
	}
}

func TestCgroupID(t *testing.T) {
	dir := t.TempDir()
	_, err := CgroupID(dir)
	assert.ErrorIs(t, err, ErrNotCgroup2)
	assert.ErrorContains(t, err, "systemd.unified_cgroup_hierarchy=1")
	_, err = CgroupID(filepath.Join(dir, "missing"))
	assert.ErrorIs(t, err, unix.ENOENT)
	assert.ErrorContains(t, err, "name a folder of a mount of cgroup2, such as /sys/fs/cgroup/system.slice")
	file := filepath.Join(dir, "file")
	assert.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = CgroupID(file)
	assert.ErrorIs(t, err, unix.ENOTDIR)
	_, err = CgroupOfPID(1 << 30)
	assert.ErrorIs(t, err, unix.ESRCH)
	assert.ErrorContains(t, err, "name a process that runs")
}

func TestContains(t *testing.T) {
	for _, above := range []string{"/c", "/c/a", "/c/a/b", "/"} {
		assert.True(t, contains(above, "/c/a/b"), above)
	}
	for _, other := range []string{"/c/a/b/d", "/c/a/bb", "/c/a/", "/d"} {
		assert.Equal(t, other == "/c/a/", contains(other, "/c/a/b"), other)
	}
}
