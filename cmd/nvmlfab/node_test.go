package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// on runs the command on the node of a state directory.
func on(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	return onWith(t, dir, nil, args...)
}

func onWith(t *testing.T, dir string, env []string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), args...)
	cmd.Env = append([]string{"NVMLFAB_STATE_DIR=" + dir}, env...)
	return start(t, cmd)
}

// quietly requires success without a word.
func quietly(t *testing.T, out outcome) {
	t.Helper()
	require.Equal(t, outcome{}, out)
}

// statusOf is what status --output json says.
func statusOf(t *testing.T, args ...string) (s nodeStatus) {
	t.Helper()
	out := nvmlfab(t, append([]string{"status", "--output", "json"}, args...)...)
	require.Zero(t, out.status, out.stderr)
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &s))
	return s
}

func stateOf(t *testing.T, dir string) (s nodeStatus) {
	t.Helper()
	out := on(t, dir, "status", "-o", "json")
	require.Zero(t, out.status, out.stderr)
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &s))
	return s
}

func TestSet(t *testing.T) {
	dir := t.TempDir()
	quietly(t, on(t, dir, "set", "--gpu", "1,3", "thermal.temperature_gpu_c=90", "memory.used_bytes=1048576"))
	quietly(t, on(t, dir, "set", "--gpu", "all", "--for", "1h", "utilization.gpu=7"))
	quietly(t, on(t, dir, "set", "system.cuda_version=12.4", "nvlink.defaults.state=inactive"))
	s := stateOf(t, dir)
	require.Len(t, s.GPUs, 8)
	for _, g := range s.GPUs {
		assert.EqualValues(t, 7, *g.Utilization.GPU)
		assert.Equal(t, g.Index == 1 || g.Index == 3, *g.Temperature == 90)
	}
	assert.EqualValues(t, 1<<20, s.GPUs[3].Memory.Used)
	assert.Len(t, s.Set, 1)
	require.Len(t, s.GPUs[3].Set, 2)
	assert.WithinDuration(t, time.Now().Add(time.Hour), *s.GPUs[3].Set[1].Until, time.Hour/2)

	quietly(t, on(t, dir, "set", "--gpu", s.GPUs[3].UUID, "thermal={temperature_gpu_c: 40, temperature_memory_c: N/A}"))
	assert.EqualValues(t, 40, *stateOf(t, dir).GPUs[3].Temperature)
	quietly(t, on(t, dir, "unset", "--gpu", "3", "thermal"))
	assert.EqualValues(t, 32, *stateOf(t, dir).GPUs[3].Temperature)
	assert.Equal(t, "nothing was set: thermal\n", on(t, dir, "unset", "--gpu", "3", "thermal").stdout)
	quietly(t, on(t, dir, "unset", "--all"))
	s = stateOf(t, dir)
	assert.Empty(t, s.Set)
	assert.Empty(t, s.GPUs[1].Set)

	table := on(t, dir, "status").stdout
	assert.Contains(t, table, "GPU  NAME ")
	assert.Contains(t, table, "69 / 700 W")
	assert.Equal(t, 10, strings.Count(table, "\n"))
}

