// Package requirements knows what a symbol requires of its caller and its GPU: whether the caller must be an
// administrator, whether a handle of a MIG device is accepted, and whether the GPU must be alive. The answers are in
// table.yaml. If NVIDIA's header or a symbol's name mentions one of these subjects, the table must have a row for the
// symbol, whatever the row says.
package requirements

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
)

//go:embed table.yaml
var table []byte

const path = "generator/requirements/table.yaml"

// Who may call a symbol.
type Who string

const (
	Anybody     Who = "none"
	Admin       Who = "admin"
	Restricted  Who = "admin-unless-unrestricted" // unless the device's API restriction allows it to everybody
	MIGConfig   Who = "mig-config"                // an administrator, or a user with that capability
	MIGMonitor  Who = "mig-monitor"
	answers         = "answers"
	gpuIsLost       = "GPU_IS_LOST"
	invalid         = "INVALID_ARGUMENT"
	unsupported     = "NOT_SUPPORTED"
)

// Row is a row of the table.
type Row struct {
	Symbol string `yaml:"symbol"`
	Who    Who    `yaml:"who"`
	// API is the API restriction for admin-unless-unrestricted.
	API string `yaml:"api"`
	// MIG is the answer for a handle of a MIG device: "answers", INVALID_ARGUMENT or NOT_SUPPORTED.
	MIG string `yaml:"mig"`
	// Lost is the answer for a lost GPU: GPU_IS_LOST or "answers".
	Lost string `yaml:"lost"`
	Why  string `yaml:"why"`

	line int
}

// Requirement is a row with the defaults filled in.
type Requirement struct {
	Who  Who    `json:"who"`
	API  string `json:"api,omitempty"`
	MIG  string `json:"mig,omitempty"`  // "" if the symbol takes no device
	Lost string `json:"lost,omitempty"` // "" if the symbol uses no GPU
	Why  string `json:"why,omitempty"`  // "" if the table has no row
}

// Table is the committed table.
type Table struct{ rows map[string]*Row }

// Read reads the table and checks it against the symbols. Its error names every row that is missing or wrong.
func Read(symbols []*binding.Symbol) (*Table, error) { return read(table, symbols) }

