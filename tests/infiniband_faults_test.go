package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	staged "github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// sections runs a shell script on host dgx01 of a rail-optimised fabric of two, in both ways. more is added to its profile. The script has $C, the adapters'
// class, and functions: n is nvmlfab, at begins a section of the output, and seen waits until a file has a text. check gets the
// sections by their names.
func sections(t *testing.T, script string, check func(t *testing.T, of map[string]string), more ...string) {
	t.Helper()
	t.Parallel()
	for _, how := range ways(t) {
		t.Run(how[2:], func(t *testing.T) {
			t.Parallel()
			description := filepath.Join(t.TempDir(), "fabric.yaml")
			require.NoError(t, os.WriteFile(description, []byte("layout: rail-optimised\nhosts: [{name: dgx01}, {name: dgx02}]\n"), 0o644))
			head := `C=/sys/class/infiniband
n() { "$NVMLFAB" "$@" || exit; }
at() { echo "== $1"; }
seen() { until grep -q "$2" "$1"; do sleep 0.05; done; }
leafport() { ibnetdiscover -C mlx5_0 2> /dev/null | sed -n "/^Switch.*$1:/,/^\$/s/^\[\([0-9]*\)\].*\"$2\".*/\1/p"; }
leaflid() { ibswitches -C mlx5_0 2> /dev/null | sed -n "s/.*$1:.* lid \([0-9]*\) .*/\1/p"; }
`
			out := run(t, append(ibTools(t), "NVMLFAB_STATE_DIR="+t.TempDir(), "NVMLFAB="+launcher(t), "IBPATH="+filepath.Join(diags(t), "usr/sbin")), launcher(t), "run", how, "--ib", "full",
				"--profile", ibProfile(t, more...), "--ib-fabric", description, "--", "sh", "-c", head+script).succeeds(t)
			of := map[string]string{}
			for _, section := range strings.Split("\n"+out.stdout, "\n== ")[1:] {
				name, text, _ := strings.Cut(section, "\n")
				of[name] = strings.TrimSuffix(text, "\n") + "\n"
			}
			check(t, of)
		})
	}
}

// TestInfiniBandLinkDown: every tool shows a port whose cable nvmlfab fail has pulled, and the switch's port at its other end.
func TestInfiniBandLinkDown(t *testing.T) {
	sections(t, `lid=$(leaflid su01-rail1) port=$(leafport su01-rail1 'dgx01 mlx5_3')
n fail --ib mlx5_3:1 link-down
seen $C/mlx5_3/ports/1/state DOWN
at status; n status
at ibstat; ibstat mlx5_3
at ibstatus; ibstatus mlx5_3
at rdma; rdma link show mlx5_3/1
at verbs; ibv_devinfo -d mlx5_3
at iblinkinfo; iblinkinfo -C mlx5_0 -l
at ibnetdiscover; ibnetdiscover -C mlx5_0
at ibhosts; ibhosts -C mlx5_0
at ibportstate; ibportstate -C mlx5_0 $lid $port query
at ibqueryerrors; ibqueryerrors -C mlx5_0 | grep -A 3 su01-rail1
at perfquery; perfquery -C mlx5_0 $lid $port
at sysfs; cat $C/mlx5_3/ports/1/counters/link_downed $C/mlx5_3/device/net/ibp64s0/operstate
at own; ibaddr -C mlx5_3 2>&1
n heal --ib mlx5_3
seen $C/mlx5_3/ports/1/state ACTIVE
at healed; ibstat mlx5_3; rdma link show mlx5_3/1; ibv_devinfo -d mlx5_3; ibhosts -C mlx5_0; n status`,
		func(t *testing.T, of map[string]string) {
			assert.Contains(t, of["status"], "\nInfiniBand: mlx5_3/1 link-down\n")
			assert.Contains(t, of["ibstat"], "\t\tState: Down\n\t\tPhysical state: Polling\n\t\tRate: 10\n\t\tBase lid: 65535\n\t\tLMC: 0\n\t\tSM lid: 0\n")
			assert.Contains(t, of["ibstatus"], "\tbase lid:\t 0xffff\n\tsm lid:\t\t 0x0\n\tstate:\t\t 1: DOWN\n\tphys state:\t 2: Polling\n\trate:\t\t 10 Gb/sec (4X SDR)\n")
			assert.Contains(t, of["rdma"], "lid 65535 sm_lid 0 lmc 0 state DOWN physical_state POLLING")
			assert.Contains(t, of["verbs"], "state:\t\t\tPORT_DOWN (1)\n")
			for _, tool := range []string{"iblinkinfo", "ibnetdiscover", "ibhosts"} {
				assert.NotContains(t, of[tool], "dgx01 mlx5_3", tool)
				assert.Contains(t, of[tool], "dgx02 mlx5_3", tool)
			}
			assert.Contains(t, of["ibportstate"], "LinkState:.......................Down\nPhysLinkState:...................Polling\n")
			assert.Regexp(t, `GUID 0x\w+ port \d+: \[LinkDownedCounter == 1 \(1\.000\)\]`, of["ibqueryerrors"])
			assert.Contains(t, of["perfquery"], "LinkDownedCounter:...............1\n")
			assert.Equal(t, "1\ndown\n", of["sysfs"])
			assert.Regexp(t, `(State: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n)(.|\n)*state ACTIVE physical_state LINK_UP(.|\n)*PORT_ACTIVE(.|\n)*dgx01 mlx5_3`, of["healed"])
			assert.NotContains(t, of["healed"], "link-down")
		})
}

