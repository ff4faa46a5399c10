package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
	"gopkg.in/yaml.v3"
)

//go:embed scenarios/*.yaml
var shippedScenarios embed.FS

// scenario is a timed list of what happens to a node.
type scenario struct {
	Description string   `yaml:"description"`
	Duration    span     `yaml:"duration" required:"yes"`
	GPU         gpuNames `yaml:"gpu"`
	Steps       []step   `yaml:"steps" required:"yes"`

	name, file string
}

// step is what happens at one time.
type step struct {
	At      moment         `yaml:"at" required:"yes"`
	For     span           `yaml:"for"`
	GPU     gpuNames       `yaml:"gpu"`
	IB      string         `yaml:"ib"`
	Say     string         `yaml:"say"`
	Set     profiles.Block `yaml:"set"`
	Fail    faultText      `yaml:"fail"`
	Heal    faultText      `yaml:"heal"`
	Event   eventText      `yaml:"event"`
	Process profiles.Block `yaml:"process"`
	End     uint32         `yaml:"end"`

	line int
}

// moment is a time span such as 90s.
type moment time.Duration

// longestScenario is how long a scenario may last.
const longestScenario = 30 * 24 * time.Hour

// UnmarshalText reads a time span as Go writes it.
func (m *moment) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 || v > longestScenario {
		return fmt.Errorf("want a time such as 0s, 30s or 2m, at most %s, not %.40q", longestScenario, text)
	}
	*m = moment(v)
	return nil
}

// span is a moment that is not the start.
type span moment

// UnmarshalText reads a time span as Go writes it.
func (s *span) UnmarshalText(text []byte) error {
	var m moment
	if err := m.UnmarshalText(text); err != nil {
		return err
	}
	if m < moment(time.Millisecond) {
		return fmt.Errorf("want more than nothing, not %.40q", text)
	}
	*s = span(m)
	return nil
}

// gpuNames are GPUs as --gpu names them.
type gpuNames string

// UnmarshalText accepts all, and indices and UUIDs with commas between them.
func (g *gpuNames) UnmarshalText(text []byte) error {
	if strings.TrimSpace(string(text)) == "" {
		return errors.New("want all, or indices or UUIDs with commas between them")
	}
	*g = gpuNames(text)
	return nil
}

// faultText is a fault in a word and perhaps a number: of an Xid, of errors, or of link errors per second.
type faultText struct {
	change.Fault
	text string
}

// UnmarshalText accepts lost, xid 79, ecc-uncorrectable 3 and the like.
func (f *faultText) UnmarshalText(text []byte) error {
	f.text = string(text)
	word, number, numbered := strings.Cut(strings.TrimSpace(f.text), " ")
	kind, err := change.KindOf(word)
	if err != nil {
		return err
	}
	f.Kind = kind.Name
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	switch {
	case numbered && (err != nil || n == 0):
		return fmt.Errorf("%.40q: want a whole number from 1 after %s", f.text, kind.Name)
	case kind.Name == "xid" && !numbered:
		return errors.New("xid wants the number of an Xid error, such as xid 79")
	case kind.Name == "xid":
		f.Xid = n
	case kind.Counts:
		f.Count = n
	case kind.Name == "nvlink-error", kind.Name == "symbol-errors":
		f.Rate = float64(n)
	case numbered:
		return fmt.Errorf("%.40q: no number belongs to %s", f.text, kind.Name)
	}
	return nil
}

// eventText is an event in a word, and its data.
type eventText struct {
	change.EventKind
	data uint64
	text string
}

// UnmarshalText accepts xid 79, clock and the like.
func (e *eventText) UnmarshalText(text []byte) (err error) {
	e.text = string(text)
	word, number, numbered := strings.Cut(strings.TrimSpace(e.text), " ")
	if e.EventKind, err = change.EventKindOf(word); err != nil {
		return err
	}
	if !numbered {
		return e.Check(nil)
	}
	if e.data, err = strconv.ParseUint(strings.TrimSpace(number), 10, 64); err != nil {
		return fmt.Errorf("%.40q: want a whole number after %s", e.text, word)
	}
	return e.Check(&e.data)
}