func read(text []byte, symbols []*binding.Symbol) (*Table, error) {
	var list []*Row
	var node yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := &Table{rows: map[string]*Row{}}
	byName := map[string]*binding.Symbol{}
	for _, s := range symbols {
		byName[s.Name] = s
	}
	spoken := mentions(symbols)
	var problems []string
	for i, r := range list {
		r.line = node.Content[0].Content[i].Line
		what := r.wrong(byName[r.Symbol], spoken[model.Family(r.Symbol)])
		if before := t.rows[r.Symbol]; before != nil {
			what = append(what, fmt.Sprintf("line %d has a row for it already", before.line))
		}
		for _, w := range what {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", path, r.line, r.Symbol, w))
		}
		t.rows[r.Symbol] = r
	}
	for _, s := range symbols {
		if hints := hints(s, spoken[model.Family(s.Name)]); len(hints) > 0 && t.rows[s.Name] == nil {
			problems = append(problems, fmt.Sprintf("%s: %s has no row, but %s; add one such as\n  %s",
				path, s.Name, strings.Join(hints, " and "), suggestion(s)))
		}
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return t, nil
}

// wrong lists what is wrong with the row of symbol s. spoken are the subjects that the comments on s mention.
func (r *Row) wrong(s *binding.Symbol, spoken []string) []string {
	if s == nil {
		return []string{"no header declares it"}
	}
	var out []string
	oneOf := func(key, have string, want ...string) {
		if !slices.Contains(want, have) {
			out = append(out, fmt.Sprintf("%s is %q, want one of %s", key, have, strings.Join(want, ", ")))
		}
	}
	oneOf("who", string(r.Who), string(Anybody), string(Admin), string(Restricted), string(MIGConfig), string(MIGMonitor))
	if (r.Who == Restricted) != (r.API != "") {
		out = append(out, "api goes with who: admin-unless-unrestricted, and with nothing else")
	}
	device := takesDevice(s)
	switch {
	case r.MIG != "" && !device:
		out = append(out, "mig is given, but the caller passes no device")
	case r.MIG != "":
		oneOf("mig", r.MIG, answers, invalid, unsupported)
	case device && slices.Contains(spoken, model.MentionsMIG):
		out = append(out, "the header speaks of MIG, so mig must say what a MIG device gets")
	}
	if r.Lost != "" {
		oneOf("lost", r.Lost, answers, gpuIsLost)
	} else if slices.Contains(spoken, model.MentionsLost) {
		out = append(out, "the header speaks of lost GPUs, so lost must say what one gets")
	}
	if r.Why == "" {
		out = append(out, "why is missing")
	}
	return out
}

// verbs are words in a name which say that the symbol changes something.
var verbs = []string{
	"Set", "Reset", "Clear", "Create", "Destroy", "Remove", "Modify", "Install", "Uninstall", "Discover", "Freeze", "Attach",
	"Detach", "Update", "Activate", "Deactivate", "Write", "Force", "Enable", "Disable", "Flush", "Inject", "Load", "Unload",
}

// questions are words in a name which say that the symbol only reads. The words after them are nouns.
var questions = []string{"Get", "Query", "Is"}

// hints lists the reasons why a symbol needs a row.
func hints(s *binding.Symbol, spoken []string) []string {
	var out []string
	for _, w := range model.Words(s.Name) {
		if slices.Contains(questions, w) {
			break
		}
		if slices.Contains(verbs, w) {
			out = append(out, "its name says "+w)
		}
	}
	for _, m := range spoken {
		if m != model.MentionsMIG || takesDevice(s) {
			out = append(out, "the header speaks of "+m)
		}
	}
	return out
}

func suggestion(s *binding.Symbol) string {
	mig := ""
	if takesDevice(s) {
		mig = "mig: INVALID_ARGUMENT, "
	}
	return fmt.Sprintf("- {symbol: %s, who: admin, %swhy: what decides it}", s.Name, mig)
}

// mentions joins the subjects of all versions of a function, since an old version often has no comment of its own.
func mentions(symbols []*binding.Symbol) map[string][]string {
	out := map[string][]string{}
	for _, s := range symbols {
		family := model.Family(s.Name)
		out[family] = append(out[family], s.Mentions()...)
	}
	for family, list := range out {
		slices.Sort(list)
		out[family] = slices.Compact(list)
	}
	return out
}

func takesDevice(s *binding.Symbol) bool { return s.Func.TakesDevice() }

// takesGPU reports whether the caller passes a handle of a GPU or of a part of one.
func takesGPU(s *binding.Symbol) bool {
	return slices.ContainsFunc(s.Func.Params, func(p model.Param) bool {
		return p.Type.Stars == 0 && slices.Contains(gpuHandles, p.Type.Name)
	})
}

var gpuHandles = []string{"nvmlDevice_t", "nvmlGpuInstance_t", "nvmlComputeInstance_t"}

// Of is what a symbol requires. A symbol without a row may be called by anybody, accepts MIG devices, and answers
// GPU_IS_LOST for a lost GPU.
func (t *Table) Of(s *binding.Symbol) Requirement {
	r := Requirement{Who: Anybody}
	if takesDevice(s) {
		r.MIG = answers
	}
	if takesGPU(s) {
		r.Lost = gpuIsLost
	}
	row := t.rows[s.Name]
	if row == nil {
		return r
	}
	r.Who, r.API, r.Why = row.Who, row.API, row.Why
	if row.MIG != "" {
		r.MIG = row.MIG
	}
	if row.Lost != "" {
		r.Lost = row.Lost
	}
	return r
}

// Needs names the engine's needs for the requirement. It leaves out admin, which the front checks. It also leaves out
// the capability to monitor MIG, since everybody on the machine itself has it.
func (r Requirement) Needs() []string {
	var out []string
	add := func(yes bool, need string) {
		if yes {
			out = append(out, need)
		}
	}
	add(r.Lost == gpuIsLost, "Alive")
	add(r.MIG == invalid, "WholeGPU")
	add(r.MIG == unsupported, "NoMIG")
	add(r.Who == MIGConfig, "MIGConfig")
	add(r.API == "SET_APPLICATION_CLOCKS", "ApplicationsClocks")
	add(r.API == "SET_AUTO_BOOSTED_CLOCKS", "AutoBoostedClocks")
	return out
}