// TestInfiniBandFlapping: a flapping link goes down and comes back by itself, the counters count it, and programs that wait for
// events of the adapter get them.
func TestInfiniBandFlapping(t *testing.T) {
	sections(t, `ibv_asyncwatch -d mlx5_3 > "$NVMLFAB_STATE_DIR/watched" 2>&1 & watcher=$!
seen "$NVMLFAB_STATE_DIR/watched" 'async event FD'
n fail --ib mlx5_3:1 --period 600ms flapping
for i in 1 2; do
  seen $C/mlx5_3/ports/1/state DOWN; echo "down $(rdma link show mlx5_3/1)"
  seen $C/mlx5_3/ports/1/state ACTIVE
done
until [ $(cat $C/mlx5_3/ports/1/counters/link_downed) -ge 3 ]; do sleep 0.05; done
n heal --ib mlx5_3:1 flapping
seen $C/mlx5_3/ports/1/state ACTIVE
until [ $(grep -c PORT_ERR "$NVMLFAB_STATE_DIR/watched") = $(grep -c PORT_ACTIVE "$NVMLFAB_STATE_DIR/watched") ]; do sleep 0.05; done
kill $watcher
at events; grep event_type "$NVMLFAB_STATE_DIR/watched"
at down; cat $C/mlx5_3/ports/1/counters/link_downed; perfquery -C mlx5_3
at ibqueryerrors; ibqueryerrors -C mlx5_0
sleep 0.7; at after; cat $C/mlx5_3/ports/1/counters/link_downed`,
		func(t *testing.T, of map[string]string) {
			down := strings.Split(of["down"], "\n")[0]
			assert.Contains(t, of["down"], "LinkDownedCounter:..............."+down+"\n")
			assert.Contains(t, of["ibqueryerrors"], fmt.Sprintf("[LinkDownedCounter == %s]", down))
			assert.Equal(t, down+"\n", of["after"], "it is over")
			assert.Equal(t, 3, min(3, strings.Count(of["events"], "IBV_EVENT_PORT_ERR (10), port 1")), of["events"])
			assert.Equal(t, strings.Count(of["events"], "PORT_ERR"), strings.Count(of["events"], "PORT_ACTIVE"), of["events"])
		})
}

// TestInfiniBandSymbolErrors: the count of a bad cable grows, in sysfs and by management datagrams alike; healing keeps what was
// counted, and it can be cleared.
func TestInfiniBandSymbolErrors(t *testing.T) {
	sections(t, `f=$C/mlx5_3/ports/1/counters/symbol_error
n fail --ib mlx5_3 --rate 1000 symbol-errors
until [ $(cat $f) -gt 300 ]; do sleep 0.05; done
a=$(cat $f); until [ $(cat $f) -gt $a ]; do sleep 0.05; done
at ibqueryerrors; ibqueryerrors -C mlx5_0
at state; cat $C/mlx5_3/ports/1/state
n heal --ib all symbol-errors
sleep 0.6
at sysfs; cat $f
at perfquery; perfquery -C mlx5_3
perfquery -C mlx5_3 -R > /dev/null
until grep -qx 0 $f; do sleep 0.05; done
at cleared; perfquery -C mlx5_3`,
		func(t *testing.T, of map[string]string) {
			assert.Regexp(t, `Errors for "dgx01 mlx5_3"\n +GUID 0x\w+ port 1: \[SymbolErrorCounter == \d{3,}\]`, of["ibqueryerrors"])
			assert.Equal(t, "4: ACTIVE\n", of["state"])
			assert.Contains(t, of["perfquery"], "SymbolErrorCounter:.............."+of["sysfs"])
			assert.Contains(t, of["cleared"], "SymbolErrorCounter:..............0\n")
		})
}