// TestNothingIsHalfWritten: whatever is wrong with a command, its exit status says so, one line says what, and the state
// stays as it was to the byte.
func TestNothingIsHalfWritten(t *testing.T) {
	dir := t.TempDir()
	quietly(t, on(t, dir, "set", "--gpu", "0", "utilization.gpu=1"))
	before, err := os.ReadFile(filepath.Join(dir, "state.json"))
	require.NoError(t, err)
	for name, test := range map[string]struct {
		args   []string
		status int
		text   string
	}{
		"no GPU given":           {[]string{"set", "utilization.gpu=2"}, 1, "say which with --gpu"},
		"empty GPU":              {[]string{"set", "--gpu", "", "utilization.gpu=2"}, 1, `"" names no GPU`},
		"empty GPU in a list":    {[]string{"set", "--gpu", "0,", "utilization.gpu=2"}, 1, `"0," names no GPU`},
		"no such GPU":            {[]string{"set", "--gpu", "0,8", "utilization.gpu=2"}, 1, "there is no GPU 8: the node has 8, from 0 to 7"},
		"no such UUID":           {[]string{"set", "--gpu", "GPU-00000000-0000-0000-0000-000000000001", "utilization.gpu=2"}, 1, "there is no GPU GPU-0000"},
		"nonsense for a GPU":     {[]string{"set", "--gpu", "three", "utilization.gpu=2"}, 1, "neither an index nor a UUID"},
		"unknown key":            {[]string{"set", "--gpu", "0", "utilization.gpu=2", "utilization.gpv=2"}, 1, `did you mean "utilization.gpu"?`},
		"out of range":           {[]string{"set", "--gpu", "0,1", "utilization.gpu=200"}, 1, "GPU 0: utilization.gpu: 200 is outside 0..100"},
		"wrong type":             {[]string{"set", "--gpu", "0", "utilization.gpu=much"}, 1, "want a whole number"},
		"a fixed key":            {[]string{"set", "--gpu", "0", "uuid=GPU-70bb634a-3c4e-48af-9be7-f38845b0a74f"}, 1, "cannot change while programs run"},
		"impossible together":    {[]string{"set", "--gpu", "0", "memory.used_bytes=900000000000"}, 1, "more than the total"},
		"a key twice":            {[]string{"set", "--gpu", "0", "utilization.gpu=2", "utilization.gpu=3"}, 1, "given twice"},
		"node and GPU":           {[]string{"set", "--gpu", "0", "utilization.gpu=2", "nvlink.defaults.state=inactive"}, 1, "use two commands"},
		"a key of the node":      {[]string{"set", "--gpu", "0", "nvlink.defaults.state=inactive"}, 1, "leave out --gpu"},
		"the driver":             {[]string{"set", "system.driver_version=550.1"}, 1, "cannot change while programs run"},
		"no value":               {[]string{"set", "--gpu", "0", "utilization.gpu="}, 1, "the value is missing"},
		"no key":                 {[]string{"set", "--gpu", "0"}, 2, "expected"},
		"bad time":               {[]string{"set", "--gpu", "0", "--for", "soon", "utilization.gpu=2"}, 2, "want a time such as 30s"},
		"no time":                {[]string{"set", "--gpu", "0", "--for", "0s", "utilization.gpu=2"}, 2, "want a time such as 30s"},
		"a time in the past":     {[]string{"set", "--gpu", "0", "--for=-5s", "utilization.gpu=2"}, 2, "want a time such as 30s"},
		"unset nothing":          {[]string{"unset", "--gpu", "0"}, 1, "say which keys, or --all"},
		"unset both":             {[]string{"unset", "--gpu", "0", "--all", "utilization"}, 1, "leave out either"},
		"unset unknown":          {[]string{"unset", "--gpu", "0", "utilisation"}, 1, `did you mean "utilization`},
		"unknown fault":          {[]string{"fail", "--gpu", "0", "loss"}, 1, `did you mean "lost"?`},
		"fault of nobody":        {[]string{"fail", "lost"}, 1, "say of which with --gpu"},
		"fault of the node":      {[]string{"fail", "--gpu", "0", "driver-not-loaded"}, 1, "leave out --gpu"},
		"fault of no such GPU":   {[]string{"fail", "--gpu", "0,9", "lost"}, 1, "there is no GPU 9"},
		"fault, chance":          {[]string{"fail", "--gpu", "0", "--probability", "2", "lost"}, 1, "want a number from 0 to 1"},
		"fault, calls":           {[]string{"fail", "--gpu", "0", "--after-calls=-1", "lost"}, 1, "want a whole number from 1"},
		"fault, no calls":        {[]string{"fail", "--gpu", "0", "--after-calls", "0", "lost"}, 1, "want a whole number from 1"},
		"fault, seed alone":      {[]string{"fail", "--gpu", "0", "--seed", "1", "lost"}, 1, "give --probability too"},
		"fault that cannot wait": {[]string{"fail", "--gpu", "0", "--after-calls", "1", "xid", "79"}, 1, "happens at once"},
		"xid without number":     {[]string{"fail", "--gpu", "0", "xid"}, 1, "wants the number"},
		"xid 0":                  {[]string{"fail", "--gpu", "0", "xid", "0"}, 1, "there is no Xid 0"},
		"xid, too large":         {[]string{"fail", "--gpu", "0", "xid", "4294967296"}, 1, "want a number from 1 to 4294967295"},
		"event xid 0":            {[]string{"events", "send", "--gpu", "0", "xid", "0"}, 1, "there is no Xid 0"},
		"a name not in UTF-8":    {[]string{"set", "--gpu", "0", "name=a\xffb"}, 1, "is not text in UTF-8"},
		"a name from the right":  {[]string{"set", "--gpu", "0", "name=a\u202eb"}, 1, "changes the direction of text"},
		"a value that is none":   {[]string{"set", "--gpu", "0", "utilization.gpu=&a *a"}, 1, "cannot be read"},
		"xid for a time":         {[]string{"fail", "--gpu", "0", "--for", "3s", "xid", "79"}, 1, "leave out --for"},
		"lost with a number":     {[]string{"fail", "--gpu", "0", "lost", "79"}, 1, "only xid is followed by a number"},
		"count of nothing":       {[]string{"fail", "--gpu", "0", "--count", "3", "lost"}, 1, "counts no errors"},
		"no such link":           {[]string{"fail", "--gpu", "0", "--link", "40", "nvlink-error"}, 1, "there is no link 40"},
		"rate of something else": {[]string{"fail", "--gpu", "0", "--rate", "40", "lost"}, 1, "belong to nvlink-error"},
		"no fabric":              {[]string{"fail", "--gpu", "all", "fabric-nothing"}, 1, "unknown fault"},
		"heal unknown":           {[]string{"heal", "loss"}, 1, `did you mean "lost"?`},
		"heal an event":          {[]string{"heal", "xid"}, 1, "leaves nothing to heal"},
		"heal both":              {[]string{"heal", "--play", "x", "lost"}, 1, "leave out the fault"},
		"heal, id empty":         {[]string{"heal", "--play", ""}, 1, "want the id that nvmlfab play printed"},
		"heal, fault of node":    {[]string{"heal", "--gpu", "0", "driver-not-loaded"}, 1, "leave out --gpu"},
		"reset nobody":           {[]string{"reset"}, 1, "say which GPUs"},
		"event of nobody":        {[]string{"events", "send", "xid", "1"}, 1, "say which GPU"},
		"unknown event":          {[]string{"events", "send", "--gpu", "0", "xed", "1"}, 1, `did you mean "xid"?`},
		"event without data":     {[]string{"events", "send", "--gpu", "0", "xid"}, 1, "wants the number"},
		"process of nobody":      {[]string{"process", "add", "--memory", "1GiB"}, 1, "say on which GPUs"},
		"process, too much":      {[]string{"process", "add", "--gpu", "0", "--memory", "1000GiB"}, 1, "MiB that are free"},
		"process 0":              {[]string{"process", "add", "--gpu", "0", "--pid", "0"}, 1, "no process has the id 0"},
		"process, no unit":       {[]string{"process", "add", "--gpu", "0", "--memory", "10"}, 2, "with its unit"},
		"process, part of a MiB": {[]string{"process", "add", "--gpu", "0", "--memory", "10KiB"}, 1, "multiple of 1MiB"},
		"process, busy":          {[]string{"process", "add", "--gpu", "0", "--sm", "101"}, 1, "101 is outside 0..100"},
		"process, kind":          {[]string{"process", "add", "--gpu", "0", "--type", "X"}, 2, "must be one of"},
		"process to remove":      {[]string{"process", "remove", "7"}, 1, "no added process has the id 7"},
		"processes to remove":    {[]string{"process", "remove"}, 1, "say which processes"},
		"pause without watch":    {[]string{"status", "--every", "1s"}, 1, "give --watch too"},
		"unknown output":         {[]string{"status", "-o", "xml"}, 2, "must be one of"},
		"two nodes":              {[]string{"status", "--root", "a", "--run", "b"}, 2, "can't be used together"},
		"empty root":             {[]string{"set", "--root", "", "--gpu", "0", "utilization.gpu=2"}, 1, "--root is empty"},
		"empty run":              {[]string{"set", "--run", "", "--gpu", "0", "utilization.gpu=2"}, 1, "--run is empty"},
		"unknown run":            {[]string{"status", "--run", "nobody"}, 1, `--run "nobody": no run has`},
		"no such process":        {[]string{"status", "--run", "99999999"}, 1, "there is no process 99999999"},
		"nothing staged":         {[]string{"status", "--root", "/nonexistent"}, 1, "nothing is staged in /nonexistent"},
		"unknown scenario":       {[]string{"play", "thermal-runway"}, 1, `did you mean "thermal-runaway"?`},
		"no scenario":            {[]string{"play"}, 1, "say which scenario"},
		"scenario, speed":        {[]string{"play", "--speed", "0", "thermal-runaway"}, 1, "want a number from 0.001"},
		"scenario, id":           {[]string{"play", "--id", "a:b", "thermal-runaway"}, 1, "--id: want letters"},
		"scenario, no such GPU":  {[]string{"play", "--gpu", "9", "thermal-runaway"}, 1, "--gpu: there is no GPU 9"},
		"scenarios, one GPU":     {[]string{"play", "--list", "--gpu", "0"}, 1, "leave out everything else"},
		"scenario, shown fast":   {[]string{"play", "--show", "--speed", "2", "thermal-runaway"}, 1, "leave out the flags"},
		"scenario, checked fast": {[]string{"play", "--check", "--speed", "2", "thermal-runaway"}, 1, "leave out --speed and --id"},
		"unknown shell":          {[]string{"completion", "csh"}, 1, "want bash, fish, zsh"},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, dir, test.args...).fails(t, test.status, test.text)
			after, err := os.ReadFile(filepath.Join(dir, "state.json"))
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after))
		})
	}
}

