package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// ibTools is the environment in which the InfiniBand programs of Debian are found, with their libraries and mlx5's provider.
func ibTools(t *testing.T) []string {
	t.Helper()
	var libraries, path []string
	for _, name := range []string{"ibverbs", "infiniband-diags", "iproute2"} {
		dir, err := debian.Fetch(name)
		if err != nil {
			skip(t, err.Error())
		}
		libraries = append(libraries, filepath.Join(dir, "usr/lib/x86_64-linux-gnu"))
		path = append(path, filepath.Join(dir, "usr/sbin"), filepath.Join(dir, "usr/bin"))
	}
	return []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"), "PATH=" + strings.Join(append(path, os.Getenv("PATH")), ":"),
		"RDMAV_DRIVERS=" + filepath.Join(libraries[0], "libibverbs/libmlx5")}
}

// ibProfile writes a profile of NVIDIA's DGX H100 whose name in the fabric is dgx01, and returns its path.
func ibProfile(t *testing.T, more ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dgx.yaml")
	text := "extends: dgx-h100\ninfiniband: {node_name: dgx01}\n"
	for _, m := range more {
		text += "---\n" + m + "\n"
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// inIB runs a shell command where a profile's adapters are shown.
func inIB(t *testing.T, how, tier, profile, command string, env ...string) outcome {
	t.Helper()
	return run(t, append(ibTools(t), env...), launcher(t), "run", how, "--ib", tier, "--profile", profile, "--", "sh", "-c", command)
}

// ways are the flags by which a run shows files.
func ways(t *testing.T) []string {
	namespaces(t)
	preloads(t)
	return []string{"--namespace", "--preload"}
}

// TestInfiniBandTools: programs that look at adapters without talking to the fabric find those of the profile, and agree about
// them.
func TestInfiniBandTools(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		for _, tier := range []string{"sysfs", "full"} {
			t.Run(how[2:]+" "+tier, func(t *testing.T) {
				out := inIB(t, how, tier, profile, "ibstat mlx5_3").succeeds(t).stdout
				guid := regexp.MustCompile(`Node GUID: 0x([0-9a-f]{16})`).FindStringSubmatch(out)
				require.NotNil(t, guid, out)
				lid := regexp.MustCompile(`Base lid: (\d+)`).FindStringSubmatch(out)
				require.NotNil(t, lid, out)
				colons := regexp.MustCompile(`(....)(....)(....)(....)`).ReplaceAllString(guid[1], "$1:$2:$3:$4")
				assert.Equal(t, fmt.Sprintf(`CA 'mlx5_3'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Hardware version: 0
	Node GUID: 0x%[1]s
	System image GUID: 0x%[1]s
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: %[2]s
		LMC: 0
		SM lid: 1
		Capability mask: 0xa751e848
		Port GUID: 0x%[1]s
		Link layer: InfiniBand
`, guid[1], lid[1]), out)

				out = inIB(t, how, tier, profile, "ibstat -l; ibstat -p; ibstatus mlx5_3").succeeds(t).stdout
				assert.Equal(t, strings.Fields("mlx5_0 mlx5_1 mlx5_10 mlx5_11 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7 mlx5_8 mlx5_9"), strings.Fields(out)[:12])
				assert.Contains(t, out, "\n0x"+guid[1]+"\n")
				assert.Contains(t, out, "Infiniband device 'mlx5_3' port 1 status:\n\tdefault gid:\t fe80:0000:0000:0000:"+colons+"\n")
				assert.Contains(t, out, "\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n")

				out = inIB(t, how, tier, profile, "ibv_devices && ibv_devinfo -l").succeeds(t).stdout
				assert.Regexp(t, `mlx5_3\s+`+guid[1]+`\n`, out)
				assert.Contains(t, out, "12 HCAs found:\n")

				out = inIB(t, how, tier, profile, "rdma dev && rdma link && rdma system").succeeds(t).stdout
				assert.Contains(t, out, fmt.Sprintf("3: mlx5_3: node_type ca fw 28.39.1002 node_guid %[1]s sys_image_guid %[1]s", colons))
				assert.Contains(t, out, "link mlx5_3/1 subnet_prefix fe80:0000:0000:0000 lid "+lid[1]+" sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP")
				assert.Contains(t, out, "link mlx5_2/1 state ACTIVE physical_state LINK_UP netdev enp41s0f1np1")
				assert.Contains(t, out, "netns shared copy-on-fork on")

				out = inIB(t, how, tier, profile, "lspci -d 15b3:; lspci -nvv -s 40:00.0").succeeds(t).stdout
				assert.Equal(t, 10, strings.Count(out, "Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]"))
				assert.Equal(t, 2, strings.Count(out, "Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]"))
				for _, part := range []string{"40:00.0 0207: 15b3:1021", "Subsystem: 15b3:0041", "Speed 32GT/s, Width x16", "[size=32M]", "Kernel driver in use: mlx5_core"} {
					assert.Contains(t, out, part)
				}

				out = inIB(t, how, tier, profile, "ls -l /dev/infiniband/uverbs3 /dev/infiniband/umad3; stat -L -c '%F %t:%T' /dev/infiniband/issm3").succeeds(t).stdout
				assert.Regexp(t, `crw------- .* 231, +3 .* /dev/infiniband/umad3\ncrw-rw-rw- .* 231, +195 .* /dev/infiniband/uverbs3\ncharacter special file e7:43\n`, out)
			})
		}
	}
}

// TestInfiniBandOpens: with the tier full programs open adapters, and learn what sysfs says too; with sysfs they cannot.
func TestInfiniBandOpens(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		t.Run(how[2:], func(t *testing.T) {
			out := inIB(t, how, "full", profile, "ibv_devinfo -v").succeeds(t).stdout
			assert.Equal(t, 12, strings.Count(out, "hca_id:\tmlx5_"))
			for _, part := range []string{"fw_ver:\t\t\t\t28.39.1002", "vendor_id:\t\t\t0x02c9", "vendor_part_id:\t\t\t4129", "hw_ver:\t\t\t\t0x0", "board_id:\t\t\tMT_0000000838",
				"phys_port_cnt:\t\t\t1", "state:\t\t\tPORT_ACTIVE (4)", "max_mtu:\t\t4096 (5)", "active_mtu:\t\t4096 (5)", "port_lmc:\t\t0x00",
				"link_layer:\t\tInfiniBand", "link_layer:\t\tEthernet", "active_speed:\t\t100.0 Gbps (128)", "max_vl_num:\t\t8 (4)", "pkey_tbl_len:\t\t128",
				"GID[  0]:\t\tfe80:0000:0000:0000:", "RoCE v2"} {
				assert.Contains(t, out, part)
			}
			shown := inIB(t, how, "full", profile, "cat /sys/class/infiniband/mlx5_5/node_guid; printf %d $(cat /sys/class/infiniband/mlx5_5/ports/1/lid)").succeeds(t).lines()
			one := inIB(t, how, "full", profile, "ibv_devinfo -d mlx5_5").succeeds(t).stdout
			assert.Contains(t, one, "node_guid:\t\t\t"+shown[0]+"\n")
			assert.Contains(t, one, "port_lid:\t\t"+shown[1]+"\n")

			out = inIB(t, how, "sysfs", profile, "ibv_devinfo; head -c 1 /dev/infiniband/uverbs0").stdout
			assert.NotContains(t, out, "PORT_ACTIVE")
			denied := inIB(t, how, "sysfs", profile, "head -c 1 /dev/infiniband/uverbs0")
			assert.NotZero(t, denied.code)
			assert.Contains(t, denied.stderr, "No such device or address")
		})
	}
}

