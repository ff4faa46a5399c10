package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// counters are those that perfquery prints.
func counters(t *testing.T, text string) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+):\.+(\d+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		require.NoError(t, err)
		all[m[1]] = n
	}
	require.NotEmpty(t, all, text)
	return all
}

// TestInfiniBandTraffic: an adapter sends and receives while the GPU beside it is busy: in sysfs, and in datagrams with counters of 64
// and of 32 bits, also at the other end of the cable. An adapter beside an idle GPU does not.
func TestInfiniBandTraffic(t *testing.T) {
	sections(t, `c=$C/mlx5_3/ports/1
lid=$(leaflid su01-rail1) port=$(leafport su01-rail1 'dgx01 mlx5_3')
at first; perfquery -x -C mlx5_3
at leaf; perfquery -x -C mlx5_3 $lid $port
f=$c/counters/port_xmit_data; a=$(cat $f); until [ $(cat $f) != $a ]; do sleep 0.05; done
a=$(cat $f); until [ $(cat $f) != $a ]; do sleep 0.05; done # written after both
at files; for i in port_xmit_data port_rcv_data port_xmit_packets unicast_rcv_packets; do cat $c/counters/$i; done; cat $c/hw_counters/rx_write_requests
at second; perfquery -x -C mlx5_3
at idle; perfquery -x -C mlx5_0; cat $C/mlx5_0/ports/1/counters/port_xmit_data
at cleared; perfquery -R -C mlx5_3 > /dev/null; perfquery -C mlx5_3
at narrow; until perfquery -C mlx5_3 | grep -q 'PortXmitPkts:.*[1-9]'; do sleep 0.05; done; perfquery -C mlx5_3
n set --gpu 2 utilization.gpu=100
f=$C/mlx5_4/ports/1/counters/port_rcv_data; until [ $(cat $f) != 0 ]; do sleep 0.05; done
n set --gpu 2 utilization.gpu=0
a=-1; until [ $(cat $f) = $a ]; do a=$(cat $f); sleep 0.6; done
at still; perfquery -x -C mlx5_4; at file; cat $f`,
		func(t *testing.T, of map[string]string) {
			first, second, leaf := counters(t, of["first"]), counters(t, of["second"]), counters(t, of["leaf"])
			for i, name := range []string{"PortXmitData", "PortRcvData", "PortXmitPkts", "PortUnicastRcvPkts"} {
				assert.Less(t, first[name], second[name], name)
				file, err := strconv.ParseUint(strings.Fields(of["files"])[i], 10, 64)
				require.NoError(t, err)
				assert.LessOrEqual(t, first[name], file, name)
				assert.LessOrEqual(t, file, second[name], name)
			}
			assert.LessOrEqual(t, first["PortXmitData"], leaf["PortRcvData"])
			assert.LessOrEqual(t, leaf["PortRcvData"], second["PortXmitData"])
			assert.NotEqual(t, "0", strings.Fields(of["files"])[4], "writes were received")
			idle := counters(t, of["idle"])
			assert.Zero(t, idle["PortXmitData"]+idle["PortRcvData"]+idle["PortXmitPkts"])
			assert.Contains(t, of["idle"], "\n0\n")
			assert.Less(t, counters(t, of["cleared"])["PortXmitPkts"], second["PortXmitPkts"])
			narrow := counters(t, of["narrow"])
			assert.NotZero(t, narrow["PortXmitData"])
			assert.LessOrEqual(t, narrow["PortXmitData"], uint64(0xffffffff))
			assert.Equal(t, strings.TrimSpace(of["file"]), strconv.FormatUint(counters(t, of["still"])["PortRcvData"], 10))
		}, "devices: [{index: 1, dynamic_metrics: {utilization: {pattern: busy}}}]")
}