// TestStateDirectories: a directory that is missing, is none, may not be written, belongs to another node or is damaged.
func TestStateDirectories(t *testing.T) {
	set := []string{"set", "--gpu", "0", "utilization.gpu=2"}
	nvmlfab(t, set...).fails(t, 1, "which node?")
	missing := filepath.Join(t.TempDir(), "missing")
	on(t, missing, set...).fails(t, 1, "there is no state directory "+missing)
	assert.NoDirExists(t, missing)
	file := write(t, t.TempDir(), "file", "", 0o644)
	on(t, file, set...).fails(t, 1, "is not a directory")

	other := t.TempDir()
	quietly(t, onWith(t, other, []string{"NVMLFAB_PROFILE=t4"}, set...))
	on(t, other, set...).fails(t, 1, "is the state of a node with other GPUs than those of h100")
	on(t, other, "status").fails(t, 1, "is the state of a node with other GPUs")

	damaged := t.TempDir()
	write(t, damaged, "state.json", `{"format":1,"devices":{`, 0o644)
	out := on(t, damaged, "status")
	assert.Zero(t, out.status)
	assert.Contains(t, out.stderr, "state.json")
	out = on(t, damaged, set...)
	assert.Zero(t, out.status)
	assert.Contains(t, out.stderr, "state.json.bad")
	assert.FileExists(t, filepath.Join(damaged, "state.json.bad"))
	assert.EqualValues(t, 2, *stateOf(t, damaged).GPUs[0].Utilization.GPU)

	newer := t.TempDir()
	write(t, newer, "state.json", `{"format":9}`, 0o644)
	on(t, newer, set...).fails(t, 1, "a newer version of nvmlfab wrote it")

	wrong := t.TempDir()
	write(t, wrong, "overrides.yaml", "devices: [{index: 0, utilization: {gpu: 900}}]\n", 0o644)
	on(t, wrong, "status").fails(t, 1, "overrides.yaml:1")
	write(t, wrong, "overrides.yaml", "devices: [{index: 0, utilization: {gpu: 9}}]\n", 0o644)
	assert.EqualValues(t, 9, *stateOf(t, wrong).GPUs[0].Utilization.GPU)
	assert.True(t, stateOf(t, wrong).Overrides)

	// What was set before the profile became another one does not fit it any more.
	changed := t.TempDir()
	profile := func(total int) []string {
		text := fmt.Sprintf("extends: t4\ndevice_defaults: {memory: {total_bytes: %d}}\n", total)
		return []string{"MOCK_NVML_CONFIG=" + write(t, changed, "mine.yaml", text, 0o644)}
	}
	quietly(t, onWith(t, changed, profile(16<<30), "set", "--gpu", "0", "memory.used_bytes=15000000000"))
	quietly(t, onWith(t, changed, profile(16<<30), "fail", "--gpu", "0", "lost"))
	small := profile(8 << 30)
	onWith(t, changed, small, "status").fails(t, 1, "does not fit the profile any more: GPU 0: memory: used and reserved are more than the total; nvmlfab unset --all")
	onWith(t, changed, small, set...).fails(t, 1, "used and reserved are more than the total")
	quietly(t, onWith(t, changed, small, "heal"))
	quietly(t, onWith(t, changed, small, "unset", "--all"))
	quietly(t, onWith(t, changed, small, set...))
	assert.Contains(t, onWith(t, changed, small, "status").stdout, " ok ")

	// A terminal gets no control characters out of a state directory.
	wild := t.TempDir()
	quietly(t, on(t, wild, set...))
	text, err := os.ReadFile(filepath.Join(wild, "state.json"))
	require.NoError(t, err)
	write(t, wild, "state.json", strings.Replace(string(text), `{"utilization.gpu":2}`, `{"utilization.gpu":2},"by":"scenario:\u001b[31m\nx"`, 1), 0o644)
	assert.Contains(t, on(t, wild, "status").stdout, "utilization.gpu=2 (by ?[31m?x)")

	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o555))
	if os.Geteuid() == 0 {
		return
	}
	on(t, closed, set...).fails(t, 1, "permission denied")
}

