package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/rm"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"golang.org/x/sys/unix"
)

type verifyCmd struct {
	Checks  []string `arg:"" optional:"" name:"check" help:"compute, cgroup, cgroup-policy, cgroup-compute, cgroup-memory; all of them without one."`
	Enforce bool     `help:"Let the limits hold for the programs that verify starts. The module must enforce already."`
	GPU     minor    `name:"gpu" default:"0" placeholder:"N" help:"The N of /dev/nvidiaN on which to try."`
}

func (verifyCmd) Help() string {
	return `It tries the module that is loaded, with whatever driver it hooks: it starts programs of its own in new cgroups, which
allocate a little memory of the GPU and set timeslices, and looks at what the module reports and the driver has. It does not
change the mode, nor any policy but those of its own programs, which end with them.

Without --enforce these policies are dry runs, also while the module enforces: verify compares what would have been done.
Examples:

    vgpuctl verify
    vgpuctl verify --enforce cgroup-memory

A line for each check begins with pass, fail or skip. The exit status is 1 unless every check passed.`
}

// verification is one run of the checks.
type verification struct {
	*vgpuctl.Device
	s       *surroundings
	enforce bool
	gpu     vgpuctl.Minor
	size    uint64 // of an allocation that the module accounts for
}

// skipped says that the driver cannot do what a check needs.
type skipped struct{ error }

type check struct {
	name string
	run  func(*verification) (saw string, err error)
}

// checks are in the order of the Makefile's verify targets.
var checks = []check{
	{"compute", (*verification).compute},
	{"cgroup", (*verification).cgroup},
	{"cgroup-policy", (*verification).cgroupPolicy},
	{"cgroup-compute", (*verification).cgroupCompute},
	{"cgroup-memory", (*verification).cgroupMemory},
}

// verdict is the result of a check.
type verdict struct {
	Check  string `json:"check"`
	Result string `json:"result"` // pass, fail, skip
	Saw    string `json:"saw"`
}

func (c verifyCmd) Run(s *surroundings) error {
	for _, name := range c.Checks {
		if !slices.ContainsFunc(checks, func(known check) bool { return known.name == name }) {
			return exitError{fmt.Errorf("%q is no check: want compute, cgroup, cgroup-policy, cgroup-compute or cgroup-memory", name), exitUsage}
		}
	}
	if vgpuctl.Minor(c.GPU) == vgpuctl.MinorAny {
		return exitError{errors.New("the checks need one GPU: give its number with --gpu"), exitUsage}
	}
	return s.with(func(d *vgpuctl.Device) error {
		if err := c.ready(d); err != nil {
			return err
		}
		size, err := accounted(s.parameters)
		if err != nil {
			return err
		}
		v := &verification{d, s, c.Enforce, vgpuctl.Minor(c.GPU), size}
		var all []verdict
		passed := true
		for _, check := range checks {
			if len(c.Checks) > 0 && !slices.Contains(c.Checks, check.name) {
				continue
			}
			result := verdict{Check: check.name, Result: "pass"}
			saw, err := check.run(v)
			result.Saw = saw
			if err != nil {
				passed, result.Result, result.Saw = false, "fail", err.Error()
				if errors.As(err, new(skipped)) {
					result.Result = "skip"
				}
			}
			all = append(all, result)
			if !s.json {
				fmt.Fprintf(s.stdout, "%s  %-14s  %s\n", result.Result, result.Check, strings.ReplaceAll(result.Saw, "\n", "; "))
			}
		}
		if s.json {
			if err := s.print(all, nil); err != nil {
				return err
			}
		}
		if !passed {
			return exitError{nil, 1}
		}
		return nil
	})
}

// ready refuses if the module could pass no check.
func (c verifyCmd) ready(d *vgpuctl.Device) error {
	info, err := d.Info()
	switch {
	case err != nil:
		return err
	case info.Hooked == 0:
		return errors.New("the module has hooked no driver: load NVIDIA's, or fakegpu with nvidia=1, and see vgpuctl status")
	case info.Mode == vgpuctl.ModeOff:
		return errors.New("the module is off: vgpuctl mode dry-run")
	case c.Enforce && info.Mode != vgpuctl.ModeEnforce:
		return errors.New("the module does not enforce, and verify does not change that: vgpuctl mode enforce, or leave out --enforce")
	}
	return nil
}

// accounted is the size of an allocation for the checks: 16 MiB, or more if the module does not account for so little.
func accounted(parameters string) (uint64, error) {
	const usual = 16 << 20
	text, err := os.ReadFile(filepath.Join(parameters, "memory_alloc_min_bytes"))
	if err != nil {
		return 0, fmt.Errorf("the parameters of the module: %w", err)
	}
	least, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory_alloc_min_bytes: %w", err)
	}
	return max(usual, (least+usual-1)/usual*usual), nil
}

