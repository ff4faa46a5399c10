package fabric

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFaults(t *testing.T) {
	f := build(t, Description{Hosts: hosts(4, 2), Layout: Layout{Preset: "rail-optimised"}})
	now := time.Unix(1e9, 0)
	hca := f.Host("dgx01")[0].Ports[1]
	leaf := hca.Remote
	other := f.Host("dgx02")[0].Ports[1]
	require.NotNil(t, f.Reach(other, hca.LID))

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: LinkDown, Target: "mlx5_0", Since: now}}, now))
	for _, p := range []*Port{hca, leaf} {
		assert.Equal(t, Down, p.State)
		assert.Equal(t, Polling, p.Phys)
		assert.Equal(t, uint64(1), f.Read(p, LinkDowned, now))
	}
	assert.Equal(t, uint16(0xffff), hca.ShownLID())
	assert.Equal(t, "10 Gb/sec (4X SDR)", hca.Rate())
	assert.Nil(t, f.Reach(other, hca.LID))

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: WrongRate, Target: "dgx01 mlx5_0/1", Width: 1, Speed: EDR}}, now))
	assert.Equal(t, "25 Gb/sec (1X EDR)", hca.Rate())
	assert.Equal(t, "25 Gb/sec (1X EDR)", leaf.Rate())
	assert.Equal(t, uint64(1), f.Read(hca, LinkDowned, now))

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: SymbolErrors, Target: "mlx5_0", PerSecond: 100, Since: now}}, now))
	assert.Equal(t, "400 Gb/sec (4X NDR)", hca.Rate())
	now = now.Add(10 * time.Second)
	assert.Equal(t, uint64(1000), f.Read(hca, SymbolErrorCounter, now))
	f.Reset(hca, SymbolErrorCounter, now)
	now = now.Add(time.Second)
	assert.Equal(t, uint64(100), f.Read(hca, SymbolErrorCounter, now))
	require.NoError(t, f.SetFaults("dgx01", nil, now))
	now = now.Add(time.Second)
	assert.Equal(t, uint64(100), f.Read(hca, SymbolErrorCounter, now), "the fault is over, the count stays")

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: DeadSwitch, Target: "su01-rail0"}}, now))
	assert.Equal(t, Down, hca.State)
	assert.Equal(t, Active, f.Host("dgx01")[1].Ports[1].State)
	require.NoError(t, f.SetFaults("dgx01", nil, now))
	assert.Equal(t, Active, hca.State)
	assert.NotNil(t, f.Reach(other, hca.LID))

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: Flapping, Target: "mlx5_0", Period: 4 * time.Second, Since: now}}, now))
	assert.Equal(t, Down, hca.State)
	_, next := f.Step(now.Add(time.Second))
	assert.Equal(t, now.Add(2*time.Second), next)
	changed, _ := f.Step(next)
	assert.True(t, changed)
	assert.Equal(t, Active, hca.State)
	changed, _ = f.Step(now.Add(4 * time.Second))
	assert.True(t, changed)
	assert.Equal(t, Down, hca.State)
}

func TestWrongFaults(t *testing.T) {
	f := build(t, Description{Hosts: hosts(1, 1)})
	for want, x := range map[string]Fault{
		`no node "mlx5_9"`:           {Kind: LinkDown, Target: "mlx5_9"},
		`has no port "2"`:            {Kind: LinkDown, Target: "mlx5_0/2"},
		`"mlx5_0" is no switch`:      {Kind: DeadSwitch, Target: "mlx5_0"},
		`name one of its ports`:      {Kind: LinkDown, Target: "leaf01"},
		`"flood" is no fault`:        {Kind: "flood", Target: "mlx5_0"},
		`cannot be below zero`:       {Kind: Flapping, Target: "mlx5_0", Period: -1},
		`no node "MF0;x:MQM9700/U1"`: {Kind: LinkDown, Target: "MF0;x:MQM9700/U1/3"},
	} {
		assert.ErrorContains(t, f.SetFaults("dgx01", []Fault{x}, time.Now()), want)
	}
	assert.NoError(t, f.SetFaults("", []Fault{{Kind: LinkDown, Target: "MF0;leaf01:MQM9700/U1/1"}}, time.Now()))
	assert.Equal(t, Down, f.Host("dgx01")[0].Ports[1].State)
}