// TestUnwritable: a user who may not write the directory changes nothing.
func TestUnwritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	quietly(t, on(t, dir, "set", "--gpu", "0", "utilization.gpu=2"))
	program := filepath.Join(dir, "nvmlfab")
	text, err := os.ReadFile(filepath.Join(tree, "bin", "nvmlfab"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, text, 0o755))
	as := func(args ...string) outcome {
		cmd := exec.Command(program, args...)
		cmd.Dir = "/"
		cmd.Env = []string{"NVMLFAB_STATE_DIR=" + dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return start(t, cmd)
	}
	as("set", "--gpu", "0", "utilization.gpu=3").fails(t, 1, "permission denied")
	as("fail", "--gpu", "0", "lost").fails(t, 1, "permission denied")
	assert.Contains(t, as("status").stdout, "2 %")
}

func TestFailAndHeal(t *testing.T) {
	dir := t.TempDir()
	quietly(t, on(t, dir, "fail", "--gpu", "3", "lost"))
	quietly(t, on(t, dir, "fail", "--gpu", "3", "--for", "1h", "nvlink-error", "--rate", "10", "--link", "2"))
	quietly(t, on(t, dir, "fail", "--gpu", "4", "--probability", "0.25", "--seed", "3", "timeout"))
	quietly(t, on(t, dir, "fail", "no-permission"))
	s := stateOf(t, dir)
	assert.Equal(t, []string{"no-permission"}, s.Health)
	assert.Equal(t, []string{"lost", "nvlink-error"}, s.GPUs[3].Faults)
	assert.Equal(t, []string{"timeout with a chance of 0.25"}, s.GPUs[4].Faults)
	table := on(t, dir, "status").stdout
	assert.Contains(t, table, "nvmlInit fails: no-permission\n")
	assert.Regexp(t, `nvlink-error \((1h0m0s|59m[0-9]+s) left\)`, table)

	quietly(t, on(t, dir, "heal", "--gpu", "3", "lost"))
	assert.Equal(t, []string{"nvlink-error"}, stateOf(t, dir).GPUs[3].Faults)
	quietly(t, on(t, dir, "heal"))
	s = stateOf(t, dir)
	assert.Empty(t, s.Health)
	assert.Empty(t, s.GPUs[3].Faults)
	assert.Equal(t, "there was nothing to heal\n", on(t, dir, "heal").stdout)

	quietly(t, on(t, dir, "fail", "--gpu", "0", "reset-required"))
	quietly(t, on(t, dir, "reset", "--gpu", "0"))
	assert.Empty(t, stateOf(t, dir).GPUs[0].Faults)
	quietly(t, on(t, dir, "set", "--gpu", "0", "failure.mode=reset_required"))
	quietly(t, on(t, dir, "reset", "--gpu", "0"))
	assert.Empty(t, stateOf(t, dir).GPUs[0].Faults)
	quietly(t, on(t, dir, "fail", "--gpu", "0", "lost"))
	on(t, dir, "reset", "--gpu", "0").fails(t, 1, "GPU 0: it is lost")
}