// TestInfiniBandPerfquery: perfquery's other questions get answers, or the status that says that the hardware has no such counters.
func TestInfiniBandPerfquery(t *testing.T) {
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 2, 0x1021, fabric.NDR)})
	t.Parallel()
	s.local.Do(func(f *fabric.Fabric) {
		f.Traffic = func(*fabric.Port, time.Time) fabric.Traffic { return fabric.Traffic{Sent: 4000, Received: 1 << 50} }
	})
	assert.Contains(t, s.tool("perfquery", "-c", "1", "1").succeeds(t).stdout, "# PortSamplesControl: Lid 1 port 1\nOpCode:..........................0x00\nPortSelect:......................1\n"+
		"Tick:............................0x00\nCounterWidth:....................4\n")
	assert.Contains(t, s.tool("perfquery", "-c").succeeds(t).stdout, "SampleStatus:....................0\n")
	sent, received := s.tool("perfquery", "-X").succeeds(t).stdout, s.tool("perfquery", "-S").succeeds(t).stdout
	assert.Contains(t, sent, "XmtDataSL0:......................1000\nXmtDataSL1:......................0\n")
	assert.Contains(t, received, "RcvDataSL0:......................4294967295\n", "it stays at its highest")
	assert.Contains(t, s.tool("perfquery", "-X", "-R").succeeds(t).stdout+s.tool("perfquery", "-X").succeeds(t).stdout, "XmtDataSL0:......................0\n")
	assert.Contains(t, s.tool("perfquery", "-x").succeeds(t).stdout, "PortXmitData:....................1000\n", "which is another counter")
	assert.Contains(t, s.tool("perfquery", "-T", "1", "1").succeeds(t).stdout, "# PortExtendedSpeedsCounters with RS-FEC Active counters: Lid 1 port 1\nPortSelect:......................1\n")
	s.tool("perfquery", "-T", "-R", "1", "1").succeeds(t)
	for _, flags := range [][]string{{"-E", "1", "1"}, {"-D", "1", "1"}, {"-l", "1", "1-3"}, {"-a", "1", "1,2"}, {"-x", "-a", "1"}, {"-x", "-r", "1", "1"}, {"-x", "-R", "-a", "1"}} {
		s.tool("perfquery", flags...).succeeds(t)
	}
	for _, flag := range []string{"--oprcvcounters", "--flowctlcounters", "--vloppackets", "--swportvlcong", "--rcvcc", "--vlxmittimecc"} {
		o := s.tool("perfquery", flag, "1", "1")
		assert.NotZero(t, o.code, flag)
		assert.Contains(t, o.stdout, "cannot query", flag)
	}
}

// TestInfiniBandVendor: vendstat shows the hardware and firmware of adapters and switches, and ibsysstat the processors of a host, as
// its own server does.
func TestInfiniBandVendor(t *testing.T) {
	s := newSubnet(t, fabric.Description{Hosts: []fabric.Host{{Name: "dgx01", HCAs: hcas(1, 1, 0x1021, fabric.NDR)}, {Name: "old", HCAs: hcas(2, 1, 0x101b, fabric.HDR)}}})
	t.Parallel()
	var far uint16
	s.local.Do(func(f *fabric.Fabric) {
		far = f.UMAD("old")[0].LID
		f.Started = time.Now().Add(-time.Hour)
		for i := range 64 {
			f.CPUs = append(f.CPUs, fabric.CPU{Model: fmt.Sprintf(" Processor %d", i), MHz: " 2100.000"})
		}
	})
	out := s.tool("vendstat", "-N", "1").succeeds(t).stdout
	assert.Regexp(t, `^hw_dev_rev:  0x00a0\nhw_dev_id:   0xd2f2\nhw_uptime:   0x00000[ef][0-9a-f]{2}\nfw_version:  31\.`, out)
	assert.Contains(t, out, "fw_psid:     'MT_0000000577'\n")
	out = s.tool("vendstat", "-N", fmt.Sprint(far)).succeeds(t).stdout
	assert.Contains(t, out, "hw_dev_id:   0x101b\n")
	assert.Contains(t, out, "fw_version:  28.39.1002\n", "of devices that tell it in words too")
	assert.Contains(t, out, "fw_psid:     'MT_0000000838'\n")
	assert.Contains(t, s.tool("vendstat", "-w", "1").stdout, "Unsupported device ID 0xd2f2")
	assert.Contains(t, s.tool("vendstat", "-i", "1", "1").stderr, "counter group info query failure")

	out = s.tool("ibsysstat", fmt.Sprint(far), "cpu").succeeds(t).stdout
	assert.Equal(t, 64, strings.Count(out, "\ncpu ")+1, "more than one datagram takes")
	assert.Contains(t, out, "cpu 0: model  Processor 0 MHZ  2100.000\ncpu 1: ")
	assert.Equal(t, "old\n", s.tool("ibsysstat", fmt.Sprint(far), "host").succeeds(t).stdout)
	assert.Equal(t, "sysstat ping succeeded\n", s.tool("ibsysstat", fmt.Sprint(far), "ping").succeeds(t).stdout)
}