// limits are a policy for one of the programs.
func (v *verification) limits(l vgpuctl.Limits) vgpuctl.Limits {
	if !v.enforce {
		l.Flags |= vgpuctl.LimitDryRun
	}
	return l
}

// ---- The checks ----------------------------------------------------------------------------------------------------

const (
	asked  = 2000 // microseconds
	weight = 3
)

// weighted leaves nothing to the module's parameters.
func weighted(by uint32) vgpuctl.Limits {
	return vgpuctl.Limits{Weight: by, TimesliceMinUs: 1, TimesliceMaxUs: 1 << 40}
}

// compute: the timeslice of a process with a policy is multiplied by its weight.
func (v *verification) compute() (string, error) {
	w, err := v.start()
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := v.SetPolicy(uint32(w.Process.Pid), v.gpu, v.limits(weighted(weight))); err != nil {
		return "", err
	}
	return v.timeslice(w, weight, vgpuctl.ScopeTgid)
}

// timeslice sets one from the program, and compares what the driver has and what the module reports.
func (v *verification) timeslice(w *worker, by uint64, scope vgpuctl.Scope) (string, error) {
	events, err := v.listen(w)
	if err != nil {
		return "", err
	}
	defer events.Close()
	now, err := w.ask("timeslice", asked)
	if refused := (*rm.Error)(nil); errors.As(err, &refused) {
		return "", skipped{fmt.Errorf("a timeslice cannot be tried: %w", err)}
	}
	if err != nil {
		return "", err
	}
	want := uint64(asked)
	if v.enforce {
		want *= by
	}
	if now != want {
		return "", fmt.Errorf("a timeslice of %d us with weight %d: the driver has %d us, want %d us", asked, by, now, want)
	}
	e, err := events.next(vgpuctl.EventTimeslice)
	if err != nil {
		return "", fmt.Errorf("the module reports no timeslice of the program: %w; was it loaded with compute_trace=0?", err)
	}
	if dry := e.Flags&vgpuctl.EventDryRun != 0; e.Value != asked || e.Detail != asked*by || e.Scope != scope || dry == v.enforce {
		return "", fmt.Errorf("the module reports %d us for %d us by a policy of scope %s, dry run %v; want %d us, scope %s, dry run %v",
			e.Detail, e.Value, e.Scope, dry, asked*by, scope, !v.enforce)
	}
	if v.enforce {
		return fmt.Sprintf("%d us with weight %d: the driver has %d us", asked, by, now), nil
	}
	return fmt.Sprintf("%d us with weight %d: would be %d us, and the driver has %d us", asked, by, asked*by, now), nil
}

// cgroup: memory is accounted to the process and its cgroup, and no longer when the process has ended.
func (v *verification) cgroup() (string, error) {
	w, err := v.start()
	if err != nil {
		return "", err
	}
	defer w.end()
	taken, err := w.ask("memory", v.size)
	if err != nil {
		return "", err
	}
	byCgroup, err := v.CgroupUsage(w.id, v.gpu)
	if err != nil {
		return "", fmt.Errorf("the module does not account for %s: %w; was it loaded with memory_trace=0?", vgpuctl.FormatSize(taken), err)
	}
	byTask, err := v.TaskUsage(uint32(w.Process.Pid), v.gpu)
	if err != nil {
		return "", err
	}
	if byCgroup.DeviceBytes != taken || byTask.DeviceBytes != taken {
		return "", fmt.Errorf("the driver gave %s; the module accounts for %s of the cgroup and %s of the process",
			vgpuctl.FormatSize(taken), vgpuctl.FormatSize(byCgroup.DeviceBytes), vgpuctl.FormatSize(byTask.DeviceBytes))
	}
	w.kill()
	var left uint64
	if !within(func() bool {
		u, err := v.CgroupUsage(w.id, v.gpu)
		left = u.DeviceBytes
		return errors.Is(err, unix.ENOENT) || err == nil && left == 0
	}) {
		return "", fmt.Errorf("the process has ended, and its cgroup still has %s", vgpuctl.FormatSize(left))
	}
	return fmt.Sprintf("%s of process and cgroup, and none after the process", vgpuctl.FormatSize(taken)), nil
}

