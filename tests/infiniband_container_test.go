package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestInfiniBandContainer: in a root with nothing but /usr, what the specification of nvmlfab cdi --ib mounts and sets is enough for
// programs to find the adapters, to open them, to walk the fabric, and to see a port go down.
func TestInfiniBandContainer(t *testing.T) {
	t.Parallel()
	namespaces(t)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", ibProfile(t)).succeeds(t)
	var spec struct {
		ContainerEdits struct {
			Env    []string
			Mounts []struct {
				HostPath      string `yaml:"hostPath"`
				ContainerPath string `yaml:"containerPath"`
				Options       []string
			}
		} `yaml:"containerEdits"`
	}
	text := run(t, nil, launcher(t), "cdi", "--root", tree, "--ib", "full").succeeds(t).stdout
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
	startMockIB(t, tree)

	image := filepath.Join(dir, "image")
	script := "set -e\nmkdir -p " + image + "\nmount -t tmpfs none " + image + "\ncd " + image + `
mkdir usr proc sys dev etc tmp run
for folder in bin sbin lib lib64; do ln -s usr/$folder $folder; done
mount --rbind /usr usr
mount --rbind /proc proc
mount --rbind /sys sys
`
	bind := func(host, container string, options ...string) {
		make := "mkdir -p '." + container + "'"
		if info, err := os.Stat(host); err == nil && !info.IsDir() {
			make = "mkdir -p '." + filepath.Dir(container) + "'; touch '." + container + "'"
		}
		script += fmt.Sprintf("%s\nmount --bind '%s' '.%s'\n", make, host, container)
		if len(options) > 0 {
			script += fmt.Sprintf("mount -o 'remount,%s' '.%s'\n", strings.Join(options, ","), container)
		}
	}
	for _, m := range spec.ContainerEdits.Mounts {
		if !strings.HasPrefix(m.ContainerPath, "/usr/") && m.HostPath != "/dev/null" { // NVML's part needs an image of its own
			bind(m.HostPath, m.ContainerPath, m.Options...)
		}
	}
	env := []string{}
	for _, v := range ibTools(t) {
		if name, list, _ := strings.Cut(v, "="); name != "PATH" {
			env = append(env, v)
			for _, folder := range strings.Split(list, ":") {
				if strings.Contains(folder, "/debian/") && name == "LD_LIBRARY_PATH" {
					bind(strings.TrimSuffix(folder, "/usr/lib/x86_64-linux-gnu"), strings.TrimSuffix(folder, "/usr/lib/x86_64-linux-gnu"))
				}
			}
		} else {
			env = append(env, "PATH="+list)
		}
	}
	env = append(env, spec.ContainerEdits.Env...)
	for i, v := range env {
		env[i] = "'" + v + "'"
	}
	script += "exec chroot . /usr/bin/env -i " + strings.Join(env, " ") + ` sh -ec '
ls /sys/class/infiniband; ls /dev/infiniband/umad3
ibv_devinfo -d mlx5_3 | grep state:
ibnetdiscover | grep mlx5_11
lid=$(printf %d $(cat /sys/class/infiniband/mlx5_3/ports/1/lid))
ibping -c 1 -L $lid | head -1
ibportstate $lid 1 disable > /dev/null
until grep -q DOWN /sys/class/infiniband/mlx5_3/ports/1/state; do sleep 0.1; done
ibstat mlx5_3 1 | grep State:
'`
	out := run(t, nil, tool(t, "unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", script).succeeds(t)
	for _, want := range []string{"mlx5_0\nmlx5_1\nmlx5_10\n", "/dev/infiniband/umad3\n", "PORT_ACTIVE (4)", "# \"dgx01 mlx5_11\"\n", "Pong from dgx01 ", "State: Down\n"} {
		assert.Contains(t, out.stdout, want, out.stderr)
	}

	plain := filepath.Join(dir, "t4")
	run(t, nil, launcher(t), "stage", "--root", plain, "--profile", "t4").succeeds(t)
	refused := run(t, nil, launcher(t), "cdi", "--root", plain, "--ib", "full")
	assert.NotZero(t, refused.code)
	assert.Contains(t, refused.stderr, "its profile has no adapters")
}
