package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/model"
	"github.com/nvmlfab/nvmlfab/generator/requirements"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// consumers counts, per function without its version suffix, the public programs that call it.
//
//go:embed consumers.tsv
var consumers string

// coverage counts the symbols, and how many of them are implemented.
type coverage struct {
	Symbols     int `json:"symbols"`
	Implemented int `json:"implemented"`
	Stubs       int `json:"stubs"`
}

func (c *coverage) add(implemented bool) {
	c.Symbols++
	if implemented {
		c.Implemented++
	} else {
		c.Stubs++
	}
}

func (c coverage) share() string {
	return fmt.Sprintf("%.1f %%", 100*float64(c.Implemented)/float64(c.Symbols))
}

type versionCoverage struct {
	NVML   string `json:"nvml"`
	Driver int    `json:"driver"`
	coverage
}

type familyCoverage struct {
	Family string `json:"family"`
	coverage
}

// families sorts symbols by subject; the first pattern that matches decides.
var families = []struct{ name, pattern string }{
	{"MIG", `^nvml(GpuInstance|ComputeInstance|Device.*(Mig|GpuInstance|ComputeInstance))`},
	{"vGPU", `[vV]gpu|GridLicensable|HostVgpu`},
	{"NVLink", `Nv[lL]ink`},
	{"GPM", `^nvmlGpm`},
	{"events", `Event`},
	{"units", `^nvmlUnit`},
	{"confidential computing", `ConfCompute`},
	{"power and clocks", `Power|Clock|Clk|Pstate|PState|Performance|Perf|Energy`},
	{"health", `Ecc|Retired|Remap|Repair|Violation|Health|CPER|PRM|BBX`},
	{"processes", `Process|Accounting|Samples`},
	{"device", `^nvmlDevice`},
	{"system", ``},
}

var familyPatterns = func() (out []*regexp.Regexp) {
	for _, f := range families {
		out = append(out, regexp.MustCompile(f.pattern))
	}
	return out
}()

func family(symbol string) int {
	return slices.IndexFunc(familyPatterns, func(r *regexp.Regexp) bool { return r.MatchString(symbol) })
}

// version counts the symbols of one version.
func (p *project) version(v headers.Version) versionCoverage {
	c := versionCoverage{NVML: v.NVML, Driver: v.Driver}
	in := p.input(v.NVML)
	for _, s := range in.Exported() {
		c.add(in.Implemented(s))
	}
	return c
}

func (p *project) byVersion(versions []headers.Version) []versionCoverage {
	out := make([]versionCoverage, len(versions))
	for i, v := range versions {
		out[i] = p.version(v)
	}
	return out
}

// byFamily counts the symbols of one version by subject.
func (p *project) byFamily(v headers.Version) []familyCoverage {
	out := make([]familyCoverage, len(families))
	for i, f := range families {
		out[i].Family = f.name
	}
	in := p.input(v.NVML)
	for _, s := range in.Exported() {
		out[family(s.Name)].add(in.Implemented(s))
	}
	return out
}

func (p *project) statsLine(out io.Writer, v headers.Version) error {
	c := p.version(v)
	_, err := fmt.Fprintf(out, "NVML %s: %d symbols, %d implemented, %d stubs (%s)\n", c.NVML, c.Symbols, c.Implemented, c.Stubs, c.share())
	return err
}

// statsTable prints the coverage of versions, and that of the last one by family.
func (p *project) statsTable(out io.Writer, versions []headers.Version) error {
	newest := versions[len(versions)-1]
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "NVML\tdriver\tsymbols\timplemented\tstubs\tshare\t")
	for _, c := range p.byVersion(versions) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t\n", c.NVML, c.Driver, c.Symbols, c.Implemented, c.Stubs, c.share())
	}
	fmt.Fprintf(w, "\t\t\t\t\t\t\nfamily of %s\t\tsymbols\timplemented\tstubs\tshare\t\n", newest.NVML)
	for _, c := range p.byFamily(newest) {
		if c.Symbols > 0 {
			fmt.Fprintf(w, "%s\t\t%d\t%d\t%d\t%s\t\n", c.Family, c.Symbols, c.Implemented, c.Stubs, c.share())
		}
	}
	return w.Flush()
}