// TestInfiniBandWrongRate: a link that comes up slower than it could is shown so by all tools, and iblinkinfo says what it could be.
func TestInfiniBandWrongRate(t *testing.T) {
	sections(t, `lid=$(leaflid su01-rail1) port=$(leafport su01-rail1 'dgx01 mlx5_3')
at before; cat $C/mlx5_2/ports/1/rate
n fail --ib mlx5_3,mlx5_2 --speed EDR --lanes 1 wrong-rate
seen $C/mlx5_3/ports/1/rate EDR
at ibstat; ibstat mlx5_3
at ibstatus; ibstatus mlx5_3
at roce; ibstatus mlx5_2; cat $C/mlx5_2/device/net/enp41s0f1np1/speed
at verbs; ibv_devinfo -v -d mlx5_3
at iblinkinfo; iblinkinfo -C mlx5_0 -l | grep 'dgx01 mlx5_3'
at ibnetdiscover; ibnetdiscover -C mlx5_0
at ibportstate; ibportstate -C mlx5_0 $lid $port query
n heal --ib mlx5_3:1,mlx5_2:1 wrong-rate
seen $C/mlx5_3/ports/1/rate NDR
n fail --ib 'dgx02 mlx5_3:1' wrong-rate
seen_far() { iblinkinfo -C mlx5_0 -l | grep 'dgx02 mlx5_3' | grep -q '4X  *2.5 Gbps'; }; until seen_far; do sleep 0.05; done
at far; n status
n heal
while iblinkinfo -C mlx5_0 -l | grep -q 'Could be'; do sleep 0.05; done
at healed; iblinkinfo -C mlx5_0 -l; cat $C/mlx5_2/ports/1/rate`,
		func(t *testing.T, of map[string]string) {
			assert.Contains(t, of["ibstat"], "\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 25\n")
			assert.Contains(t, of["ibstatus"], "\trate:\t\t 25 Gb/sec (1X EDR)\n")
			assert.Contains(t, of["roce"], "\trate:\t\t 25 Gb/sec (1X EDR)\n")
			assert.Contains(t, of["roce"], "\n25000\n")
			assert.Contains(t, of["verbs"], "active_width:\t\t1X (1)\n\t\t\tactive_speed:\t\t25.0 Gbps (32)\n")
			assert.Regexp(t, `==\( 1X +25\.78125 Gbps Active/ +LinkUp\)==>.*\(Could be 4X Could be 106\.25 Gbps\)`, of["iblinkinfo"])
			assert.Regexp(t, `"dgx01 mlx5_3".* 1xEDR\n`, of["ibnetdiscover"])
			assert.Contains(t, of["ibportstate"], "LinkWidthActive:.................1X\n")
			assert.Contains(t, of["ibportstate"], "LinkSpeedExtActive:..............25.78125 Gbps\n")
			assert.Contains(t, of["far"], "\nInfiniBand: dgx02 mlx5_3/1 wrong-rate\n")
			assert.Contains(t, of["healed"], "dgx02 mlx5_3")
			assert.Contains(t, of["healed"], "\n"+of["before"])
		})
}

