package tests

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// slurmd lets slurmd describe its machine, as an administrator does for the line of the machine in slurm.conf, and then, with that
// line, show the GPUs that it would offer. Its folder has Debian's packages and this machine's /dev, /proc and /sys.
const slurmd = `
mkdir -p "$0/usr" "$0/dev" "$0/proc" "$0/sys" "$0/run" "$0/etc/slurm" "$0/var/spool/slurmd"
ln -s usr/lib "$0/lib"
ln -s usr/lib64 "$0/lib64"
mount --bind "$1" "$0/usr"
for folder in dev proc sys run; do mount --rbind "/$folder" "$0/$folder"; done
echo root:x:0:0::/:/bin/sh >"$0/etc/passwd"
echo AutoDetect=nvml >"$0/etc/slurm/gres.conf"
cat >"$0/etc/slurm/slurm.conf" <<end
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/pgid
TaskPlugin=task/none
GresTypes=gpu
end
export LD_LIBRARY_PATH=/dev/.nvmlfab/lib:/usr/lib/x86_64-linux-gnu/slurm-wlm
described=$(chroot "$0" /usr/sbin/slurmd-wlm -C)
echo "$described"
echo "$described" | sed -n '/^NodeName=/p' >>"$0/etc/slurm/slurm.conf"
exec chroot "$0" /usr/sbin/slurmd-wlm -G
`

// inSlurm is what slurmd prints: the Gres of the description, and each GPU that it would offer as type, file and links, by order.
func inSlurm(t *testing.T, profile string, mig ...string) (gres, detected string, gpus []string, log string) {
	t.Helper()
	packages := filepath.Dir(filepath.Dir(fetched(t, "slurmd", "slurmd-wlm")))
	script := "set -e\n"
	for _, line := range mig {
		script += `"$2" mig create --run $$ ` + line + "\n"
	}
	// Deleting the folder is safe: what was mounted in it has gone with the run's namespace.
	folder := filepath.Join(t.TempDir(), "root")
	out := inRun(t, nil, "--namespace", "--profile", profile, "--", "sh", "-c", script+slurmd, folder, packages, launcher(t))
	_, gres, _ = strings.Cut(out.lines()[0], " Gres=")
	if found := regexp.MustCompile(`Autodetect=(\w+)`).FindStringSubmatch(out.stdout); found != nil {
		detected = found[1]
	}
	for _, gpu := range regexp.MustCompile(`Gres Name=gpu Type=(\S+) Count=1 Index=\d+ ID=\d+ File=(\S+) .*Links=(\S+) Flags=(\S+)`).FindAllStringSubmatch(out.stderr, -1) {
		gpus = append(gpus, strings.Join(gpu[1:], " "))
	}
	return gres, detected, gpus, out.stderr
}

// typeInSlurm is the type that Slurm makes out of a GPU's name.
func typeInSlurm(d *profiles.Device) string {
	return strings.ReplaceAll(strings.ToLower(d.Name.Value), " ", "_")
}

// TestSlurm: slurmd of Slurm 26.05 with AutoDetect=nvml offers the GPUs of every shipped board, and logs no error but that a GPU has no
// list of clocks.
func TestSlurm(t *testing.T) {
	namespaces(t)
	needsRoot(t)
	links := map[string]string{ // how many NVLinks lead from each GPU to each; none on the other boards
		"a100-sxm4-80gb": "-1,4,4,4 4,-1,4,4 4,4,-1,4 4,4,4,-1",
		"a100-pcie-80gb": "-1,12,0,0 12,-1,0,0 0,0,-1,12 0,0,12,-1",
	}
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := mustBoard(t, name)
			gres, detected, gpus, log := inSlurm(t, name)
			var types []string
			counts := map[string]int{}
			for i := range b.Devices {
				kind := typeInSlurm(&b.Devices[i])
				if counts[kind]++; counts[kind] == 1 {
					types = append(types, kind)
				}
			}
			for i, kind := range types {
				types[i] = fmt.Sprintf("gpu:%s:%d", kind, counts[kind])
			}
			assert.Equal(t, strings.Join(types, ","), gres)
			if name == "v100-sxm2-32gb" {
				// The plugin links a function that its driver, 418, lacks. So slurmd counts the folders in /proc, and offers no GPU.
				assert.Equal(t, "nvidia", detected)
				assert.Contains(t, log, "undefined symbol: nvmlDeviceGetGraphicsRunningProcesses_v3")
				assert.Empty(t, gpus)
				return
			}
			assert.Equal(t, "nvml", detected)
			var want []string
			for i := range b.Devices {
				d := &b.Devices[i]
				to := slices.Repeat([]string{"0"}, len(b.Devices))
				to[i] = "-1"
				row := strings.Join(to, ",")
				if rows := strings.Fields(links[name]); len(rows) > 0 {
					row = rows[i]
				}
				want = append(want, fmt.Sprintf("%s /dev/nvidia%d %s HAS_FILE,HAS_TYPE,ENV_NVML", typeInSlurm(d), d.MinorNumber.Or(d.Index), row))
			}
			assert.ElementsMatch(t, want, gpus)
			without := 0
			for i := range b.Devices {
				if len(b.Devices[i].SupportedClocks.MemoryClocks) == 0 {
					without++
				}
			}
			assert.Equal(t, without, strings.Count(log, "Failed to get supported memory frequencies for the GPU : Not Supported"))
			assert.Equal(t, without, strings.Count(log, "error:"), log)
		})
	}
}

// TestSlurmMIG: slurmd offers MIG devices with the files of their capabilities, and does not offer a GPU that is in MIG mode itself.
func TestSlurmMIG(t *testing.T) {
	namespaces(t)
	needsRoot(t)
	gres, detected, gpus, log := inSlurm(t, "a100-sxm4-40gb", "--gpu 0 --enable 2g.10gb,1g.5gb", "--gpu 1 --enable 7g.40gb")
	assert.Equal(t, "gpu:nvidia_a100_2g.10gb:1,gpu:nvidia_a100_1g.5gb:1,gpu:nvidia_a100_7g.40gb:1,gpu:nvidia_a100-sxm4-40gb:6", gres)
	assert.Equal(t, "nvml", detected)
	require.Len(t, gpus, 9)
	assert.Subset(t, gpus, []string{
		"nvidia_a100_2g.10gb /dev/nvidia0,/dev/nvidia-caps/nvidia-cap48,/dev/nvidia-caps/nvidia-cap49 (null) HAS_FILE,HAS_TYPE,ENV_NVML,UUID,MIG",
		"nvidia_a100_1g.5gb /dev/nvidia0,/dev/nvidia-caps/nvidia-cap120,/dev/nvidia-caps/nvidia-cap121 (null) HAS_FILE,HAS_TYPE,ENV_NVML,UUID,MIG",
		"nvidia_a100_7g.40gb /dev/nvidia1,/dev/nvidia-caps/nvidia-cap138,/dev/nvidia-caps/nvidia-cap139 (null) HAS_FILE,HAS_TYPE,ENV_NVML,UUID,MIG",
	})
	assert.NotContains(t, log, "error:")
}
