package tests

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smiDrivers are the nvidia-smi versions that are tested in full, and smiBoards the boards for that.
var (
	smiDrivers = []int{470, 535, 550, 555}
	smiBoards  = []string{"h100", "a100-sxm4-40gb", "gb200", "t4"}
)

// machine is a board together with the nvidia-smi of a driver.
type machine struct {
	driver  int
	board   *profiles.Board
	program string
	env     []string
}

// forMachines runs a test for every driver on every board.
func forMachines(t *testing.T, test func(t *testing.T, m machine)) {
	for _, driver := range smiDrivers {
		for _, name := range smiBoards {
			t.Run(strconv.Itoa(driver)+"/"+name, func(t *testing.T) {
				t.Parallel()
				b, err := profiles.Shipped(name)
				require.NoError(t, err)
				test(t, newMachine(t, driver, b, "NVMLFAB_PROFILE="+name))
			})
		}
	}
}

// newMachine is a machine with a board that an environment variable selects.
func newMachine(t *testing.T, driver int, b *profiles.Board, env ...string) machine {
	t.Helper()
	env = append([]string{"LC_ALL=C", "TZ=UTC"}, env...)
	return machine{driver, b, fetched(t, "nvidia-smi-"+strconv.Itoa(driver), "nvidia-smi"), env}
}

// profiled is a machine with a board from a profile file.
func profiled(t *testing.T, driver int, profile string) machine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.yaml")
	require.NoError(t, os.WriteFile(path, []byte(profile), 0o644))
	b, err := profiles.Load(path)
	require.NoError(t, err)
	return newMachine(t, driver, b, "MOCK_NVML_CONFIG="+path)
}

// run runs nvidia-smi on the machine.
func (m machine) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return ends(t, "", append(with(library, "NVMLFAB_STATE_DIR="+stateDir(t)), m.env...), m.program, args...)
}

// hangs is how long a program may run before it counts as hung. On a machine that is not busy it needs seconds at most.
const hangs = 5 * time.Minute

// ends runs a program that must neither hang nor crash, nor print to standard error.
func ends(t *testing.T, dir string, env []string, name string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(environ(), env...), time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s hangs; so far it printed\n%s%s", cmd, &stdout, &stderr)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.True(t, cmd.ProcessState.Exited(), "%s: %s\n%s%s", cmd, cmd.ProcessState, &stdout, &stderr)
	require.Empty(t, stderr.String(), "%s", cmd)
	return outcome{cmd.String(), stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// table reads the output of --format=csv: the header, and the rows.
func (o outcome) table(t *testing.T) (header []string, rows [][]string) {
	t.Helper()
	reader := csv.NewReader(strings.NewReader(o.stdout))
	reader.TrimLeadingSpace = true
	all, err := reader.ReadAll()
	require.NoError(t, err, "%s", o.stdout)
	require.NotEmpty(t, all)
	return all[0], all[1:]
}

// sections reads the output of -q for each GPU: values by the path of their names, Section/Subsection/Name.
func (o outcome) sections() []map[string]string {
	var gpus []map[string]string
	var path []string
	for _, line := range o.lines() {
		name, value, _ := strings.Cut(strings.TrimLeft(line, " "), ": ")
		name = strings.TrimSuffix(strings.TrimSpace(name), " :")
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 4
		switch {
		case depth == 0 && strings.HasPrefix(line, "GPU "):
			gpus = append(gpus, map[string]string{"": strings.TrimPrefix(line, "GPU ")})
		case depth > 0 && len(gpus) > 0:
			path = append(path[:min(depth-1, len(path))], name)
			gpus[len(gpus)-1][strings.Join(path, "/")] = strings.TrimSpace(value)
		}
	}
	return gpus
}

// elements reads the output of -q -x, which must be well-formed: the leaves of the log, and those of each GPU by path.
func (o outcome) elements(t *testing.T) (log map[string]string, gpus []map[string]string) {
	t.Helper()
	var top element
	require.NoError(t, xml.Unmarshal([]byte(o.stdout), &top), "%s", o.stdout)
	require.Equal(t, "nvidia_smi_log", top.XMLName.Local)
	leaves := func(e element) map[string]string {
		var d document
		d.add(e, "")
		found := map[string]string{}
		for _, l := range d.leaves {
			found[l.path] = l.value
		}
		return found
	}
	for _, child := range top.Children {
		if child.XMLName.Local == "gpu" {
			gpus = append(gpus, leaves(child))
		}
	}
	return leaves(top), gpus
}

// ownFields are the fields that the help of --query-gpu lists.
func (m machine) ownFields(t *testing.T) []string {
	t.Helper()
	help := m.run(t, "--help-query-gpu").succeeds(t).stdout
	var fields []string
	for _, found := range regexp.MustCompile(`(?m)^$\n"([\w.]+)"`).FindAllStringSubmatch(help, -1) {
		fields = append(fields, found[1])
	}
	assert.Greater(t, len(fields), 100)
	return fields
}