// TestInfiniBandDeadSwitch: a switch without power is gone from the fabric, and whoever has a cable in it is down. It comes back by
// itself after the time that --for gives.
func TestInfiniBandDeadSwitch(t *testing.T) {
	sections(t, `n fail --ib su01-rail1 --for 1h dead-switch
seen $C/mlx5_3/ports/1/state DOWN
at status; n status
at states; cat $C/mlx5_3/ports/1/state $C/mlx5_0/ports/1/state $C/mlx5_2/ports/1/state
at ibswitches; ibswitches -C mlx5_0
at iblinkinfo; iblinkinfo -C mlx5_0 -l
at ibnetdiscover; ibnetdiscover -C mlx5_0
at json; n status -o json
at dark; sminfo -C mlx5_3 2>&1
n heal --ib su01-rail1
seen $C/mlx5_3/ports/1/state ACTIVE
n fail --ib su01-rail1 --for 1s dead-switch
until grep -q 2 $C/mlx5_3/ports/1/counters/link_downed; do sleep 0.05; done
seen $C/mlx5_3/ports/1/state ACTIVE
at after; n status; ibswitches -C mlx5_0`,
		func(t *testing.T, of map[string]string) {
			assert.Regexp(t, `\nInfiniBand: su01-rail1 dead-switch \((1h0m0s|59m\d+s) left\)\n`, of["status"])
			assert.Equal(t, "1: DOWN\n4: ACTIVE\n4: ACTIVE\n", of["states"], "another rail, and Ethernet, are not concerned")
			for _, tool := range []string{"ibswitches", "iblinkinfo", "ibnetdiscover"} {
				assert.NotContains(t, of[tool], "su01-rail1:", tool)
				assert.Contains(t, of[tool], "su01-rail0:", tool)
			}
			assert.NotContains(t, of["iblinkinfo"], "mlx5_3")
			assert.Regexp(t, regexp.MustCompile(`"infiniband": \[\s+\{\s+"target": "su01-rail1",\s+"fault": "dead-switch",\s+"by": "fail:",\s+"until": "2`), of["json"])
			assert.NotContains(t, of["dark"], "SMINFO_MASTER")
			assert.NotContains(t, of["after"], "dead-switch")
			assert.Contains(t, of["after"], "su01-rail1:")
		})
}

// TestInfiniBandFaultsRefused: what no fabric can have, or what would change nothing, is refused, and the nearest name is told.
func TestInfiniBandFaultsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	on := func(profile string, args ...string) outcome {
		return run(t, []string{"NVMLFAB_STATE_DIR=" + dir, "MOCK_NVML_CONFIG=" + profile}, launcher(t), args...)
	}
	profile := ibProfile(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"--ib mlx5_33:1 link-down", `--ib: the fabric has no node "mlx5_33": did you mean "mlx5_3"?`},
		{"--ib leaf02 dead-switch", `--ib: the fabric has no node "leaf02": did you mean "leaf01"?`},
		{"--ib mlx5_0:2 link-down", `--ib: "mlx5_0" has no port "2"; it has 1 to 1`},
		{"--ib mlx5_0, link-down", `--ib: "mlx5_0," names nothing`},
		{"--ib mlx5_0 dead-switch", `"mlx5_0" is no switch`},
		{"--ib leaf01 link-down", `"leaf01" is a switch: name one of its ports, such as leaf01/1`},
		{"--ib leaf01:60 link-down", `no cable is in port 60 of "leaf01"`},
		{"--ib mlx5_0 --speed NDR wrong-rate", `port 1 of "mlx5_0" is no faster without the fault: its link is 4X NDR`},
		{"--ib mlx5_0 --speed fast wrong-rate", `--speed: "fast" is no speed of InfiniBand`},
		{"--ib mlx5_0 --lanes 3 wrong-rate", `--lanes: want 1, 2, 4, 8 or 12, not 3`},
		{"--ib mlx5_0 --rate 0 symbol-errors", `--rate: want a number above 0`},
		{"--ib mlx5_0 --rate 5 link-down", `--rate belongs to nvlink-error and symbol-errors`},
		{"--ib mlx5_0 --period 1s link-down", `--period belongs to flapping`},
		{"--ib mlx5_0 --speed EDR flapping", `--speed and --lanes belong to wrong-rate`},
		{"--ib mlx5_0 --after-calls 3 link-down", `link-down happens at once`},
		{"--ib mlx5_0 --count 3 symbol-errors", `symbol-errors counts no errors`},
		{"--ib mlx5_0 link-dwon", `unknown fault "link-dwon": did you mean "link-down"?`},
		{"--ib mlx5_0 lost", `lost is no fault of InfiniBand: leave out --ib`},
		{"--gpu 0 link-down", `link-down is a fault of InfiniBand: leave out --gpu`},
		{"link-down", `link-down is a fault of InfiniBand: say of what with --ib, such as --ib mlx5_0`},
		{"--gpu 0 --speed EDR lost", `--period, --speed and --lanes belong to faults of InfiniBand`},
	} {
		out := on(profile, append([]string{"fail"}, strings.Fields(c.args)...)...)
		assert.Equal(t, 1, out.code, c.args)
		assert.Contains(t, out.complains(t), c.want, c.args)
	}
	for args, want := range map[string]string{"--ib mlx5_33": `did you mean "mlx5_3"?`, "--ib mlx5_0 lost": "leave out --ib", "--gpu 0 flapping": "leave out --gpu",
		"--gpu 0 --ib mlx5_0": "--gpu and --ib"} {
		assert.Contains(t, on(profile, append([]string{"heal"}, strings.Fields(args)...)...).complains(t), want, args)
	}
	assert.NoFileExists(t, filepath.Join(dir, "state.json"))
	assert.Equal(t, "there was nothing to heal\n", on(profile, "heal", "--ib", "all").succeeds(t).stdout)

	t4 := filepath.Join(t.TempDir(), "t4.yaml")
	require.NoError(t, os.WriteFile(t4, []byte("extends: t4\n"), 0o644))
	assert.Contains(t, run(t, []string{"NVMLFAB_STATE_DIR=" + t.TempDir(), "MOCK_NVML_CONFIG=" + t4}, launcher(t), "fail", "--ib", "mlx5_0", "link-down").complains(t),
		"--ib: the profile "+t4+" has no InfiniBand adapters")
	for _, tier := range []string{"off", "sysfs"} {
		out := run(t, []string{"NVMLFAB_STATE_DIR=" + t.TempDir()}, launcher(t), "run", "--ib", tier, "--profile", profile, "--", launcher(t), "fail", "--ib", "mlx5_0", "link-down")
		assert.Contains(t, out.complains(t), "--ib: the run has no InfiniBand adapters that can change: start it with nvmlfab run --ib full", tier)
	}
}

