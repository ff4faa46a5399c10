package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// simulator is ibsim with opensm on it, which simulate a fabric in another way.
type simulator struct {
	t   *testing.T
	dir string
	env []string
}

// netFile describes a fabric to ibsim.
func netFile(f *fabric.Fabric) string {
	var b strings.Builder
	id := func(n *fabric.Node) string {
		return fmt.Sprintf("%s-%016x", map[fabric.Kind]string{fabric.CA: "H", fabric.Switch: "S"}[n.Kind], n.GUID)
	}
	for _, n := range f.Nodes {
		kind, word, tail := "caguid", "Ca", ""
		if n.Kind == fabric.Switch {
			kind, word, tail = "switchguid", "Switch", " enhanced port 0 lid 0 lmc 0"
		}
		fmt.Fprintf(&b, "vendid=0x2c9\ndevid=%#x\nsysimgguid=%#x\n%s=%#x\nextspeed=7\n%s\t%d \"%s\"\t\t# %q%s\n", n.DeviceID, n.System, kind, n.GUID, word,
			len(n.Ports)-1, id(n), n.Description, tail)
		for _, p := range n.Ports[1:] {
			if p.Remote != nil && p.Number > 0 {
				fmt.Fprintf(&b, "[%d]\t\"%s\"[%d]\n", p.Number, id(p.Remote.Node), p.Remote.Number)
			}
		}
		if n.Kind == fabric.CA && n.Ports[0] != nil {
			panic("an adapter has a port 0")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// simulate starts ibsim and opensm for a fabric. opensm runs on the first node, clients on the others: ibsim has one process a
// node.
func simulate(t *testing.T, f *fabric.Fabric) *simulator {
	t.Helper()
	tools, err := debian.Fetch("ibsim")
	if err != nil {
		skip(t, err.Error())
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "net"), []byte(netFile(f)), 0o644))
	libraries := filepath.Join(tools, "usr/lib/x86_64-linux-gnu")
	s := &simulator{t: t, dir: dir, env: append(environ(), "LD_LIBRARY_PATH="+libraries+":"+filepath.Join(diags(t), "usr/lib/x86_64-linux-gnu"),
		"IBSIM_SOCKNAME=nvmlfab-"+filepath.Base(filepath.Dir(dir))+fmt.Sprint(os.Getpid()), "OSM_CACHE_DIR="+dir, "OSM_TMP_DIR="+dir)}
	start := func(env []string, name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(tools, name), args...)
		cmd.Dir, cmd.Env = t.TempDir(), append(slices.Clone(s.env), env...)
		log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".out"))
		require.NoError(t, err)
		t.Cleanup(func() { log.Close() })
		cmd.Stdout, cmd.Stderr = log, log
		return cmd
	}
	sim := start(nil, "usr/bin/ibsim", "-s", filepath.Join(dir, "net"))
	in, err := sim.StdinPipe() // stays open: at its end ibsim takes a whole CPU
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() {
		sim.Process.Kill()
		sim.Wait()
		in.Close()
	})
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	says := func(file, want string) {
		assert.Eventually(t, func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, file))
			return strings.Contains(string(text), want)
		}, 2*time.Minute, 20*time.Millisecond, "%s does not say %q", file, want)
	}
	says("ibsim.out", "sim>")
	s.env = append(s.env, "LD_PRELOAD="+filepath.Join(libraries, "umad2sim/libumad2sim.so"))
	osm := start([]string{"SIM_HOST=" + s.host(f.SM.Node), "LD_PRELOAD=" + filepath.Join(libraries, "umad2sim/libumad2sim.so")},
		"usr/sbin/opensm", "-f", filepath.Join(dir, "opensm.log"))
	require.NoError(t, osm.Start())
	t.Cleanup(func() {
		osm.Process.Kill()
		osm.Wait()
	})
	says("opensm.out", "Entering MASTER state")
	client := f.Host("dgx01")[1]
	require.Eventually(t, func() bool {
		o := s.tool(client, "iblinkinfo", "-l")
		return o.code == 0 && strings.Contains(o.stdout, " Active/") && !strings.Contains(o.stdout, " Init") && !strings.Contains(o.stdout, "Armed/")
	}, 3*time.Minute, 100*time.Millisecond, "opensm has not made all ports active")
	return s
}

