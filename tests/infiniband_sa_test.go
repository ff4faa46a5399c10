package tests

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
)

// saRequest is a line for the program sa of testdata.
type saRequest struct {
	name              string
	method, attribute int
	mask, key         uint64
	record            string
}

func (r saRequest) line() string {
	return fmt.Sprintf("%x %x 0 %x %x %s\n", r.method, r.attribute, r.mask, r.key, r.record)
}

// Methods and attributes of the SA, and bits of the masks of their records.
const (
	saGet, saSet, saGetTable, saGetMulti, saDelete = 1, 2, 0x12, 0x14, 0x15
	saService, saMember, saMultiPath               = 0x31, 0x38, 0x3a

	joins   = 1<<0 | 1<<1 | 1<<16
	creates = joins | 1<<2 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<6 | 1<<7 | 1<<12 | 1<<13
)

// serviceOf is a service record: its id, the GID of a port, its P_Key, lease and name.
func serviceOf(id, guid uint64, pkey uint16, lease uint32, name string) string {
	return fmt.Sprintf("%016x%016x%016x%04x0000%08x%032x%x%s", id, uint64(fabric.Prefix), guid, pkey, lease, 0, name, strings.Repeat("00", 64-len(name)))
}

// memberOf is a member record: the multicast GID, the GID of a port, the Q_Key, the P_Key and the scope and state.
func memberOf(mgid string, guid uint64, qkey uint32, pkey uint16, state byte) string {
	const mtu, rate = 2<<6 | 4, 2<<6 | 3 // exactly 2048 bytes and 10 Gb/s, if the mask has them
	return fmt.Sprintf("%s%016x%016x%08x0000%02x00%04x%02x00%08x%02x000000", mgid, uint64(fabric.Prefix), guid, qkey, mtu, pkey, rate, 0, state)
}

// saConversation is what a program may say to the SA about services and groups. first and second are GUIDs of ports.
func saConversation(first, second uint64) []saRequest {
	const group, other = "ff12000000000000000000000000abcd", "ff12000000000000000000000000abce"
	const named = 1<<0 | 1<<1 | 1<<2
	const sr = named | 1<<4 | 1<<6
	unknown := uint64(0x1234)
	return []saRequest{
		{"a service", saSet, saService, sr, 0, serviceOf(7, first, 0xffff, 1000, "lustre")},
		{"another of the port", saSet, saService, sr, 0, serviceOf(8, first, 0xffff, 1000, "lustre")},
		{"without a lease", saSet, saService, named, 0, serviceOf(9, second, 0xffff, 0, "")},
		{"without a GID", saSet, saService, 1, 0, serviceOf(9, second, 0xffff, 0, "")},
		{"one by its id", saGet, saService, 1, 0, serviceOf(7, 0, 0, 0, "")},
		{"one of several", saGet, saService, 1 << 6, 0, serviceOf(0, 0, 0, 0, "lustre")},
		{"of no id", saGet, saService, 1, 0, serviceOf(99, 0, 0, 0, "")},
		{"changed", saSet, saService, sr, 0, serviceOf(7, first, 0xffff, 1000, "nfs")},
		{"deleted", saDelete, saService, named, 0, serviceOf(7, first, 0xffff, 0, "")},
		{"deleted again", saDelete, saService, named, 0, serviceOf(7, first, 0xffff, 0, "")},
		{"gone", saGet, saService, 1, 0, serviceOf(7, 0, 0, 0, "")},
		{"joining what is not there", saSet, saMember, joins, 0, memberOf(group, first, 0, 0, 0x21)},
		{"a new group", saSet, saMember, creates, 0, memberOf(group, first, 0x11, 0xffff, 0x21)},
		{"joining it", saSet, saMember, joins, 0, memberOf(group, second, 0, 0, 0x21)},
		{"as a sender only", saSet, saMember, joins, 0, memberOf(group, second, 0, 0, 0x24)},
		{"with another Q_Key", saSet, saMember, joins | 1<<2, 0, memberOf(group, second, 0x12, 0, 0x21)},
		{"of an unknown port", saSet, saMember, joins, 0, memberOf(group, unknown, 0, 0, 0x21)},
		{"without a state", saSet, saMember, 1 | 1<<1, 0, memberOf(group, second, 0, 0, 0x21)},
		{"a second group", saSet, saMember, creates, 0, memberOf(other, second, 0x22, 0xffff, 0x21)},
		{"a group for senders only", saSet, saMember, creates, 0, memberOf("ff12000000000000000000000000abcf", second, 0x22, 0xffff, 0x24)},
		{"its record", saGet, saMember, 1, 0, memberOf(group, 0, 0, 0, 0)},
		{"leaving as a sender", saDelete, saMember, joins, 0, memberOf(group, second, 0, 0, 0x24)},
		{"leaving", saDelete, saMember, joins, 0, memberOf(group, second, 0, 0, 0x21)},
		{"leaving again", saDelete, saMember, joins, 0, memberOf(group, second, 0, 0, 0x21)},
		{"leaving what is not there", saDelete, saMember, joins, 0, memberOf("ff120000000000000000000000000bad", second, 0, 0, 0x21)},
		{"the last leaves", saDelete, saMember, joins, 0, memberOf(group, first, 0, 0, 0x21)},
		{"the group is gone", saGet, saMember, 1, 0, memberOf(group, 0, 0, 0, 0)},
		{"the second leaves", saDelete, saMember, joins, 0, memberOf(other, second, 0, 0, 0x21)},
	}
}

