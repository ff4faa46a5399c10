//go:build containers

package tests

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMIGContainer: a container that podman starts with one of a GPU's three MIG devices sees exactly that one, with its files and
// nodes, and may not make others. It needs root, podman, crun and nothing of the machine but /usr, of which the container's root is
// made; podman's own folders are in a mount namespace that ends with the test.
func TestMIGContainer(t *testing.T) {
	needsRoot(t)
	podman, crun := tool(t, "podman"), tool(t, "crun")
	script := `set -e
work=$1 nvmlfab=$2 smi=$3 podman=$4 crun=$5
for folder in /run /sys/fs/cgroup; do mount -t tmpfs none $folder; done # crun refuses a mixture of cgroup versions
cp -a /etc "$work/etc"
mkdir -p "$work/etc/cdi" "$work/etc/containers" "$work/store"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$work/etc/containers/policy.json"
mount --bind "$work/etc" /etc
mount -t tmpfs none "$work/store"
image=$work/image
mkdir -p "$image/usr" "$image/proc" "$image/sys" "$image/dev" "$image/etc" "$image/tmp" "$image/run"
for folder in bin sbin lib lib64; do ln -s usr/$folder "$image/$folder"; done
mkdir "$work/store/upper" "$work/store/work" # crun makes the files that it mounts on, which /usr must not get
mount -t overlay -o "lowerdir=/usr,upperdir=$work/store/upper,workdir=$work/store/work" none "$image/usr"
"$nvmlfab" stage --root "$work/tree" --profile h100 --nvidia-smi "$smi" >&2
"$nvmlfab" mig create --root "$work/tree" --gpu 0 --enable 3g.40gb,1g.10gb,1g.10gb
"$nvmlfab" cdi --root "$work/tree" --kind nvmlfab.test/gpu -o /etc/cdi/nvmlfab-test.yaml
run() {
	"$podman" --root "$work/store" --runroot /run/containers --storage-driver vfs --cgroup-manager cgroupfs --events-backend none \
		--runtime "$crun" run --rm --network none --cgroups disabled --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
		--security-opt seccomp=unconfined --device "nvmlfab.test/gpu=$1" --rootfs "$image" sh -c "$2"
}
seen='nvidia-smi -L | grep -c "  MIG "; nvidia-smi -L | grep -o "MIG [0-9]g[^ ]*"; ls /proc/driver/nvidia/capabilities/gpu0/mig /dev/nvidia-caps'
run 0:1 "$seen; nvidia-smi mig -cgi 19; echo \$?"
run MIG-c8f7ab9f-3025-580c-8962-ac8ee019d6cc "$seen"
run 0 'nvidia-smi -L | grep -c "  MIG "'
umount "$image/usr"
`
	out := run(t, nil, "unshare", "-m", "sh", "-c", script, "sh", t.TempDir(), launcher(t), fetched(t, "nvidia-smi-550", "nvidia-smi"), podman, crun)
	out.succeeds(t)
	assert.Equal(t, []string{
		"1", "MIG 1g.10gb", "/dev/nvidia-caps:", "nvidia-cap66", "nvidia-cap67", "", "/proc/driver/nvidia/capabilities/gpu0/mig:", "gi7",
		"Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Permissions",
		"Failed to create GPU instances: Insufficient Permissions", "4",
		"1", "MIG 3g.40gb", "/dev/nvidia-caps:", "nvidia-cap21", "nvidia-cap22", "", "/proc/driver/nvidia/capabilities/gpu0/mig:", "gi2",
		"3",
	}, out.lines())
}
