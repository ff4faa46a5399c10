//go:build guest

package kernel

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// enforcing are the parameters of a module that limits, and accounts for every page. The driver reads its arguments in
// place, since copies are ten times slower when the kernel checks every allocation. private uses copies, which is the
// module's default.
var (
	enforcing = append(private[:len(private):len(private)], "private_arguments=0")
	private   = []string{"dry_run=0", "allow_enforce=1", "memory_alloc_min_bytes=1"}
)

// withDriver loads the personality and vgpu, with these parameters.
func withDriver(t *testing.T, parameters ...string) *vgpuctl.Device {
	t.Helper()
	load(t, "fakegpu", "nvidia=1", someGPUs)
	return withVgpu(t, parameters...)
}

// withVgpu loads vgpu and opens its device.
func withVgpu(t *testing.T, parameters ...string) *vgpuctl.Device {
	t.Helper()
	load(t, "vgpu", parameters...)
	return openVgpuctl(t)
}

func openVgpuctl(t *testing.T) *vgpuctl.Device {
	t.Helper()
	d, err := vgpuctl.Open()
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func stats(t *testing.T, d *vgpuctl.Device) vgpuctl.Stats {
	t.Helper()
	s, err := d.Stats()
	require.NoError(t, err)
	return s
}

// taskBytes is the device memory of a process; 0 if the module does not know the process.
func taskBytes(t *testing.T, d *vgpuctl.Device, tgid int) uint64 {
	t.Helper()
	u, err := d.TaskUsage(uint32(tgid), vgpuctl.MinorAny)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return u.DeviceBytes
}

func cgroupBytes(t *testing.T, d *vgpuctl.Device, id uint64) uint64 {
	t.Helper()
	u, err := d.CgroupUsage(id, vgpuctl.MinorAny)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return u.DeviceBytes
}

// hangs is how long a test waits for something that should happen at once. The virtual machine is emulated, and the
// machine around it may be busy.
const hangs = 2 * time.Minute

// eventually waits for a condition that should hold soon.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < hangs; time.Sleep(10 * time.Millisecond) {
		if condition() {
			return
		}
	}
	require.Fail(t, "it never came to pass: "+what)
}

// ---- debugfs -------------------------------------------------------------------------------------------------------

// table reads a file of the module in debugfs: a line with the names of the columns, and a line for each row.
func table(t *testing.T, name string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile("/sys/kernel/debug/vgpu/" + name)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	columns := strings.Fields(lines[0])
	var rows []map[string]string
	for _, line := range lines[1:] {
		fields := strings.SplitN(line, " ", len(columns)) // the last column may contain blanks
		require.Len(t, fields, len(columns), "%s: %q", name, line)
		row := map[string]string{}
		for i, c := range columns {
			row[c] = fields[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// rowOf is the only row with that value in the column.
func rowOf(t *testing.T, name, column string, value any) map[string]string {
	t.Helper()
	var found []map[string]string
	for _, row := range table(t, name) {
		if row[column] == fmt.Sprint(value) {
			found = append(found, row)
		}
	}
	require.Len(t, found, 1, "%s with %s %v", name, column, value)
	return found[0]
}

// ---- Events --------------------------------------------------------------------------------------------------------

// listen starts to collect events; the function that it returns gives the events so far.
func listen(t *testing.T) func() []vgpuctl.Event {
	t.Helper()
	d := openVgpuctl(t)
	stream, last := d.Events(), stats(t, d).Events
	return func() []vgpuctl.Event {
		var events []vgpuctl.Event
		for now := stats(t, d).Events; last < now; last++ {
			e, lost, err := stream.Next(t.Context())
			require.NoError(t, err)
			require.Zero(t, lost)
			events = append(events, e)
		}
		return events
	}
}

func ofType(events []vgpuctl.Event, kind vgpuctl.EventType) []vgpuctl.Event {
	var found []vgpuctl.Event
	for _, e := range events {
		if e.Type == kind {
			found = append(found, e)
		}
	}
	return found
}

// ---- Other processes -----------------------------------------------------------------------------------------------

// held is a program that holds memory until it is told to end.
type held struct {
	*exec.Cmd
	bytes uint64 // as the program reports
}

// hold starts an example program in a cgroup ("" for the present one), and waits until it has made all of its
// allocations or failed.
func hold(t *testing.T, dir, program string, args ...string) held {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/"+program, append(args, "100")...)
	if dir != "" {
		inCgroup(t, cmd, dir)
	}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h := held{Cmd: cmd}
	t.Cleanup(h.kill)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "holding "); ok {
			h.bytes, err = strconv.ParseUint(strings.TrimSuffix(n, " bytes"), 10, 64)
			require.NoError(t, err)
			return h
		}
	}
	require.Fail(t, "the program ended early")
	return h
}

func (h held) kill() {
	h.Process.Kill()
	h.Wait()
}
