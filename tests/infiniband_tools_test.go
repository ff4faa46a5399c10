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

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// TestInfinibandTools: on a host with eight adapters on one switch, the tools end with 0 and say what the fabric is.
func TestInfinibandTools(t *testing.T) {
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 8, 0x1021, fabric.NDR)})
	var sw *fabric.Node
	var ports []*fabric.Port
	s.local.Do(func(f *fabric.Fabric) { sw, ports = f.Nodes[0], f.UMAD("dgx01") })
	first, far := ports[0], uint16(0)
	s.local.Do(func(f *fabric.Fabric) { far = f.UMAD("dgx02")[0].LID })

	out := s.tool("ibstat", "mlx5_0").succeeds(t).stdout
	assert.Contains(t, out, "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tHardware version: 0\n")
	assert.Contains(t, out, fmt.Sprintf("\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: %d\n\t\tLMC: 0\n\t\tSM lid: 1\n"+
		"\t\tCapability mask: 0xa751e848\n\t\tPort GUID: 0x%016x\n\t\tLink layer: InfiniBand\n", first.LID, first.GUID))

	out = s.tool("iblinkinfo", "-l").succeeds(t).stdout
	assert.Equal(t, 32, strings.Count(out, "==( 4X        106.25 Gbps Active/  LinkUp)==>"), "16 links, seen from both ends")
	assert.Equal(t, 48, strings.Count(out, "==(                Down/ Polling)==>             [  ] \"\" ( )"))

	out = s.tool("ibnetdiscover").succeeds(t).stdout
	assert.Contains(t, out, fmt.Sprintf("Switch\t64 \"S-%016x\"\t\t# \"MF0;leaf01:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n", sw.GUID))
	assert.Contains(t, out, fmt.Sprintf("[1](%x) \t\"S-%016x\"[1]\t\t# lid %d lmc 0 \"MF0;leaf01:MQM9700/U1\" lid 1 4xNDR\n", first.GUID, sw.GUID, first.LID))

	assert.Contains(t, s.tool("ibhosts").succeeds(t).stdout, fmt.Sprintf("Ca\t: 0x%016x ports 1 \"dgx02 mlx5_7\"\n", uint64(0x946dae0300002070)))
	assert.Contains(t, s.tool("ibswitches").succeeds(t).stdout, fmt.Sprintf("Switch\t: 0x%016x ports 64 \"MF0;leaf01:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n", sw.GUID))
	assert.Contains(t, s.tool("ibqueryerrors").succeeds(t).stdout, "## Summary: 17 nodes checked, 0 bad nodes found\n##          80 ports checked, 0 ports have errors beyond threshold\n")
	assert.Regexp(t, fmt.Sprintf(`^sminfo: sm lid 1 sm guid 0x%016x, activity count \d+ priority 15 state 3 SMINFO_MASTER\n$`, sw.GUID), s.tool("sminfo").succeeds(t).stdout)
	assert.Regexp(t, `^GID fe80::946d:ae03:0:\S+ LID start 0x\S+ end 0x\S+\n$`, s.tool("ibaddr").succeeds(t).stdout)
	out = s.tool("ibping", "-c", "2", "-L", fmt.Sprint(far)).succeeds(t).stdout
	assert.Regexp(t, fmt.Sprintf(`^Pong from dgx02 \(Lid %d\): time [\d.]+ ms\n`, far), out)
	assert.Contains(t, out, "2 packets transmitted, 2 received, 0% packet loss")
	assert.Equal(t, "sysstat ping succeeded\n", s.tool("ibsysstat", fmt.Sprint(far)).succeeds(t).stdout)
	assert.Contains(t, s.tool("ibroute", "1").succeeds(t).stdout, "17 valid lids dumped")
	assert.Len(t, s.tool("ibtracert", fmt.Sprint(first.LID), fmt.Sprint(far)).succeeds(t).lines(), 4)
	assert.Contains(t, s.tool("ibportstate", "1", "1", "query").succeeds(t).stdout, "LinkSpeedExtActive:..............106.25 Gbps\n")

	for _, op := range [][]string{{"NI", "1"}, {"ND", "1"}, {"PI", "1", "1"}, {"PIE", "1", "1"}, {"SI", "1"}, {"PKeys", "1", "1"}, {"SL2VL", "1", "1"},
		{"VLArb", "1", "1"}, {"GI", fmt.Sprint(far)}, {"MEPI", "1", "1"}, {"-D", "NI", "0,1"}, {"-D", "PI", "0,1", "2"},
		{"-G", "NI", fmt.Sprintf("0x%016x", first.GUID)}, {"-c", "NI", "1", "0,1"}} {
		assert.NotEmpty(t, s.tool("smpquery", op...).succeeds(t).stdout, "%v", op)
	}
	for _, c := range [][]string{{"1", "1"}, {"-x", "1", "1"}, {"-x"}, {"-a", "1"}, {"-E", "1", "1"}, {"-R", "1", "1"}} {
		s.tool("perfquery", c...).succeeds(t)
	}
	assert.Contains(t, s.tool("perfquery", "-x", "1", "1").succeeds(t).stdout, "(CapMask: 0x5300 CapMask2: 0x0000002)\n")

	assert.Equal(t, 17, strings.Count(s.tool("saquery").succeeds(t).stdout, "NodeRecord dump:"))
	for _, c := range []struct {
		args  []string
		word  string
		count int
	}{
		{[]string{"PIR"}, "PortInfoRecord dump:", 16 + 65}, {[]string{"LR"}, "LinkRecord dump:", 32}, {[]string{"SWIR"}, "SwitchInfoRecord dump:", 1},
		{[]string{"LFTR"}, "LFT Record dump:", 1}, {[]string{"MFTR"}, "MFT Record dump:", 5}, {[]string{"SMIR"}, "SMInfoRecord dump:", 1},
		{[]string{"GIR"}, "GUIDInfo Record dump:", 17}, {[]string{"PR", "--src-to-dst", fmt.Sprintf("%d:%d", first.LID, far)}, "PathRecord dump:", 1},
		{[]string{"-p"}, "PathRecord dump:", 17 * 17}, {[]string{"SR"}, "ServiceRecord dump:", 0}, {[]string{"MCMR"}, "MCMember", 3},
		{[]string{"VLAR"}, "VLArbTableRecord dump:", 2*16 + 2*64}, {[]string{"SL2VL"}, "SL2VLTableRecord dump:", 16 + 64*64},
		{[]string{"-c"}, "Capability mask..........0x2602", 1}, {[]string{"-s"}, "PortInfoRecord dump:", 1}, {[]string{"-m"}, "MCMemberRecord", 3},
		{[]string{"PKTR"}, "PKeyTableRecord dump:", 0}, {[]string{"PKTR", "--smkey", "1"}, "PKeyTableRecord dump:", 16*4 + 65},
	} {
		o := s.tool("saquery", c.args...)
		if c.args[0] == "PKTR" && len(c.args) == 1 {
			assert.NotZero(t, o.code, "P_Keys need the SM_Key")
			continue
		}
		o.succeeds(t)
		assert.Equal(t, c.count, strings.Count(o.stdout, c.word), "saquery %v\n%.600s", c.args, o.stdout)
	}

	// What is not there is an error, as long as a tool waits.
	o := s.tool("smpquery", "-t", "50", "NI", "99")
	assert.NotZero(t, o.code)
	assert.Contains(t, o.stderr, "recv failed: Connection timed out")
	o = s.tool("ibping", "-c", "1", "-t", "50", "-L", "99").succeeds(t)
	assert.Contains(t, o.stdout, "100% packet loss")
}