// scenarioNames are the shipped scenarios.
func scenarioNames() (names []string) {
	entries, _ := shippedScenarios.ReadDir("scenarios")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// loadScenario reads a scenario: a file, if what names it has a slash or ends in .yaml or .yml, or else a shipped one.
func loadScenario(name string) (s *scenario, text []byte, err error) {
	s = &scenario{name: name, file: name}
	if isFile(name) {
		s.name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".yml"), ".yaml")
		text, err = profiles.Read(name)
	} else {
		s.file = name + ".yaml"
		text, err = shippedScenarios.ReadFile("scenarios/" + s.file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
			names := scenarioNames()
			if near := profiles.Nearest(name, names); near != "" {
				return nil, nil, fmt.Errorf("unknown scenario %.60q: did you mean %q? A file's name ends in .yaml", name, near)
			}
			return nil, nil, fmt.Errorf("unknown scenario %.60q: want one of %s, or a file whose name ends in .yaml", name, strings.Join(names, ", "))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if err := profiles.Decode(s.file, text, s); err != nil {
		return nil, nil, err
	}
	s.lines(text)
	return s, text, s.check()
}

// lines finds the lines of the steps.
func (s *scenario) lines(text []byte) {
	var doc struct {
		Steps yaml.Node `yaml:"steps"`
	}
	if yaml.Unmarshal(text, &doc) != nil {
		return
	}
	for i := range min(len(s.Steps), len(doc.Steps.Content)) {
		s.Steps[i].line = doc.Steps.Content[i].Line
	}
}

// wrong is an error about a line of the file.
func (s *scenario) wrong(line int, err error) error {
	var e *profiles.Error
	if errors.As(err, &e) {
		line, err = e.Line, errors.New(e.Text)
	}
	return fmt.Errorf("%s:%d: %w", s.file, line, err)
}

// check finds what is wrong with the scenario whatever the node is, and puts the steps in order.
func (s *scenario) check() error {
	if len(s.Steps) == 0 {
		return fmt.Errorf("%s:1: steps is empty: nothing would happen", s.file)
	}
	for i := range s.Steps {
		p := &s.Steps[i]
		if err := p.check(moment(s.Duration)); err != nil {
			return s.wrong(p.line, err)
		}
	}
	slices.SortStableFunc(s.Steps, func(a, b step) int { return int(max(min(a.At-b.At, 1), -1)) })
	return nil
}

func (p *step) check(duration moment) error {
	switch {
	case p.At >= duration:
		return fmt.Errorf("at %s is not before the end: the scenario lasts %s", time.Duration(p.At), time.Duration(duration))
	case p.For != 0 && p.Set.Keys == nil && p.Fail.Kind == "" && p.Process.Keys == nil:
		return errors.New("for says how long set, fail and process last, and the step has none of them")
	case p.For != 0 && p.Fail.Kind == "xid":
		return errors.New("an Xid happens at once and does not last: leave out for")
	case p.empty():
		return errors.New("nothing happens: give at least one of set, fail, heal, event, process, end and say")
	}
	links := failsLinks(p.Fail.Fault) || failsLinks(p.Heal.Fault)
	switch {
	case p.IB == "" && links:
		return errors.New("the fault is one of InfiniBand: give ib the ports or switches, such as mlx5_0")
	case p.IB != "" && !links:
		return errors.New("ib names ports and switches for faults of InfiniBand, and the step has none of them")
	}
	if p.Heal.Kind != "" && (p.Heal.Kind == "xid" || p.Heal.Count != 0 || p.Heal.Rate != 0) {
		return fmt.Errorf("heal: %q cannot be taken back: name a fault", p.Heal.text)
	}
	if p.Set.Keys != nil {
		if err := p.Set.Check(); err != nil {
			return err
		}
		if _, err := ofNode(slices.Collect(maps.Keys(p.Set.Keys)), []string{"0"}); err != nil && !p.ofNode() {
			return fmt.Errorf("keys of the node stand in a step without keys of GPUs")
		}
	}
	if p.Process.Keys != nil {
		return p.Process.CheckProcess()
	}
	return nil
}

func (p *step) empty() bool {
	return p.Set.Keys == nil && p.Fail.Kind == "" && p.Heal.Kind == "" && p.Event.Name == "" && p.Process.Keys == nil && p.End == 0 && p.Say == ""
}

// ofNode says whether the keys that the step sets are all the node's.
func (p *step) ofNode() bool {
	for key := range p.Set.Keys {
		if !profiles.OfNode(key) {
			return false
		}
	}
	return len(p.Set.Keys) > 0
}

// aboutNode says whether all that the step does happens to the node.
func (p *step) aboutNode() bool {
	set, fail, heal := p.Set.Keys != nil, p.Fail.Kind != "", p.Heal.Kind != ""
	if p.Event.Name != "" || p.Process.Keys != nil || p.End != 0 || !set && !fail && !heal {
		return false
	}
	return (!set || p.ofNode()) && (!fail || failsNode(p.Fail.Fault)) && (!heal || failsNode(p.Heal.Fault))
}

// failsLinks says whether a fault is one of InfiniBand.
func failsLinks(f change.Fault) bool {
	kind, err := change.KindOf(f.Kind)
	return err == nil && kind.InfiniBand()
}

// failsNode says whether a fault is the node's: one that GPUs cannot have.
func failsNode(f change.Fault) bool {
	kind, err := change.KindOf(f.Kind)
	return err == nil && !kind.GPU
}

// about are the GPUs that the step is about.
func (s *scenario) about(n *node, p *step, gpus []string) ([]int, error) {
	switch {
	case p.GPU != "":
		return n.gpus([]string{string(p.GPU)})
	case len(gpus) > 0:
		return n.gpus(gpus)
	case s.GPU != "":
		return n.gpus([]string{string(s.GPU)})
	}
	return n.gpus([]string{"0"})
}

// play is a scenario that is being played.
type play struct {
	*scenario
	node  *node
	id    string
	gpus  []string // instead of the scenario's
	speed float64
	start int64 // in ms since 1970
	// rehearsing says that nobody else can do something between two steps.
	rehearsing bool
	follower   *state.Follower
}

// at is when a moment of the scenario comes, in ms since 1970.
func (p *play) at(m moment) int64 {
	return p.start + int64(math.Ceil(float64(time.Duration(m).Milliseconds())/p.speed))
}

// end is when the scenario ends, in ms since 1970.
func (p *play) end() int64 { return p.at(moment(p.Duration)) }

// step does what happens at one time.
func (p *play) step(t *change.Tx, s *step) error {
	list, err := p.about(p.node, s, p.gpus)
	if err != nil {
		return p.wrong(s.line, err)
	}
	until := p.end()
	if s.For != 0 {
		until = min(until, p.at(s.At+moment(s.For)))
	}
	by := change.ByScenario + p.id
	wrong := func(i int, err error) error { return p.wrong(s.line, about(i, err)) }
	if s.ofNode() {
		if err := t.Play(-1, by, until, s.Set.Keys); err != nil {
			return p.wrongKey(s, -1, err)
		}
	}
	if s.IB != "" {
		if err := p.links(t, s, by, until); err != nil {
			return p.wrong(s.line, err)
		}
	}
	if s.Fail.Kind != "" && failsNode(s.Fail.Fault) && !failsLinks(s.Fail.Fault) {
		if err := t.Fail(-1, by+":", until, s.Fail.Fault); err != nil {
			return wrong(-1, err)
		}
	}
	if s.Heal.Kind != "" && failsNode(s.Heal.Fault) && !failsLinks(s.Heal.Fault) {
		if err := p.heal(t, -1, by, s.Heal.Kind); err != nil {
			return wrong(-1, err)
		}
	}
	for _, i := range list {
		if s.End != 0 {
			if n, err := t.RemoveProcesses(i, p.ends(s.End, by)); err != nil {
				return wrong(i, err)
			} else if n == 0 && p.rehearsing {
				return wrong(i, fmt.Errorf("end: the scenario has no process %d there", s.End))
			}
		}
		if s.Heal.Kind != "" && !failsNode(s.Heal.Fault) {
			if err := p.heal(t, i, by, s.Heal.Kind); err != nil {
				return wrong(i, err)
			}
		}
		if s.Set.Keys != nil && !s.ofNode() {
			if err := t.Play(i, by, until, s.Set.Keys); err != nil {
				return p.wrongKey(s, i, err)
			}
		}
		if s.Fail.Kind != "" && !failsNode(s.Fail.Fault) {
			if err := t.Fail(i, by+":", until, s.Fail.Fault); err != nil {
				return wrong(i, err)
			}
		}
		if s.Event.Name != "" {
			t.Send(i, s.Event.EventKind, s.Event.data)
		}
		if s.Process.Keys != nil {
			process := state.Process{ID: p.id + "/" + fmt.Sprint(s.Process.Keys["pid"]), Keys: s.Process.Keys, Until: until, By: by}
			if err := t.AddProcess(i, process); err != nil {
				return wrong(i, err)
			}
		}
	}
	return nil
}

// links brings about the step's fault of InfiniBand, or takes back one of an earlier step.
func (p *play) links(t *change.Tx, s *step, by string, until int64) error {
	f, self, err := p.node.fabric()
	if err != nil {
		return err
	}
	if failsLinks(s.Heal.Fault) {
		list, err := targets(f, self, []string{s.IB})
		if err != nil {
			return err
		}
		if n := t.HealLinks(s.Heal.Kind, by, list); n == 0 && p.rehearsing {
			return fmt.Errorf("heal: no earlier step brings %s about", s.Heal.Kind)
		}
	}
	if !failsLinks(s.Fail.Fault) {
		return nil
	}
	faults, err := linkFaults(f, self, []string{s.IB}, state.LinkFault{Kind: s.Fail.Kind, By: by, Rate: s.Fail.Rate})
	if err != nil {
		return err
	}
	return failAll(t, faults, until)
}

// heal takes back a fault of an earlier step. When the scenario is played for good, the fault may be gone already: somebody
// has healed it, or the machine is so slow that its time is over.
func (p *play) heal(t *change.Tx, i int, by, kind string) error {
	of := by + ":" + kind
	n, err := t.DropLayers(i, func(l state.Layer) bool { return l.By == of })
	if err == nil && n == 0 && p.rehearsing {
		err = fmt.Errorf("heal: no earlier step brings %s about", kind)
	}
	return err
}

// errEnded means that somebody has ended the scenario by nvmlfab heal --play.
var errEnded = errors.New("nvmlfab heal --play has ended it")

// does is the change of a step. What somebody else has done meanwhile can let it fail: the scenario then ends.
func (p *play) does(s *step) func(*change.Tx) error {
	return func(t *change.Tx) error {
		if !p.playing(t.State()) && t.Now < p.end() {
			return errEnded
		}
		return p.step(t, s)
	}
}

// playing reports whether the node is one on which this scenario is being played.
func (p *play) playing(s *state.State) bool {
	return s != nil && slices.Contains(s.Node.Plays, state.Play{ID: p.id, Started: p.start, Until: p.end()})
}

// begin notes on the node that the scenario is being played.
func (p *play) begin() error {
	p.follower = p.node.dir.Follow()
	return p.node.change(func(t *change.Tx) error {
		p.start = t.Now
		return t.BeginScenario(p.id, p.end())
	})
}

// over reports whether somebody has ended the scenario since the last time.
func (p *play) over() bool {
	changed, number := p.follower.Look()
	if !changed {
		return false
	}
	s, err := p.node.dir.Read(nil)
	if err != nil && !errors.Is(err, state.ErrNewer) {
		return false // the next step says so
	}
	p.follower.Seen(number, 0)
	return !p.playing(s) && time.Now().UnixMilli() < p.end()
}

// ends is true for the scenario's processes with a pid.
func (p *play) ends(pid uint32, by string) func(state.Process) bool {
	return func(s state.Process) bool {
		process, err := profiles.ProcessOf(s.Keys)
		return s.By == by && err == nil && process.PID == pid
	}
}

// wrongKey is an error about a value that is set, with the line of its key.
func (p *play) wrongKey(s *step, i int, err error) error {
	line := s.line
	for key, l := range s.Set.Lines {
		if strings.Contains(err.Error(), key+":") {
			line = l
		}
	}
	return p.wrong(line, about(i, err))
}

// rehearse does all steps to a state that is thrown away, so that a scenario which cannot be played to its end does not
// begin.
func (p *play) rehearse() error {
	if err := p.node.read(); err != nil {
		return err
	}
	p.rehearsing = true
	defer func(speed float64) { p.rehearsing, p.speed = false, speed }(p.speed)
	p.speed = 1 // so that no two steps fall into one ms
	p.start = time.Now().UnixMilli()
	t := change.Begin(p.node.source, p.start)
	if err := t.BeginScenario(p.id, p.end()); err != nil {
		return err
	}
	for i := range p.Steps {
		t.Now = p.at(p.Steps[i].At)
		if err := p.step(t, &p.Steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// undo takes back all that the scenario has done.
func (p *play) undo() error {
	return p.node.change(func(t *change.Tx) error {
		any := false
		for i := -1; i < t.Devices(); i++ {
			dropped, err := t.EndScenario(i, p.id)
			if err != nil {
				return about(i, err)
			}
			any = any || dropped
		}
		if !any {
			return errUnchanged
		}
		return nil
	})
}

// what says in a line what a step does.
func (s *scenario) what(n *node, p *step, gpus []string) string {
	var parts []string
	if p.Say != "" {
		parts = append(parts, p.Say)
	}
	if p.End != 0 {
		parts = append(parts, fmt.Sprintf("process %d ends", p.End))
	}
	if p.Heal.Kind != "" {
		parts = append(parts, "heal "+p.Heal.text)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Set.Keys)) {
		parts = append(parts, key+"="+valueText(p.Set.Keys[key]))
	}
	if p.Fail.Kind != "" {
		parts = append(parts, "fail "+p.Fail.text)
	}
	if p.Event.Name != "" {
		parts = append(parts, "event "+p.Event.text)
	}
	if p.Process.Keys != nil {
		parts = append(parts, fmt.Sprintf("process %v begins", p.Process.Keys["pid"]))
	}
	who := "node"
	if p.IB != "" {
		who = p.IB
	} else if list, err := s.about(n, p, gpus); err == nil && !p.aboutNode() {
		var names []string
		for _, i := range list {
			names = append(names, strconv.Itoa(i))
		}
		if who = "GPU " + strings.Join(names, ","); len(list) > 1 && len(list) == len(n.source.Board.Devices) {
			who = "all GPUs"
		}
	}
	text := strings.Join(parts, ", ")
	if p.For != 0 {
		text += " for " + time.Duration(p.For).String()
	}
	return who + ": " + text
}