// said is what matters of an answer: the method, the status and, without an error, the record up to a service's data, where ibsim
// leaves bytes of its own. Another subnet manager may give a group another LID.
func (r saRequest) said(line string) string {
	const head, lid = len("81 0000 "), 2 * 36
	record := map[int]int{saService: 2 * 112, saMember: 2 * 52}[r.attribute]
	switch {
	case len(line) < head+record, line[3:7] != "0000":
		return line[:min(head, len(line))]
	case r.attribute == saMember:
		return line[:head+lid] + "LID " + line[head+lid+4:head+record]
	}
	return line[:head+record]
}

// say sends requests by a command that the program sa begins, and returns what is answered.
func say(t *testing.T, dir string, env []string, device, lid string, requests []saRequest) []string {
	t.Helper()
	cmd := exec.Command(ibProgram(t, "sa"), device, lid)
	var text, complaints strings.Builder
	for _, r := range requests {
		text.WriteString(r.line())
	}
	var out strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, env, strings.NewReader(text.String()), &out, &complaints
	require.NoError(t, cmd.Run(), "%s after\n%s", &complaints, &out)
	lines := slices.Collect(strings.Lines(out.String()))
	require.Len(t, lines, len(requests))
	return lines
}

// TestInfinibandServices: programs register services, join multicast groups and ask for many paths at once; saquery shows the
// services and groups, and the switches' tables have the ports of the groups.
func TestInfinibandServices(t *testing.T) {
	t.Parallel()
	s := newSubnet(t, fabric.Description{Hosts: hostsOf(3, 2, 0x1021, fabric.NDR), Layout: fabric.Layout{Preset: "rail-optimised"}})
	var ports []*fabric.Port
	s.local.Do(func(f *fabric.Fabric) { ports = slices.Concat(f.UMAD("dgx01"), f.UMAD("dgx02"), f.UMAD("dgx03")) })
	sa := func(requests ...saRequest) []string {
		t.Helper()
		return say(t, t.TempDir(), append(environ(), s.env...), "0", "1", requests)
	}
	const group, named = "ff120000000000000000000000001234", 1<<0 | 1<<1 | 1<<2
	for _, line := range sa(
		saRequest{"", saSet, saService, named | 1<<4 | 1<<6, 0, serviceOf(7, ports[0].GUID, 0xffff, 1000, "lustre")},
		saRequest{"", saSet, saService, named | 1<<4 | 1<<6, 0, serviceOf(8, ports[1].GUID, 0xffff, 0, "short")},
		saRequest{"", saSet, saMember, creates, 0, memberOf(group, ports[0].GUID, 0x11, 0xffff, 0x21)},
		saRequest{"", saSet, saMember, joins, 0, memberOf(group, ports[2].GUID, 0, 0, 0x21)}) {
		assert.Regexp(t, "^81 0000 ", line)
	}
	out := s.tool("saquery", "SR").succeeds(t).stdout
	assert.Equal(t, 1, strings.Count(out, "ServiceRecord dump:"), "a lease is over\n%s", out)
	assert.Contains(t, out, "ServiceName.............lustre\n")
	assert.Equal(t, 4, strings.Count(s.tool("saquery", "MCMR").succeeds(t).stdout, "Member Record dump:"), "three of IPoIB and one")
	out = s.tool("saquery", "--smkey", "1", "-m", "0xc003").stdout
	assert.Regexp(t, `(?s)dgx01 mlx5_0.*dgx02 mlx5_0`, out)
	assert.NotContains(t, out, "dgx03")
	// The group has two ports on one leaf, and the leaf's way to the subnet manager if that is elsewhere.
	s.local.Do(func(f *fabric.Fabric) {
		leaf := ports[0].Remote.Node.Ports[0]
		require.Same(t, f.SM, leaf)
	})
	out = s.tool("saquery", "MFTR", "1/0/0").succeeds(t).stdout
	assert.Regexp(t, `0xC003\s+0x6\b|0x0006`, out)

	// 40 sources are more than one datagram holds, and their paths are more than one holds.
	record := fmt.Sprintf("%030x%02x%02x%014x", 0, 40, 3, 0)
	for i := range 40 {
		record += fmt.Sprintf("%016x%016x", uint64(fabric.Prefix), ports[i%6].GUID)
	}
	for i := range 3 {
		record += fmt.Sprintf("%016x%016x", uint64(fabric.Prefix), ports[2*i].GUID)
	}
	many := sa(saRequest{"", saGetMulti, saMultiPath, 1<<19 | 1<<20, 0, record},
		saRequest{"", saGetMulti, saMultiPath, 1<<19 | 1<<20, 0, record[:300]}, // without the GIDs that it promises
		saRequest{"", saGet, saMultiPath, 1<<19 | 1<<20, 0, record[:300]},
		saRequest{"", saSet, 0x11, 0, 0, "00"}, saRequest{"", 0x33, 0x11, 0, 0, "00"})
	require.Regexp(t, "^94 0000 ", many[0])
	assert.Len(t, strings.TrimSpace(many[0]), len("94 0000 ")+2*64*120, "a record of 64 bytes for each pair")
	assert.Contains(t, many[0], fmt.Sprintf("%016x%016x%016x%016x%04x%04x", uint64(fabric.Prefix), ports[4].GUID, uint64(fabric.Prefix), ports[3].GUID, ports[4].LID, ports[3].LID))
	for i, want := range []string{"", "^94 0200 ", "^81 000c ", "^81 000c ", "^b3 0008 "} {
		assert.Regexp(t, want, many[i])
	}

	for _, line := range sa(saRequest{"", saDelete, saService, named, 0, serviceOf(7, ports[0].GUID, 0xffff, 0, "")},
		saRequest{"", saDelete, saMember, joins, 0, memberOf(group, ports[0].GUID, 0, 0, 0x21)},
		saRequest{"", saDelete, saMember, joins, 0, memberOf(group, ports[2].GUID, 0, 0, 0x21)}) {
		assert.Regexp(t, "^95 0000 ", line)
	}
	assert.NotContains(t, s.tool("saquery", "SR").succeeds(t).stdout, "ServiceRecord dump:")
	assert.Equal(t, 3, strings.Count(s.tool("saquery", "MCMR").succeeds(t).stdout, "Member Record dump:"))
	assert.NotContains(t, s.tool("saquery", "IIR").succeeds(t).stdout, "dump:")
}