// TestInfiniBandTiers: MOCK_IB is read without regard to case, and any other word is off.
func TestInfiniBandTiers(t *testing.T) {
	preloads(t)
	dir := filepath.Join(t.TempDir(), "root")
	run(t, nil, launcher(t), "stage", "--root", dir, "--profile", ibProfile(t)).succeeds(t)
	env := append(ibTools(t), "MOCK_IB_ROOT="+dir, "LD_PRELOAD="+filepath.Join(library, "libibmockverbs.so")+":"+filepath.Join(library, "libibmocksys.so"))
	for tier, want := range map[string]string{"full": "mlx5_0", "FULL": "mlx5_0", "Sysfs": "mlx5_0", "off": "", "1": "", "": "", "fullest": ""} {
		out := run(t, append(env, "MOCK_IB="+tier), "ls", "/sys/class/infiniband")
		assert.Equal(t, want, strings.Split(out.stdout, "\n")[0], tier)
	}
	out := run(t, append(env, "MOCK_IB=full"), "sh", "-c", "ibv_devinfo -d mlx5_7").succeeds(t)
	assert.Contains(t, out.stdout, "PORT_ACTIVE")
	missing := run(t, append(env, "MOCK_IB=full", "MOCK_IB_ROOT=/nonexistent/tree"), "ls", "/sys/class/infiniband")
	assert.NotZero(t, missing.code, "a tree that is not there shows nothing of the host's")
	assert.Contains(t, missing.stderr, "MOCK_IB_ROOT=/nonexistent/tree: no staged tree there")
}