func (s *simulator) host(n *fabric.Node) string { return fmt.Sprintf("H-%016x", n.GUID) }

// tool runs a program of infiniband-diags on a node of the simulator.
func (s *simulator) tool(on *fabric.Node, name string, args ...string) outcome {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(diags(s.t), "usr/sbin", name), args...)
	cmd.Dir, cmd.Env = s.t.TempDir(), append(slices.Clone(s.env), "SIM_HOST="+s.host(on))
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	timer := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	cmd.Run()
	return outcome{cmd.String(), out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

var (
	lidWords = regexp.MustCompile(`\blid \d+(-\d+)?`)
	lidCells = regexp.MustCompile(`(" +|\d  +)\d+( +\d+\[)`)
	lidPorts = regexp.MustCompile(`\b(CA|SW)( +)\d+ `)
	linkRows = regexp.MustCompile(`(^ +|> +)\d+( +\d+\[)`)
	couldBe  = regexp.MustCompile(`\( *(Could be [^)]*)?\)$`) // ibsim's ports can do widths that today's cannot
	lidTitle = regexp.MustCompile(`Lid \d+|\(Lid \d+`)
	lidRange = regexp.MustCompile(`\[0x0-0x[0-9a-f]+\]`)
)

// unnumbered takes LIDs out of the output of a tool: opensm gives out others than our subnet manager. The lines are sorted,
// because the order of discovery may differ.
func unnumbered(o outcome) []string {
	var out []string
	for _, line := range o.records() {
		line = lidWords.ReplaceAllString(line, "lid N")
		line = lidCells.ReplaceAllString(line, "${1}N$2")
		line = linkRows.ReplaceAllString(line, "${1}N$2")
		line = couldBe.ReplaceAllString(lidPorts.ReplaceAllString(line, "$1 N "), "()")
		line = lidRange.ReplaceAllString(lidTitle.ReplaceAllString(line, "Lid N"), "[range]")
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// TestInfinibandOracle: what the tools print of a fabric is what they print of the same fabric in ibsim with opensm.
func TestInfinibandOracle(t *testing.T) {
	t.Parallel()
	d := fabric.Description{Hosts: hostsOf(3, 2, 0x101b, fabric.HDR), SM: "dgx01 mlx5_0",
		Layout: fabric.Layout{Preset: "rail-optimised", Radix: 8}}
	ours := newSubnet(t, d)
	f, err := fabric.New(d)
	require.NoError(t, err)
	sim := simulate(t, f)
	client := f.Host("dgx01")[1] // ibsim lets one process at a time have a node, and opensm has the first adapter's
	at := []string{"-C", "mlx5_1"}

	lidOf := func(o func(name string, args ...string) outcome, guid uint64) string {
		out := o("smpquery", "-G", "PI", fmt.Sprintf("%#x", guid)).succeeds(t)
		m := regexp.MustCompile(`\nLid:\.+(\d+)`).FindStringSubmatch(out.stdout)
		require.Len(t, m, 2, out.stdout)
		return m[1]
	}
	here := func(name string, args ...string) outcome {
		return ours.tool(name, append(slices.Clone(at), args...)...)
	}
	there := func(name string, args ...string) outcome { return sim.tool(client, name, args...) }

	for _, c := range [][]string{{"ibnetdiscover"}, {"ibnetdiscover", "-p"}, {"ibnetdiscover", "-l"}, {"iblinkinfo", "-l"}, {"iblinkinfo"}, {"ibqueryerrors"}} {
		want, got := there(c[0], c[1:]...).succeeds(t), here(c[0], c[1:]...).succeeds(t)
		assert.NotEmpty(t, unnumbered(got), "%v", c)
		assert.Equal(t, unnumbered(want), unnumbered(got), "%v", c)
	}

	// One question at a time, to each node, by the LID that it has on either side.
	same := func(fields string, c ...string) {
		pick := regexp.MustCompile(`(?m)^(` + fields + `):.*`)
		for _, n := range f.Nodes {
			guid := n.GUID
			if n.Kind == fabric.CA {
				guid = n.Ports[1].GUID
			}
			a := append(slices.Clone(c[1:]), lidOf(there, guid))
			b := append(slices.Clone(c[1:]), lidOf(here, guid))
			want, got := there(c[0], a...), here(c[0], b...)
			assert.Equal(t, want.code, got.code, "%v of %s", c, n.Description)
			assert.Equal(t, pick.FindAllString(want.stdout, -1), pick.FindAllString(got.stdout, -1), "%v of %s", c, n.Description)
		}
	}
	same("BaseVers|ClassVers|NodeType|NumPorts|SystemGuid|Guid|PortGuid|DevId|VendorId", "smpquery", "NI")
	same("Node Description", "smpquery", "ND")
	same("EnhancedPort0|LifeTime|LinearFdbTop|StateChange", "smpquery", "SI")
	same("GidPrefix|LinkState|PhysLinkState|LinkWidthActive|LinkDownDefState|LMC|LinkSpeedExtActive|LinkSpeedExtSupported|LinkSpeedExtEnabled", "smpquery", "PI")
	same("PortSelect|CounterSelect|SymbolErrorCounter", "perfquery") // an adapter has no port 0: both refuse

	// Ways are as long as opensm's, and lead from and to the same ports.
	hops := func(o func(name string, args ...string) outcome, from, to *fabric.Node) (int, string, string) {
		lines := o("ibtracert", lidOf(o, from.Ports[1].GUID), lidOf(o, to.Ports[1].GUID)).succeeds(t).records()
		return len(lines), lidWords.ReplaceAllString(lines[0], ""), lidWords.ReplaceAllString(lines[len(lines)-1], "")
	}
	for _, to := range []*fabric.Node{f.Host("dgx02")[1], f.Host("dgx03")[0]} {
		n1, from1, to1 := hops(there, client, to)
		n2, from2, to2 := hops(here, client, to)
		assert.Equal(t, []any{n1, from1, to1}, []any{n2, from2, to2})
	}
	for _, n := range f.Nodes {
		if n.Kind == fabric.Switch {
			want, got := there("ibroute", lidOf(there, n.GUID)).succeeds(t).records(), here("ibroute", lidOf(here, n.GUID)).succeeds(t).records()
			assert.Equal(t, want[len(want)-1], got[len(got)-1])
			assert.Len(t, got, len(want))
		}
	}

	// The SA answers registrations and joins alike.
	talk := saConversation(client.Ports[1].GUID, f.Host("dgx02")[0].Ports[1].GUID)
	lid := func(o outcome) string { return regexp.MustCompile(`sm lid (\d+)`).FindStringSubmatch(o.stdout)[1] }
	want := say(t, t.TempDir(), append(slices.Clone(sim.env), "SIM_HOST="+sim.host(client)), "0", lid(there("sminfo")), talk)
	got := say(t, t.TempDir(), append(environ(), ours.env...), "1", lid(here("sminfo")), talk)
	for i := range talk {
		assert.Equal(t, talk[i].said(want[i]), talk[i].said(got[i]), talk[i].name)
	}

	// The same questions have no answer.
	for _, c := range [][]string{{"smpquery", "-D", "NI", "0,1,8"}, {"smpquery", "-D", "SI", "0"}, {"smpquery", "NI", "999"}, {"perfquery", "999", "1"}} {
		want, got := there(c[0], c[1:]...), here(c[0], c[1:]...)
		assert.Equal(t, want.code, got.code, "%v", c)
		assert.NotZero(t, got.code, "%v", c)
	}
}