// TestInfiniBandSysstat: without a server, ibsysstat gets what its server answers on the same machine.
func TestInfiniBandSysstat(t *testing.T) {
	sections(t, `lid() { printf %d $(cat $C/$1/ports/1/lid); }
at without; ibsysstat -C mlx5_0 $(lid mlx5_4) cpu
ibsysstat -S -C mlx5_4 > /dev/null 2>&1 & server=$!
until [ "$(ibsysstat -C mlx5_0 $(lid mlx5_4) host)" != dgx01 ]; do sleep 0.05; done
at with; ibsysstat -C mlx5_0 $(lid mlx5_4) cpu
kill $server`,
		func(t *testing.T, of map[string]string) {
			clock := regexp.MustCompile(`MHZ +[\d.]+`) // which changes
			assert.Regexp(t, `^cpu 0: model .* MHZ `, of["without"])
			assert.Equal(t, strings.TrimSpace(clock.ReplaceAllString(of["with"], "")), strings.TrimSpace(clock.ReplaceAllString(of["without"], "")))
		})
}

// TestInfiniBandQueryErrors: ibqueryerrors takes all of its flags.
func TestInfiniBandQueryErrors(t *testing.T) {
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(2, 2, 0x1021, fabric.NDR)})
	t.Parallel()
	var sw, ca *fabric.Node
	s.local.Do(func(f *fabric.Fabric) {
		sw, ca = f.Nodes[0], f.Host("dgx02")[0]
		f.Traffic = func(*fabric.Port, time.Time) fabric.Traffic { return fabric.Traffic{Sent: 4000, Received: 8000} }
		for _, c := range []fabric.Counter{fabric.SymbolErrorCounter, fabric.RcvErrors, fabric.XmitDiscards, fabric.RcvSwitchRelayErrors, fabric.XmitWait} {
			ca.Ports[1].Count(c, 20)
			sw.Ports[1].Count(c, 30)
		}
	})
	query := func(args ...string) string { return s.tool("ibqueryerrors", args...).stdout }
	all := query()
	for _, part := range []string{"[SymbolErrorCounter == 20]", "[PortRcvErrors == 20]", "[PortXmitDiscards == 20]", "[SymbolErrorCounter == 30",
		"2 bad nodes found", `Errors for "dgx02 mlx5_0"`, fmt.Sprintf("Errors for 0x%x %q", sw.GUID, sw.Description)} {
		assert.Contains(t, all, part)
	}
	assert.NotContains(t, query("-s", "SymbolErrorCounter,PortRcvErrors"), "SymbolErrorCounter ==")
	assert.Contains(t, all, "PortRcvSwitchRelayErrors ==")
	assert.NotContains(t, query("-c"), "PortRcvSwitchRelayErrors ==")
	assert.NotContains(t, query("--switch"), "dgx02 mlx5_0")
	assert.NotContains(t, query("--ca"), `Errors for 0x`)
	assert.Contains(t, query("--router"), "## Summary: 0 nodes checked")
	assert.Contains(t, query("--data", "--ca"), "[PortXmitData == 1000 (3.906KB)] [PortRcvData == 2000")
	assert.Contains(t, query("--counters", "--ca"), fmt.Sprintf("Data Counters for 0x%x \"dgx02 mlx5_0\"\n", ca.GUID))
	assert.Contains(t, query("--details"), "[PortLocalPhysicalErrors == 20]")
	assert.Contains(t, query("--details"), "[PortInactiveDiscards == 20]")
	assert.Contains(t, query("-r"), "Active/  LinkUp)==>")
	assert.Contains(t, query("-G", fmt.Sprintf("0x%x", ca.Ports[1].GUID)), `Errors for "dgx02 mlx5_0"`)
	assert.Contains(t, query("-D", "0,1"), sw.Description)
	assert.Contains(t, query("--skip-sl", "-o", "1"), "2 bad nodes found")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	assert.NotContains(t, query("--threshold-file", write("thresholds", "SymbolErrorCounter=100\n")), "SymbolErrorCounter ==")
	assert.Contains(t, query("--node-name-map", write("names", fmt.Sprintf("0x%x \"the leaf\"\n", sw.GUID))), `"the leaf"`)
	cache := filepath.Join(dir, "cache")
	s.tool("ibnetdiscover", "--cache", cache).succeeds(t)
	assert.Contains(t, query("--load-cache", cache), "2 bad nodes found")
	query("-K")
	assert.Contains(t, query(), "2 bad nodes found", "clearing traffic keeps errors")
	assert.Contains(t, query("--counters", "--ca"), "[PortXmitData == 0 (0.000B)]")
	query("-k")
	assert.Contains(t, query(), " 0 bad nodes found", "errors are cleared")
}