// TestInfinibandFaults: the tools show what is wrong with links.
func TestInfinibandFaults(t *testing.T) {
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 2, 0x1021, fabric.NDR), Layout: fabric.Layout{Preset: "rail-optimised"}})
	at := []string{"-C", "mlx5_1"}
	fail := func(faults ...fabric.Fault) {
		s.local.Do(func(f *fabric.Fabric) { require.NoError(t, f.SetFaults("dgx01", faults, time.Now())) })
	}
	links := func() string { return s.tool("iblinkinfo", append(at, "-l")...).succeeds(t).stdout }
	lid := 0
	s.local.Do(func(f *fabric.Fabric) { lid = int(f.UMAD("dgx02")[0].LID) })

	fail(fabric.Fault{Kind: fabric.LinkDown, Target: "mlx5_0"})
	assert.NotContains(t, links(), "dgx01 mlx5_0")
	assert.Contains(t, s.tool("ibping", append(at, "-c", "1", "-L", fmt.Sprint(lid))...).succeeds(t).stdout, "0% packet loss", "over the spines")

	fail(fabric.Fault{Kind: fabric.WrongRate, Target: "dgx02 mlx5_0", Speed: fabric.EDR, Width: 1})
	assert.Regexp(t, `" ?dgx02 mlx5_0" +\d+ +1\[ +\] ==\( 1X +25\.78125 Gbps Active/ +LinkUp\)==> .*\(Could be 4X Could be 106\.25 Gbps\)`, regexp.MustCompile(` +`).ReplaceAllString(links(), " "))

	fail(fabric.Fault{Kind: fabric.SymbolErrors, Target: "dgx02 mlx5_0", PerSecond: 1e6, Since: time.Now().Add(-time.Minute)})
	assert.Contains(t, s.tool("perfquery", append(at, fmt.Sprint(lid), "1")...).succeeds(t).stdout, "SymbolErrorCounter:..............65535\n", "it stays at its highest")
	assert.Regexp(t, `GUID 0x\w+ port 1: \[SymbolErrorCounter == 65535\]`, s.tool("ibqueryerrors", at...).stdout)

	fail(fabric.Fault{Kind: fabric.DeadSwitch, Target: "su01-rail0"})
	assert.NotContains(t, links(), "su01-rail0")
	assert.NotContains(t, links(), "dgx02 mlx5_0")

	fail()
	assert.Contains(t, links(), "dgx02 mlx5_0")
}