// TestAway: the cables of a host that has left look pulled.
func TestAway(t *testing.T) {
	f := build(t, Description{Hosts: hosts(2, 1)})
	there, gone := f.Host("dgx01")[0].Ports[1], f.Host("dgx02")[0].Ports[1]
	f.SetAway("dgx02", true)
	assert.Equal(t, Down, gone.Remote.State)
	assert.Nil(t, f.Reach(there, gone.LID))
	f.SetAway("dgx02", false)
	assert.NotNil(t, f.Reach(there, gone.LID))
}

// TestFaultsTogether: faults of one port do not undo each other, and a link is as slow as the slowest of its faults.
func TestFaultsTogether(t *testing.T) {
	f := build(t, Description{Hosts: hosts(2, 2)})
	p := f.Host("dgx01")[0].Ports[1]
	now := time.Unix(1e9, 0)
	up := now.Add(3 * time.Second) // when the flapping link is up
	flapping := Fault{Kind: Flapping, Target: "mlx5_0", Period: 4 * time.Second, Since: now}
	require.NoError(t, f.SetFaults("dgx01", []Fault{flapping, {Kind: LinkDown, Target: "mlx5_0"}}, now))
	f.Step(up)
	assert.Equal(t, Down, p.State, "the cable is out whether or not the link flaps")
	require.NoError(t, f.SetFaults("dgx01", []Fault{flapping}, up))
	assert.Equal(t, Active, p.State)
	_, next := f.Step(up)
	assert.Equal(t, now.Add(4*time.Second), next)

	require.NoError(t, f.SetFaults("dgx01", []Fault{{Kind: WrongRate, Target: "mlx5_0", Speed: EDR}, {Kind: WrongRate, Target: "mlx5_0", Width: 1},
		{Kind: WrongRate, Target: "mlx5_0", Speed: HDR}}, up))
	assert.Equal(t, "25 Gb/sec (1X EDR)", p.Rate())

	symbols := []Fault{{Kind: SymbolErrors, Target: "mlx5_0", PerSecond: 0.5, Since: now}}
	for at := range 9 { // others come and go meanwhile
		require.NoError(t, f.SetFaults("dgx01", append(symbols, Fault{Kind: LinkDown, Target: "mlx5_1"})[:1+at%2], now.Add(time.Duration(at)*time.Second)))
	}
	assert.Equal(t, uint64(5), f.Read(p, SymbolErrorCounter, now.Add(10*time.Second)))
}

// TestNames: what a fault's target is called leads back to it.
func TestNames(t *testing.T) {
	f := build(t, Description{Hosts: hosts(3, 2), Layout: Layout{Preset: "fat-tree", Radix: 4}})
	names := f.Names("dgx01")
	assert.Len(t, names, len(f.Nodes))
	assert.Equal(t, []string{"mlx5_0", "mlx5_1"}, names[:2])
	assert.Contains(t, names, "dgx02 mlx5_0")
	seen := map[*Node]bool{}
	for _, name := range names {
		n, _, err := f.Find("dgx01", name)
		require.NoError(t, err, name)
		assert.False(t, seen[n], name)
		seen[n] = true
	}
	for _, n := range f.Nodes {
		n.Description = "Quantum-2 Mellanox Technologies"
	}
	assert.Regexp(t, `^0x[0-9a-f]{16}$`, f.Name("dgx01", f.Nodes[1]), "a description that others have names nobody")
}

// TestCheck: a fault that would change nothing is an error.
func TestCheck(t *testing.T) {
	h := hosts(1, 2)
	h[0].HCAs[1].Ports[0].LinkLayer = Ethernet
	f := build(t, Description{Hosts: h})
	for want, x := range map[string]Fault{
		"no cable is in port 5":       {Kind: LinkDown, Target: "leaf01/5"},
		"no faster without the fault": {Kind: WrongRate, Target: "mlx5_0", Speed: NDR, Width: 4},
		"cannot have a link of 12":    {Kind: WrongRate, Target: "mlx5_0", Speed: EDR, Width: 12},
	} {
		assert.ErrorContains(t, f.Check("dgx01", x), want)
	}
	slow := Fault{Kind: WrongRate, Target: "mlx5_1", Speed: EDR}
	assert.NoError(t, f.Check("dgx01", slow))
	require.NoError(t, f.SetFaults("dgx01", []Fault{slow}, time.Now()))
	assert.Equal(t, "100 Gb/sec (4X EDR)", f.Host("dgx01")[1].Ports[1].Rate())
}