// TestInfiniBandFiles: the counters of adapters, and of their network interfaces, have all files that the kernel makes.
func TestInfiniBandFiles(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		out := inIB(t, how, "sysfs", profile, `cd /sys/class/infiniband/mlx5_3; ls ports/1/counters | wc -l; ls ports/1/hw_counters | wc -l; ls device/net/*/statistics | wc -l
ls /sys/class/infiniband/mlx5_2/ports/1/hw_counters | wc -l; cat ports/1/counters/* ports/1/hw_counters/* device/net/*/statistics/* | sort -u`).succeeds(t)
		assert.Equal(t, []string{"21", "26", "24", "30", "0", "12"}, strings.Fields(out.stdout), how)
	}
}

// TestInfiniBandEmptyGIDs: the attributes of an entry of the GID table that is empty cannot be read, as the kernel has it; those of
// one that is beyond the table are not there.
func TestInfiniBandEmptyGIDs(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		for _, tier := range []string{"sysfs", "full"} {
			out := inIB(t, how, tier, profile, `cd /sys/class/infiniband; for f in mlx5_3/ports/1/gid_attrs/types/1 mlx5_3/ports/1/gid_attrs/ndevs/0 mlx5_2/ports/1/gid_attrs/ndevs/255 \
	$PWD/mlx5_2/ports/1/gid_attrs/types/7 mlx5_3/ports/1/gid_attrs/types/8 mlx5_3/ports/1/gid_attrs/types/x mlx5_3/ports/1/gid_attrs/types/0 mlx5_2/ports/1/gid_attrs/ndevs/0; do cat $f 2>&1 | sed 's/.*: //'; done`).succeeds(t)
			assert.Equal(t, []string{"Invalid argument", "Invalid argument", "Invalid argument", "Invalid argument", "No such file or directory",
				"No such file or directory", "IB/RoCE v1", "enp41s0f1np1"}, out.lines(), how)
		}
	}
}