// TestInfiniBandNeedsAdapters: a profile without adapters is told.
func TestInfiniBandNeedsAdapters(t *testing.T) {
	out := run(t, nil, launcher(t), "run", "--ib", "full", "--profile", "t4", "--", "true")
	assert.Equal(t, 125, out.code)
	assert.Contains(t, out.complains(t), "--ib: the profile t4 has no InfiniBand adapters")
}

// TestInfiniBandFollows: what a management datagram changes about a port is seen in sysfs, over netlink and by verbs alike.
func TestInfiniBandFollows(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		out := inIB(t, how, "full", profile, `lid=$(printf %d $(cat /sys/class/infiniband/mlx5_3/ports/1/lid))
ibportstate $lid 1 disable > /dev/null
until grep -q DOWN /sys/class/infiniband/mlx5_3/ports/1/state; do sleep 0.1; done
ibstat mlx5_3; rdma link show mlx5_3/1; ibv_devinfo -d mlx5_3`).succeeds(t).stdout
		for _, part := range []string{"State: Down", "Physical state: Disabled", "state DOWN physical_state DISABLED", "PORT_DOWN (1)"} {
			assert.Contains(t, out, part, how)
		}
	}
}

// TestInfiniBandEvents: a program that waits for events of an adapter learns when its port goes down and comes back.
func TestInfiniBandEvents(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		out := inIB(t, how, "full", profile, `ibv_asyncwatch -d mlx5_3 > "$TMPDIR/watched" 2>&1 & watcher=$!
until grep -q 'async event FD' "$TMPDIR/watched"; do sleep 0.1; done
ibportstate $(printf %d $(cat /sys/class/infiniband/mlx5_3/ports/1/lid)) 1 disable > /dev/null
until grep -q PORT_ERR "$TMPDIR/watched"; do sleep 0.1; done
ibportstate -C mlx5_3 -P 1 -D 0 1 enable > /dev/null
until grep -q CLIENT_REREGISTER "$TMPDIR/watched"; do sleep 0.1; done
kill $watcher
grep event_type "$TMPDIR/watched"`, "TMPDIR="+t.TempDir()).succeeds(t)
		assert.Equal(t, []string{"  event_type IBV_EVENT_PORT_ERR (10), port 1", "  event_type IBV_EVENT_PORT_ACTIVE (9), port 1",
			"  event_type IBV_EVENT_CLIENT_REREGISTER (17), port 1"}, out.lines(), how)
	}
}