// TestInfiniBandFaultStays: a fault outlives the daemon that shows it, and the daemons of other hosts know it, and the load of ports. A fault that the
// fabric does not have is told and left out.
func TestInfiniBandFaultStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	profile := ibProfile(t)
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", profile).succeeds(t)
	description, secret := filepath.Join(dir, "fabric.yaml"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(description, []byte("hosts: [{name: dgx01}, {name: dgx02}]\n"), 0o644))
	require.NoError(t, os.WriteFile(secret, []byte("a secret of the two hosts\n"), 0o600))
	address := freeAddress(t)
	start := func() *mockIB {
		return startMockIB(t, tree, "--fabric", description, "--listen", address, "--token-file", secret)
	}
	first := start()
	other := filepath.Join(dir, "other")
	startMockIB(t, other, "--profile", profile, "--node", "dgx02", "--fabric", description, "--join", address, "--token-file", secret)
	board, err := profiles.Load(profile)
	require.NoError(t, err)
	f, err := staged.Subnet(board, "dgx02", description, []byte("hosts: [{name: dgx01}, {name: dgx02}]\n"))
	require.NoError(t, err)
	ibTree(t, other, f.UMAD("dgx02"))
	elsewhere := func(want int, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Count(ibTool(t, preloadIB(t, other), "ibhosts").stdout, `"dgx01 mlx5_`) == want
		}, time.Minute, 50*time.Millisecond, why)
	}
	sysfs := func(adapter, want string) {
		t.Helper()
		file := filepath.Join(tree, "sys/class/infiniband", adapter, "ports/1/state")
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(file)
			return err == nil && string(text) == want
		}, time.Minute, 20*time.Millisecond, adapter)
	}
	on := func(args ...string) { run(t, nil, launcher(t), append(args, "--root", tree)...).succeeds(t) }

	elsewhere(10, "both are there")
	on("fail", "--ib", "mlx5_3:1,dgx02 mlx5_4", "link-down")
	sysfs("mlx5_3", "1: DOWN\n")
	elsewhere(9, "the other host is told")
	require.Eventually(t, func() bool {
		return !strings.Contains(ibTool(t, preloadIB(t, other), "ibhosts").stdout, `"dgx02 mlx5_4"`)
	}, time.Minute, 50*time.Millisecond)

	first.kill()
	elsewhere(0, "the host is gone")
	on("fail", "--ib", "mlx5_5", "link-down") // while no daemon runs
	on("heal", "--ib", "dgx02 mlx5_4")
	start()
	sysfs("mlx5_3", "1: DOWN\n")
	sysfs("mlx5_5", "1: DOWN\n")
	elsewhere(8, "the fault is still there")
	on("heal")
	sysfs("mlx5_3", "4: ACTIVE\n")
	elsewhere(10, "it is healed for both")

	// What a port sends is known on other hosts too.
	lid := fmt.Sprint(f.Host("dgx01")[3].Ports[1].LID)
	sent := func() uint64 {
		return counters(t, ibTool(t, preloadIB(t, other), "perfquery", "-x", lid, "1").succeeds(t).stdout)["PortXmitData"]
	}
	assert.Zero(t, sent())
	on("set", "--gpu", "1", "utilization.gpu=100")
	require.Eventually(t, func() bool { return sent() > 0 }, time.Minute, 50*time.Millisecond)
	on("set", "--gpu", "1", "utilization.gpu=0")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(tree, "sys/class/infiniband/mlx5_3/ports/1/counters/port_xmit_data"))
		return err == nil && strings.TrimSpace(string(text)) == fmt.Sprint(sent())
	}, time.Minute, 50*time.Millisecond, "both hosts tell the same")

	// Who resets counters from another host resets those that this one shows.
	shows := func(file, want string) {
		t.Helper()
		path := filepath.Join(tree, "sys/class/infiniband/mlx5_3/ports/1/counters", file)
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(path)
			return err == nil && string(text) == want+"\n"
		}, time.Minute, 20*time.Millisecond, file)
	}
	far := func(flags ...string) map[string]uint64 {
		t.Helper()
		return counters(t, ibTool(t, preloadIB(t, other), "perfquery", append(flags, lid, "1")...).succeeds(t).stdout)
	}
	assert.EqualValues(t, 1, far()["LinkDownedCounter"])
	shows("link_downed", "1")
	far("-r")
	shows("link_downed", "0")
	shows("port_xmit_data", "0")
	assert.Zero(t, far("-x")["PortXmitData"]+far()["LinkDownedCounter"])
	on("fail", "--ib", "mlx5_3", "link-down")
	shows("link_downed", "1")
	on("heal")
	sysfs("mlx5_3", "4: ACTIVE\n")
	assert.EqualValues(t, 1, far()["LinkDownedCounter"], "this host has counted it")
}