func TestEvents(t *testing.T) {
	dir := t.TempDir()
	quietly(t, on(t, dir, "events", "tail"))
	for i := range 5 {
		quietly(t, on(t, dir, "events", "send", "--gpu", "2", "xid", fmt.Sprint(30+i)))
	}
	assert.Regexp(t, `(?s)^\S+ \S+  GPU 2  xid 33\n\S+ \S+  GPU 2  xid 34\n$`, on(t, dir, "events", "tail", "-n", "2").stdout)

	quietly(t, on(t, dir, "events", "send", "--gpu", "1", "driver-unbind"))
	assert.Regexp(t, `^\S+ \S+  node  driver-unbind 25600\n$`, on(t, dir, "events", "tail", "-n", "1").stdout)
	on(t, dir, "events", "send", "--gpu", "1", "driver-bind", "7").fails(t, 1, "driver-bind has no data")

	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "events", "tail", "--follow", "-n", "0", "-o", "json")
	cmd.Env = []string{"NVMLFAB_STATE_DIR=" + dir}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := json.NewDecoder(out)
	go func() { // until it listens
		for range 600 {
			on(t, dir, "events", "send", "--gpu", "0", "xid", "79")
			time.Sleep(100 * time.Millisecond)
			if cmd.ProcessState != nil {
				return
			}
		}
	}()
	var e event
	require.NoError(t, lines.Decode(&e))
	assert.Equal(t, "xid", e.Event)
	assert.EqualValues(t, 79, e.Data)
	assert.EqualValues(t, 0, *e.GPU)
	assert.EqualValues(t, 8, e.Type)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	assert.NoError(t, cmd.Wait())
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	assert.Equal(t, outcome{"100001\n", "", 0}, on(t, dir, "process", "add", "--gpu", "0,1", "--memory", "2GiB", "--sm", "30"))
	assert.Equal(t, outcome{"100002\n", "", 0}, on(t, dir, "process", "add", "--gpu", "0", "--memory", "1G", "--sm", "80", "--for", "1h"))
	quietly(t, on(t, dir, "process", "add", "--gpu", "1", "--pid", "42", "--name", "/bin/a", "--type", "C+G"))
	on(t, dir, "process", "add", "--gpu", "2,1", "--pid", "42").fails(t, 1, "GPU 1: there is a process")
	s := stateOf(t, dir)
	assert.EqualValues(t, 3<<30, s.GPUs[0].Memory.Used)
	assert.EqualValues(t, 100, *s.GPUs[0].Utilization.GPU)
	assert.EqualValues(t, 30, *s.GPUs[1].Utilization.GPU)
	assert.Zero(t, s.GPUs[2].Processes)
	var list []process
	require.NoError(t, json.Unmarshal([]byte(on(t, dir, "process", "list", "-o", "json").stdout), &list))
	require.Len(t, list, 4)
	assert.Equal(t, "C+G", list[3].Type)
	assert.NotNil(t, list[1].Until)
	quietly(t, on(t, dir, "process", "remove", "--gpu", "0", "100001"))
	assert.EqualValues(t, 1<<30, stateOf(t, dir).GPUs[0].Memory.Used)
	quietly(t, on(t, dir, "process", "remove", "--all"))
	assert.Equal(t, "[]\n", on(t, dir, "process", "list", "-o", "json").stdout)
}