// cgroupPolicy: policies of a cgroup can be set, read, replaced and cleared, and end with it. They are dry runs.
func (v *verification) cgroupPolicy() (string, error) {
	folder, err := newCgroup("")
	if err != nil {
		return "", err
	}
	removed := false
	defer func() {
		if !removed {
			os.Remove(folder)
		}
	}()
	id, err := v.s.cgroupID(folder)
	if err != nil {
		return "", err
	}
	first := vgpuctl.Limits{MemoryLimitBytes: 1 << 40, Flags: vgpuctl.LimitDryRun}
	second := vgpuctl.Limits{MemoryLimitBytes: 64 << 20, TimesliceMinUs: 10, TimesliceMaxUs: 20, Weight: 7, Flags: vgpuctl.LimitDryRun}
	for _, minor := range []vgpuctl.Minor{v.gpu, vgpuctl.MinorAny} {
		if _, err := v.GetCgroupPolicy(id, minor); !errors.Is(err, unix.ENOENT) {
			return "", fmt.Errorf("a new cgroup has a policy already: %w", err)
		}
		for _, limits := range []vgpuctl.Limits{first, second} {
			if err := v.SetCgroupPolicy(id, minor, limits); err != nil {
				return "", err
			}
			got, err := v.GetCgroupPolicy(id, minor)
			if err != nil {
				return "", err
			}
			if got != limits {
				return "", fmt.Errorf("the policy is %+v, want %+v", got, limits)
			}
		}
	}
	if err := v.ClearCgroupPolicy(id, v.gpu); err != nil {
		return "", err
	}
	if _, err := v.GetCgroupPolicy(id, v.gpu); !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("the policy that was cleared is still there: %w", err)
	}
	if err := os.Remove(folder); err != nil {
		return "", err
	}
	removed = true
	if !within(func() bool { _, err := v.GetCgroupPolicy(id, vgpuctl.MinorAny); return errors.Is(err, unix.ENOENT) }) {
		return "", errors.New("the cgroup is gone, and its policy is still there")
	}
	return "set, read, replaced, cleared, and gone with the cgroup", nil
}

// cgroupCompute: two cgroups with the weights 1 and 3 get timeslices in that ratio.
func (v *verification) cgroupCompute() (string, error) {
	var saw []string
	for _, by := range []uint32{1, weight} {
		one, err := v.weighs(by)
		if err != nil {
			return "", err
		}
		saw = append(saw, one)
	}
	return strings.Join(saw, "; "), nil
}

func (v *verification) weighs(by uint32) (string, error) {
	w, err := v.start()
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := v.SetCgroupPolicy(w.id, v.gpu, v.limits(weighted(by))); err != nil {
		return "", err
	}
	return v.timeslice(w, uint64(by), vgpuctl.ScopeCgroup)
}

// cgroupMemory: of two allocations under a limit of one, the second is over the limit.
func (v *verification) cgroupMemory() (string, error) {
	w, err := v.start()
	if err != nil {
		return "", err
	}
	defer w.end()
	if err := v.SetCgroupPolicy(w.id, v.gpu, v.limits(vgpuctl.Limits{MemoryLimitBytes: v.size})); err != nil {
		return "", err
	}
	events, err := v.listen(w)
	if err != nil {
		return "", err
	}
	defer events.Close()
	if _, err := w.ask("memory", v.size); err != nil {
		return "", err
	}
	_, err = w.ask("memory", v.size)
	refused := (*rm.Error)(nil)
	if errors.As(err, &refused) && refused.Status != rm.NoMemory || err != nil && refused == nil {
		return "", err
	}
	if v.enforce != (refused != nil) {
		return "", fmt.Errorf("a second allocation of %s under a limit of one was refused: %v, want %v; was the module loaded with memory_trace=0?",
			vgpuctl.FormatSize(v.size), refused != nil, v.enforce)
	}
	e, err := events.next(vgpuctl.EventDeny)
	if err != nil {
		return "", fmt.Errorf("the module does not report that a second allocation of %s under a limit of one is too much: %w", vgpuctl.FormatSize(v.size), err)
	}
	usage, err := v.CgroupUsage(w.id, v.gpu)
	if err != nil {
		return "", err
	}
	if dry := e.Flags&vgpuctl.EventDryRun != 0; e.Value != v.size || e.Detail != v.size || dry == v.enforce || usage.Denied != 1 {
		return "", fmt.Errorf("the module reports %s of %s, dry run %v, and %d times; want %s of %[5]s, dry run %[6]v, once",
			vgpuctl.FormatSize(e.Value), vgpuctl.FormatSize(e.Detail), dry, usage.Denied, vgpuctl.FormatSize(v.size), !v.enforce)
	}
	if v.enforce {
		return fmt.Sprintf("of two allocations of %s under a limit of one the second was refused", vgpuctl.FormatSize(v.size)), nil
	}
	return fmt.Sprintf("of two allocations of %s under a limit of one the second would be refused", vgpuctl.FormatSize(v.size)), nil
}

// patience is how long a check waits for something that should happen at once.
const patience = time.Minute

