// Command generator compiles NVIDIA's nvml.h into nvmlfab: every exported function becomes
// a stub that answers NOT_SUPPORTED, unless a function in handwritten/ is registered for it.
// It reads the committed models and numbers, the header of the newest version, and handwritten/ as source.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// flags are the command-line flags. Each of those up to Front selects one action, which run performs; without any of
// them run regenerates generated/.
type flags struct {
	Update    bool    `help:"Regenerate, after rewriting the models and the golden files and appending numbers of new symbols."`
	Check     bool    `help:"Write nothing; fail if anything committed is stale."`
	Stats     bool    `help:"Print coverage by NVML version and by family, as a table."`
	Missing   bool    `help:"List the stubs, most wanted first, each with the Go function that retires it."`
	Header    bool    `help:"Print the path of a version's nvml.h, fetched and checked."`
	VersionOf bool    `help:"Print the whole version that --nvml names."`
	Front     *string `help:"Write the C sources of a version's front into DIR." placeholder:"DIR"`
	Tables    *string `help:"Write what nvmlfab trace knows of all functions into DIR, in C." placeholder:"DIR"`

	JSON  bool     `name:"json" help:"With --stats: JSON, with the names of the implemented symbols."`
	Line  bool     `help:"With --stats: one line for one version."`
	Trace []string `name:"trace" help:"With --missing: the stubs that programs called first, by what nvmlfab trace -o FILE wrote. Can be given for several traces." placeholder:"FILE" sep:"none"`

	NVML string `name:"nvml" help:"With --stats, --missing, --header, --version-of or --front: that version, or an unambiguous beginning of it, in place of the newest." placeholder:"VERSION"`
}

// Help is what --help prints before the flags.
func (flags) Help() string {
	return `Without flags the generator regenerates generated/. Examples:

    go run ./generator                                after a change in handwritten/
    go run ./generator --update                       after a change in nvml-headers/ or generator/ too
    go run ./generator --check                        in CI
    go run ./generator --stats                        how much is there; --stats --nvml 12.4 for one version
    go run ./generator --stats --json                 the same for programs
    go run ./generator --stats --line                 the same for people in a hurry
    go run ./generator --missing | head               what to write next
    go run ./generator --missing --trace calls.txt    what that program asked for in vain, the most often called first
    go run ./generator --nvml 12.4 --header           where that nvml.h is
    go run ./generator --nvml 12.4 --version-of       12.4.127
    go run ./generator --nvml 12.4 --front /tmp/front the C of libnvidia-ml.so.1 as driver 550 has it
    go run ./generator --tables /tmp/trace            the tables of libnvmlfab-trace.so`
}

// Validate refuses flags that contradict each other, and says what to do instead.
func (f flags) Validate() error {
	var modes []string
	for _, mode := range []struct {
		name  string
		asked bool
	}{
		{"--update", f.Update}, {"--check", f.Check}, {"--stats", f.Stats}, {"--missing", f.Missing},
		{"--header", f.Header}, {"--version-of", f.VersionOf}, {"--front", f.Front != nil}, {"--tables", f.Tables != nil},
	} {
		if mode.asked {
			modes = append(modes, mode.name)
		}
	}
	switch {
	case len(modes) > 1:
		return fmt.Errorf("%s ask for different things; run the generator once for each", strings.Join(modes, " and "))
	case f.JSON && f.Line:
		return fmt.Errorf("--json and --line are two forms of --stats; choose one")
	case f.JSON && !f.Stats:
		return fmt.Errorf("--json is a form of --stats; add --stats")
	case f.Line && !f.Stats:
		return fmt.Errorf("--line is a form of --stats; add --stats")
	case len(f.Trace) > 0 && !f.Missing:
		return fmt.Errorf("--trace orders the list of --missing; add --missing")
	case f.NVML != "" && f.Tables != nil:
		return fmt.Errorf("--tables are one for all versions, so leave --nvml out")
	case f.NVML != "" && (len(modes) == 0 || f.Update || f.Check):
		return fmt.Errorf("--nvml goes with --stats, --missing, --header, --version-of or --front; " +
			"generated/ is always of the newest version, so leave --nvml out")
	case f.Front != nil && *f.Front == "":
		return fmt.Errorf("--front wants a folder, and its name is empty")
	case f.Tables != nil && *f.Tables == "":
		return fmt.Errorf("--tables wants a folder, and its name is empty")
	}
	return nil
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var f flags
	helped := false
	parser := kong.Must(&f, kong.Name("go run ./generator"), kong.Description("Compiles nvml.h into generated/."),
		kong.Writers(out, out), kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))
	_, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; see go run ./generator --help", err)
	}
	version, err := headers.Find(f.NVML)
	if err != nil {
		return err
	}
	switch {
	case f.VersionOf:
		_, err := fmt.Fprintln(out, version.NVML)
		return err
	case f.Header:
		path, err := version.Path()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, path)
		return err
	}

	root, err := findRoot()
	if err != nil {
		return err
	}
	if f.Update {
		if err := updateModels(root); err != nil {
			return err
		}
	}
	p, err := load(root)
	if err != nil {
		return err
	}
	reported := p.Versions // by --stats
	if f.NVML != "" {
		reported = []headers.Version{version}
	}
	switch {
	case f.Stats && f.Line:
		return p.statsLine(out, version)
	case f.Stats && f.JSON:
		return p.statsJSON(out, reported)
	case f.Stats:
		return p.statsTable(out, reported)
	case f.Missing:
		return p.missing(out, version, f.Trace)
	case f.Front != nil:
		return p.writeFront(version, *f.Front)
	case f.Tables != nil:
		return p.writeTables(*f.Tables)
	case f.Check:
		return p.check()
	case f.Update:
		if err := p.updateGoldens(); err != nil {
			return err
		}
	}
	if err := newSlots(p.Slots, headers.Slots); err != nil {
		return err
	}
	return p.generate()
}

// findRoot is the folder with go.mod above the working directory.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("no go.mod above the working directory; run the generator inside the source tree")
		}
		dir = filepath.Dir(dir)
	}
}