// statsJSON prints the same as JSON, with the names of the implemented symbols.
func (p *project) statsJSON(out io.Writer, versions []headers.Version) error {
	newest := versions[len(versions)-1]
	names := []string{}
	requires := map[string]requirements.Requirement{}
	in := p.input(newest.NVML)
	for _, s := range in.Exported() {
		requires[s.Name] = p.requires.Of(s)
		if in.Implemented(s) {
			names = append(names, s.Name)
		}
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Versions    []versionCoverage                   `json:"versions"`
		Families    []familyCoverage                    `json:"families"`
		Implemented []string                            `json:"implemented"`
		Requires    map[string]requirements.Requirement `json:"requires"` // by symbol
	}{p.byVersion(versions), p.byFamily(newest), names, requires})
}

var versionSuffix = regexp.MustCompile(`_v\d+$`)

// wanted reads consumers.tsv.
func wanted() (map[string]int, error) {
	out := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(consumers), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, count, _ := strings.Cut(line, "\t")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, fmt.Errorf("generator/consumers.tsv:%d: want NAME<tab>COUNT, have %q", i+1, line)
		}
		out[name] = n
	}
	return out, nil
}

// missing lists the stubs of a version, each with the signature of the Go function that would retire it. Those that the programs of
// traces called most often come first, then those with the most consumers.
func (p *project) missing(out io.Writer, v headers.Version, traces []string) error {
	count, err := wanted()
	if err != nil {
		return err
	}
	calls, err := called(traces)
	if err != nil {
		return err
	}
	in := p.input(v.NVML)
	stubs := slices.DeleteFunc(in.Exported(), in.Implemented)
	callers := func(s *binding.Symbol) int { return count[versionSuffix.ReplaceAllString(s.Name, "")] }
	type row struct {
		calls, callers    int
		name, who, advice string
	}
	var rows []row
	for _, s := range stubs {
		rows = append(rows, row{calls[s.Name], callers(s), s.Name, string(p.requires.Of(s).Who), s.Signature()})
	}
	for name, n := range calls { // entries of nvidia-smi's table, of which only some are known
		if at := slices.IndexFunc(in.Symbols, func(s *binding.Symbol) bool { return s.Name == name }); unknownSlot.MatchString(name) && (at < 0 || !in.Implemented(in.Symbols[at])) {
			rows = append(rows, row{n, 0, name, "", "an entry of nvidia-smi's table: find out what it means, and declare it in nvml-headers/slots.h"})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(b.calls-a.calls, b.callers-a.callers, strings.Compare(a.name, b.name))
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	traced := len(traces) > 0
	if traced {
		fmt.Fprint(w, "calls\t")
	}
	fmt.Fprintln(w, "consumers\tstub\twho may call it\tthe function that retires it")
	for _, r := range rows {
		if traced {
			fmt.Fprintf(w, "%d\t", r.calls)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", r.callers, r.name, r.who, r.advice)
	}
	return w.Flush()
}

var (
	tracedCall  = regexp.MustCompile(`^(?:\d+(?:/\d+)? |\{.*"call":")(nvml\w+)["(]`)
	unknownSlot = regexp.MustCompile(`^nvmlInternalSlot\d+$`)
)

// called counts the calls of each function in traces, as text or as JSON.
func called(traces []string) (map[string]int, error) {
	out := map[string]int{}
	for _, path := range traces {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		found := false
		for line := range strings.Lines(string(text)) {
			if m := tracedCall.FindStringSubmatch(line); m != nil {
				out[m[1]]++
				found = true
			}
		}
		if !found {
			return nil, fmt.Errorf("--trace: %s has no calls in it; nvmlfab trace -o FILE -- PROGRAM writes some", path)
		}
	}
	return out, nil
}

// goldens renders the prototype of every symbol and every layout, for each version. Goldens do not depend on which
// symbols are implemented.
func (p *project) goldens() map[string][]byte {
	out := map[string][]byte{}
	for i, v := range p.Versions {
		var b strings.Builder
		fmt.Fprintf(&b, "NVML %s\n\n", v.NVML)
		for _, f := range p.Headers[i].Functions {
			fmt.Fprintln(&b, f.Prototype())
		}
		b.WriteString("\n")
		for _, t := range p.Headers[i].Types {
			if t.Kind == model.Struct || t.Kind == model.Union {
				fmt.Fprintf(&b, "%s %s: %d bytes\n", t.Kind, t.Name, t.Size)
				for _, f := range t.Fields {
					fmt.Fprintf(&b, "  %6d  %s\n", f.Offset, f.Type.Declare(f.Name))
				}
			}
		}
		out[v.NVML+".golden"] = []byte(b.String())
	}
	return out
}

func (p *project) updateGoldens() error { return write(p.path(goldenDir), p.goldens()) }