func within(condition func() bool) bool {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// ---- Events --------------------------------------------------------------------------------------------------------

// listening are the events of one cgroup. Process numbers would not do: those in events are of another PID namespace.
type listening struct {
	*vgpuctl.Device
	events *vgpuctl.Events
	s      *surroundings
	cgroup uint64
}

func (v *verification) listen(w *worker) (*listening, error) {
	d, err := v.s.open()
	if err != nil {
		return nil, err
	}
	return &listening{d, d.Events(), v.s, w.id}, nil
}

// next waits for an event of that type. Events of other programs may have pushed it out, and then none comes.
func (l *listening) next(kind vgpuctl.EventType) (vgpuctl.Event, error) {
	ctx, cancel := context.WithTimeout(l.s.ctx, 10*time.Second)
	defer cancel()
	for {
		e, _, err := l.events.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("no such event came within 10 s")
		}
		if err != nil || e.Type == kind && e.CgroupID == l.cgroup {
			return e, err
		}
	}
}

// ---- The program ---------------------------------------------------------------------------------------------------

// worker is a process in a cgroup of its own that makes calls of the driver as it is told.
type worker struct {
	*exec.Cmd
	folder  string
	id      uint64 // of the cgroup
	in      io.WriteCloser
	answers *bufio.Scanner
	ended   bool
}

// answer is a line of a worker's.
type answer struct {
	Value  uint64 `json:"value"`
	Error  string `json:"error,omitempty"`
	Call   string `json:"call,omitempty"` // that the driver refused
	Status uint32 `json:"status,omitempty"`
}

// start starts one, which has opened the GPU when start returns.
func (v *verification) start() (*worker, error) {
	folder, err := newCgroup("")
	if err != nil {
		return nil, err
	}
	w := &worker{folder: folder}
	if err = w.open(v); err != nil {
		w.end()
		return nil, err
	}
	if _, err = w.answer(); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

func (w *worker) open(v *verification) error {
	var err error
	if w.id, err = v.s.cgroupID(w.folder); err != nil {
		return err
	}
	cgroup, err := os.Open(w.folder)
	if err != nil {
		return err
	}
	defer cgroup.Close()
	cmd := exec.CommandContext(v.s.ctx, "/proc/self/exe", "verify-worker", fmt.Sprint(v.gpu))
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = v.s.stderr
	if w.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.answers = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a program in %s: %w", w.folder, err)
	}
	w.Cmd = cmd
	return nil
}

// ask tells the worker to do something, and returns its answer.
func (w *worker) ask(what string, n uint64) (uint64, error) {
	if _, err := fmt.Fprintln(w.in, what, n); err != nil {
		return 0, fmt.Errorf("the program in %s has ended: %w", w.folder, err)
	}
	return w.answer()
}

func (w *worker) answer() (uint64, error) {
	if !w.answers.Scan() {
		return 0, fmt.Errorf("the program in %s has ended early", w.folder)
	}
	var a answer
	if err := json.Unmarshal(w.answers.Bytes(), &a); err != nil {
		return 0, fmt.Errorf("the program in %s: %w", w.folder, err)
	}
	switch {
	case a.Status != 0:
		return a.Value, &rm.Error{Call: a.Call, Status: rm.Status(a.Status)}
	case a.Error != "":
		return a.Value, errors.New(a.Error)
	}
	return a.Value, nil
}

// kill ends it. What it has of the driver's is freed then.
func (w *worker) kill() {
	if w.Cmd != nil && !w.ended {
		w.Process.Kill()
		w.Wait()
		w.ended = true
	}
}

// end ends it and removes its cgroup.
func (w *worker) end() {
	w.kill()
	within(func() bool { err := os.Remove(w.folder); return err == nil || errors.Is(err, os.ErrNotExist) })
}

// workerCmd is the program. It is no command for people.
type workerCmd struct {
	GPU minor `arg:"" name:"gpu"`
}

func (c workerCmd) Run(s *surroundings) error {
	client, err := rm.Open(uint32(c.GPU))
	say := func(value uint64, err error) error {
		a := answer{Value: value}
		if refused := (*rm.Error)(nil); errors.As(err, &refused) {
			a.Call, a.Status = refused.Call, uint32(refused.Status)
		} else if err != nil {
			a.Error = err.Error()
		}
		return json.NewEncoder(s.stdout).Encode(a)
	}
	if told := say(0, err); err != nil || told != nil {
		return told
	}
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var what string
		var n, value uint64
		if _, err := fmt.Sscan(lines.Text(), &what, &n); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		switch what {
		case "memory":
			value, err = client.Memory(n)
		case "timeslice":
			value, err = client.Timeslice(n)
		default:
			return fmt.Errorf("%q is not known", what)
		}
		if err := say(value, err); err != nil {
			return err
		}
	}
	return lines.Err()
}
