package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

type statusCmd struct {
	nodeFlags
	Output string    `short:"o" enum:"table,json" default:"table" help:"Print a table, or json for programs."`
	Watch  bool      `short:"w" help:"Print it again and again until interrupted."`
	Every  *duration `placeholder:"DURATION" help:"How long --watch waits in between; 1s by default."`
}

func (statusCmd) Help() string {
	return `Readings are those that programs get now. SET lists keys that differ from the profile, and who set them if that was not
nvmlfab set. Examples:

    nvmlfab status
    nvmlfab status --watch
    nvmlfab status --output json

` + whichNode
}

func (c statusCmd) Run() error {
	if c.Every != nil && !c.Watch {
		return errors.New("--every is the pause of --watch: give --watch too")
	}
	if !c.Watch {
		n, err := c.open(false)
		if err != nil {
			return err
		}
		return n.print(os.Stdout, c.Output == "json")
	}
	pause := time.Second
	if c.Every != nil {
		pause = time.Duration(*c.Every)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	terminal := isTerminal(os.Stdout)
	for {
		n, err := c.open(false)
		if err != nil {
			return err
		}
		var b strings.Builder
		if terminal && c.Output == "table" {
			b.WriteString("\x1b[H\x1b[J") // from the top of an empty screen
		}
		if err := n.print(&b, c.Output == "json"); err != nil {
			return err
		}
		if _, err := io.WriteString(os.Stdout, b.String()); err != nil {
			return err
		}
		select {
		case <-interrupted:
			return nil
		case <-time.After(pause):
		}
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// nodeStatus is what status says about a node.
type nodeStatus struct {
	Directory string      `json:"directory"`
	Profile   string      `json:"profile"`
	Driver    string      `json:"driver,omitempty"`
	Overrides bool        `json:"overrides"`
	Health    []string    `json:"faults"`
	Set       []setStatus `json:"set"`
	// Links are the faults of the InfiniBand fabric.
	Links []linkStatus `json:"infiniband"`
	GPUs  []gpuStatus  `json:"gpus"`
}

// gpuStatus is what it says about a GPU. What the board does not have is left out.
type gpuStatus struct {
	Index       uint32        `json:"index"`
	Name        string        `json:"name,omitempty"`
	UUID        string        `json:"uuid"`
	Faults      []string      `json:"faults"`
	Temperature *int32        `json:"temperature_c,omitempty"`
	Power       *uint32       `json:"power_mw,omitempty"`
	PowerLimit  *uint32       `json:"power_limit_mw,omitempty"`
	Utilization utilization   `json:"utilization"`
	Memory      *memoryStatus `json:"memory,omitempty"`
	Processes   int           `json:"processes"`
	Set         []setStatus   `json:"set"`
}

type utilization struct {
	GPU    *uint32 `json:"gpu,omitempty"`
	Memory *uint32 `json:"memory,omitempty"`
}

type memoryStatus struct {
	Total    uint64 `json:"total_bytes"`
	Reserved uint64 `json:"reserved_bytes"`
	Used     uint64 `json:"used_bytes"`
	Free     uint64 `json:"free_bytes"`
}

// setStatus is one layer.
type setStatus struct {
	Keys  profiles.Settings `json:"keys"`
	By    string            `json:"by"`
	Until *time.Time        `json:"until,omitempty"`
}

// status is the node as it is now.
func (n *node) status(now int64) (s nodeStatus, err error) {
	if err := n.read(); err != nil {
		return s, err
	}
	if err := n.source.Possible(now); err != nil {
		return s, fmt.Errorf("%s does not fit the profile any more: %w; nvmlfab unset --all, heal and process remove --all take back what has changed", n.dir.File(), err)
	}
	board, err := n.source.Node(now)
	if err != nil {
		return s, err
	}
	record, _ := n.source.Records(0)
	s = nodeStatus{Directory: n.dir.Path(), Profile: n.profile, Driver: board.System.DriverVersion.Value,
		Overrides: n.source.Overridden != n.source.Board, Health: []string{}, Set: layers(record, now), Links: linkStatuses(record, now)}
	if mode := board.System.InitFailure; mode.Valid && mode.Value != "none" {
		s.Health = append(s.Health, strings.ReplaceAll(mode.Value, "_", "-"))
	}
	for i := range n.source.Board.Devices {
		gpu, err := n.gpuStatus(i, now)
		if err != nil {
			return s, err
		}
		s.GPUs = append(s.GPUs, gpu)
	}
	return s, nil
}

func (n *node) gpuStatus(i int, now int64) (g gpuStatus, err error) {
	d, meter, err := n.source.Meter(i, now)
	if err != nil {
		return g, err
	}
	_, record := n.source.Records(i)
	r := meter.Course().At(now / 1000)
	g = gpuStatus{
		Index: d.Index, Name: d.Name.Value, UUID: string(d.UUID), Faults: faults(d, record, now),
		Temperature: given(r.TemperatureC), Power: given(r.PowerMW), PowerLimit: given(d.Power.EnforcedLimitMW),
		Utilization: utilization{given(r.Utilization.GPU), given(r.Utilization.Memory)},
		Processes:   len(d.Processes), Set: layers(record, now),
	}
	if m, ok := d.MemoryUse(); ok {
		g.Memory = &memoryStatus{m.Total, m.Reserved, m.Used, m.Free}
	}
	return g, nil
}

// faults are a device's faults: those that nvmlfab fail or a scenario has brought about, and what the profile says.
func faults(d *profiles.Device, r *state.Record, now int64) []string {
	list := []string{}
	for _, l := range active(r, now) {
		if kind := change.FaultOf(l); kind != "" {
			list = append(list, printable(kind))
		}
	}
	if f := d.Failure; f.Fails() {
		mode := strings.ReplaceAll(f.Mode.Value, "_", "-")
		at := slices.Index(list, mode)
		if at < 0 {
			list, at = append(list, mode), len(list)
		}
		if f.AfterCalls.Value > 0 {
			list[at] += fmt.Sprintf(" after %d calls", f.AfterCalls.Value)
		}
		if p, ok := f.Probability.Get(); ok {
			list[at] += fmt.Sprintf(" with a chance of %g", p)
		}
	}
	return list
}

// layers are the layers of a record that are in force.
func layers(r *state.Record, now int64) []setStatus {
	list := []setStatus{}
	for _, l := range active(r, now) {
		s := setStatus{Keys: l.Keys, By: l.By}
		if s.By == change.ByUser {
			s.By = "set"
		}
		if l.Until != 0 {
			until := time.UnixMilli(l.Until).UTC()
			s.Until = &until
		}
		list = append(list, s)
	}
	return list
}

// given is a pointer to a value that the profile gives, and nil for others.
func given[T any](o profiles.Opt[T]) *T {
	if !o.Valid {
		return nil
	}
	return &o.Value
}

// print prints the node as it is now.
func (n *node) print(w io.Writer, asJSON bool) error {
	now := time.Now().UnixMilli()
	s, err := n.status(now)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(s)
	}
	return s.table(w, now)
}

func (s nodeStatus) table(out io.Writer, now int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, profile %s", s.Directory, s.Profile)
	if s.Driver != "" {
		fmt.Fprintf(&b, ", driver %s", s.Driver)
	}
	if s.Overrides {
		fmt.Fprintf(&b, ", with %s", state.Overrides)
	}
	b.WriteString("\n")
	if len(s.Health) > 0 {
		fmt.Fprintf(&b, "nvmlInit fails: %s\n", strings.Join(s.Health, ", "))
	}
	if set := settings(s.Set, now); set != "" {
		fmt.Fprintf(&b, "set: %s\n", set)
	}
	if len(s.Links) > 0 {
		fmt.Fprintf(&b, "InfiniBand: %s\n", links(s.Links, now))
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GPU\tNAME\tUUID\tHEALTH\tTEMP\tPOWER\tUTIL\tMEMORY\tSET")
	for _, g := range s.GPUs {
		health := strings.Join(g.Faults, ", ")
		if health == "" {
			health = "ok"
		}
		memory := "N/A"
		if m := g.Memory; m != nil {
			memory = fmt.Sprintf("%d / %d MiB", m.Used>>20, m.Total>>20)
		}
		set := settings(g.Set, now)
		if set == "" {
			set = "-"
		}
		power := reading(g.Power, "%.0f", 1000)
		if limit := reading(g.PowerLimit, "%.0f", 1000); power != limit {
			power += " / " + limit
		}
		if g.Power != nil || g.PowerLimit != nil {
			power += " W"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Index, or(g.Name, "N/A"), g.UUID, health,
			reading(g.Temperature, "%.0f °C", 1), power, reading(g.Utilization.GPU, "%.0f %%", 1), memory, set)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// reading is a number over a unit as text.
func reading[T int32 | uint32](v *T, format string, unit float64) string {
	if v == nil {
		return "N/A"
	}
	return fmt.Sprintf(format, float64(*v)/unit)
}

// settings is what is set, in one line. Faults stand under HEALTH, so only how long they last is said.
func settings(list []setStatus, now int64) string {
	var parts []string
	for _, l := range list {
		var keys []string
		if kind := change.FaultOf(state.Layer{By: l.By}); kind != "" {
			keys = []string{printable(kind)}
		} else {
			for _, key := range slices.Sorted(maps.Keys(l.Keys)) {
				keys = append(keys, fmt.Sprintf("%s=%s", key, valueText(l.Keys[key])))
			}
		}
		text := strings.Join(keys, " ")
		var notes []string
		switch {
		case strings.HasPrefix(l.By, change.ByScenario):
			id, _, _ := strings.Cut(strings.TrimPrefix(l.By, change.ByScenario), ":")
			notes = append(notes, "by "+printable(id))
		case l.By == change.BySetter, l.By == change.ByBoard:
			notes = append(notes, "by NVML")
		}
		if l.Until != nil {
			notes = append(notes, left(*l.Until, now))
		} else if len(keys) == 1 && keys[0] == change.FaultOf(state.Layer{By: l.By}) {
			continue // nothing to add to what stands under HEALTH
		}
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// left says how much of a time is left.
func left(until time.Time, now int64) string {
	return (time.Duration(max(until.UnixMilli()-now, 0)) * time.Millisecond).Round(time.Second).String() + " left"
}

// printable is text of a state directory that somebody else may have written, without what could control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// valueText is a value as people write it.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "N/A"
	case string:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