// TestWhichNode: a staged tree and a running program name their node.
func TestWhichNode(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	quietly(t, nvmlfab(t, "stage", "--root", root, "--profile", "t4", "--gpus", "2"))
	quietly(t, nvmlfab(t, "set", "--root", root, "--gpu", "1", "utilization.gpu=50"))
	s := statusOf(t, "--root", root)
	assert.Equal(t, root+".state", s.Directory)
	require.Len(t, s.GPUs, 2)
	assert.EqualValues(t, 50, *s.GPUs[1].Utilization.GPU)

	dir := t.TempDir()
	sleep := func(env ...string) string {
		cmd := exec.Command("sleep", "600")
		cmd.Env = env
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return fmt.Sprint(cmd.Process.Pid)
	}
	name := fmt.Sprintf("test-%d", os.Getpid())
	pid := sleep("NVMLFAB_RUN="+name, "NVMLFAB_STATE_DIR="+dir, "NVMLFAB_PROFILE=t4")
	quietly(t, nvmlfab(t, "set", "--run", name, "--gpu", "0", "utilization.gpu=60"))
	for _, run := range []string{name, pid} {
		s = statusOf(t, "--run", run)
		assert.Equal(t, "Tesla T4", s.GPUs[0].Name)
		assert.EqualValues(t, 60, *s.GPUs[0].Utilization.GPU)
	}
	nvmlfab(t, "status", "--run", name+"x").fails(t, 1, name)
	alone := sleep("A=B")
	nvmlfab(t, "status", "--run", alone).fails(t, 1, "is not one of nvmlfab run")
}

// TestWatch: the status comes again and again, and an interrupt ends it without an error.
func TestWatch(t *testing.T) {
	cmd := exec.Command(filepath.Join(tree, "bin", "nvmlfab"), "status", "--watch", "--every", "20ms", "-o", "json")
	cmd.Env = []string{"NVMLFAB_STATE_DIR=" + t.TempDir()}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	decoder := json.NewDecoder(out)
	for range 3 {
		var s nodeStatus
		require.NoError(t, decoder.Decode(&s))
		assert.Len(t, s.GPUs, 8)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	go func() {
		var s nodeStatus
		for decoder.Decode(&s) == nil {
		}
	}()
	assert.NoError(t, cmd.Wait())
}