// TestInfiniBandFaultStorm: faults come and go while 32 threads ask all ports, and the daemon is killed while some stand. Every
// question is answered, and a daemon that is started again has the last faults.
func TestInfiniBandFaultStorm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree, profile := filepath.Join(dir, "tree"), filepath.Join(dir, "h100.yaml")
	require.NoError(t, os.WriteFile(profile, []byte("extends: h100\ninfiniband: {node_name: dgx01}\n"), 0o644))
	run(t, nil, launcher(t), "stage", "--root", tree, "--profile", profile).succeeds(t)
	ports, err := filepath.Glob(filepath.Join(tree, "dev/infiniband/umad*"))
	require.NoError(t, err)
	m := startMockIB(t, tree)
	env := []string{ibPreload(), "MOCK_IB=full", "MOCK_IB_ROOT=" + tree}
	program := ibProgram(t, "hammer")
	on := func(args string) {
		run(t, nil, launcher(t), append(strings.Fields(args), "--root", tree)...).succeeds(t)
	}
	ended := make(chan outcome, 1)
	go func() { ended <- run(t, env, program, fmt.Sprint(len(ports)), fmt.Sprint(m.cmd.Process.Pid), "60") }()
	changes := []string{"fail --ib all --period 100ms flapping", "fail --ib leaf01 dead-switch", "heal --ib leaf01", "fail --ib mlx5_3,mlx5_4 link-down",
		"fail --ib all --for 50ms wrong-rate", "fail --ib mlx5_0 --rate 1e6 symbol-errors", "set --gpu all utilization.gpu=100", "heal flapping", "heal --ib mlx5_4"}
	var out outcome
	for i := 0; out.stdout+out.stderr == ""; i++ {
		on(changes[i%len(changes)])
		select {
		case out = <-ended:
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.Equal(t, "ok\n", out.stdout, out.stderr)
	m.cmd.Wait()
	os.Remove(filepath.Join(tree, "run", "mock-ib.sock"))
	assert.Empty(t, m.stderr.String())

	on("heal")
	on("fail --ib mlx5_3 link-down")
	startMockIB(t, tree)
	assert.Contains(t, ibTool(t, env, "ibstat", "mlx5_3").succeeds(t).stdout, "State: Down\n")
	hosts := ibTool(t, env, "ibhosts", "-C", "mlx5_0").succeeds(t).stdout
	assert.NotContains(t, hosts, "dgx01 mlx5_3")
	assert.Equal(t, len(ports)-1, strings.Count(hosts, "dgx01 mlx5_"))
}