// TestInfinibandAggregation: a switch has its aggregation node at the port after its last one, which tools list with the adapters.
func TestInfinibandAggregation(t *testing.T) {
	t.Parallel()
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 2, 0x1021, fabric.NDR), Layout: fabric.Layout{Preset: "rail-optimised", Aggregation: true}})
	var leaf, node *fabric.Node
	s.local.Do(func(f *fabric.Fabric) { leaf = f.Nodes[0]; node = leaf.Ports[65].Remote.Node })
	require.Equal(t, leaf.GUID+8, node.GUID)
	out := s.tool("ibnetdiscover").succeeds(t).stdout
	assert.Contains(t, out, fmt.Sprintf("\nSwitch\t65 \"S-%016x\"\t\t# \"MF0;su01-rail0:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n", leaf.GUID))
	assert.Contains(t, out, fmt.Sprintf("\n[65]\t\"H-%016x\"[1](%[1]x) \t\t# \"Mellanox Technologies Aggregation Node\" lid %d 4xNDR\n", node.GUID, node.Ports[1].LID))
	assert.Contains(t, out, fmt.Sprintf("\ndevid=0xcf09\nsysimgguid=0x%x\ncaguid=0x%x\nCa\t1 ", leaf.GUID, node.GUID))
	switches := strings.Count(s.tool("ibswitches").succeeds(t).stdout, "ports 65 ")
	assert.Equal(t, switches, strings.Count(s.tool("ibhosts").succeeds(t).stdout, `ports 1 "Mellanox Technologies Aggregation Node"`))
	assert.Regexp(t, `65\[  \] ==\( 4X +106\.25 Gbps Active/ +LinkUp\)==> .* "Mellanox Technologies Aggregation Node"`, s.tool("iblinkinfo", "-l").succeeds(t).stdout)
	assert.Contains(t, s.tool("ibqueryerrors").succeeds(t).stdout, " 0 bad nodes found\n")
	assert.Contains(t, s.tool("ibping", "-c", "1", "-t", "50", "-L", fmt.Sprint(node.Ports[1].LID)).succeeds(t).stdout, "100% packet loss", "it runs no server")
	s.tool("perfquery", "-x", fmt.Sprint(node.Ports[1].LID), "1").succeeds(t)
}

// TestInfinibandScans: the scripts and programs that go through a whole subnet end with 0, and say what the fabric is.
func TestInfinibandScans(t *testing.T) {
	t.Parallel()
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 2, 0x1021, fabric.NDR), Layout: fabric.Layout{Preset: "rail-optimised"}})
	diag := diags(t)
	s.env = append(s.env, "PERL5LIB="+filepath.Join(diag, "usr/share/perl5"), "PATH="+filepath.Join(diag, "usr/sbin")+":"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+filepath.Join(diag, "usr/lib/x86_64-linux-gnu"), "IBPATH="+filepath.Join(diag, "usr/sbin"))
	// These keep what they have found in /var/cache, so they get one of their own.
	script := func(command string) string {
		return runIn(t, t.TempDir(), s.env, tool(t, "unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /var/cache; exec "+command).succeeds(t).stdout
	}
	var leaf, ca *fabric.Node
	s.local.Do(func(f *fabric.Fabric) { leaf, ca = f.Nodes[0], f.Host("dgx02")[0] })
	assert.Equal(t, 4, strings.Count(s.tool("ibnodes").succeeds(t).stdout, "Ca\t: "))
	assert.Empty(t, s.tool("ibrouters").succeeds(t).stdout)
	namespaces(t)
	assert.Empty(t, script("ibidsverify -R"), "no LID or GUID is there twice")
	routes := s.tool("dump_fts").succeeds(t).stdout
	assert.Contains(t, routes, fmt.Sprintf("guid 0x%016x (%s):\n", leaf.GUID, leaf.Description))
	assert.Contains(t, routes, fmt.Sprintf("0x%04x 002 : (Channel Adapter portguid 0x%016x: 'dgx02 mlx5_0')\n", ca.Ports[1].LID, ca.Ports[1].GUID))
	assert.Regexp(t, `Multicast mlids \[0xc000-0x\w+\] of switch .*su01-rail0`, s.tool("dump_fts", "-M").succeeds(t).stdout)
	assert.Contains(t, script(fmt.Sprintf("ibfindnodesusing -R 0x%016x 2", leaf.GUID)), "dgx02 mlx5_0")
	assert.Contains(t, s.tool("smpdump", fmt.Sprint(ca.Ports[1].LID), "0x11").succeeds(t).stdout, "0101 0101 946d ae03 ")
	dir := t.TempDir()
	file, cache := filepath.Join(dir, "routes"), filepath.Join(dir, "cache")
	require.NoError(t, os.WriteFile(file, []byte(routes), 0o644))
	s.tool("ibnetdiscover", "--cache", cache).succeeds(t)
	s.tool("ibcacheedit", cache, cache+".new").succeeds(t)
	assert.Contains(t, s.tool("ibnetdiscover", "--load-cache", cache+".new").succeeds(t).stdout, "dgx02 mlx5_0")
	assert.NotContains(t, s.tool("check_lft_balance", "-l", file, "-i", cache).succeeds(t).stdout, "Unbalanced")
}
