// Command generator compiles NVIDIA's nvml.h into nvmlfab: every exported function becomes
// a stub that answers NOT_SUPPORTED, unless a function in handwritten/ is registered for it.
// It reads the committed models, the header of the newest version, and handwritten/ as source.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

const usage = `usage: go run ./generator [flags]

Without flags it regenerates generated/. Then:
  --update           also rewrite the goldens: models, symbols and layouts of every version
  --check            write nothing; fail if anything committed is stale
  --stats            print coverage per NVML version and family  (--json, --line)
  --missing          list the stubs, most wanted first
  --nvml VERSION     a version or an unambiguous beginning of one, for the three below
  --header           print the path of its nvml.h, fetched and checked
  --version-of       print its whole version
  --front DIR        write the C sources of its front into DIR
`

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("generator", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	var (
		update    = flags.Bool("update", false, "")
		check     = flags.Bool("check", false, "")
		stats     = flags.Bool("stats", false, "")
		asJSON    = flags.Bool("json", false, "")
		line      = flags.Bool("line", false, "")
		missing   = flags.Bool("missing", false, "")
		nvml      = flags.String("nvml", "", "")
		header    = flags.Bool("header", false, "")
		versionOf = flags.Bool("version-of", false, "")
		front     = flags.String("front", "", "")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see go run ./generator --help", flags.Arg(0))
	}
	version, err := headers.Find(*nvml)
	if err != nil {
		return err
	}
	switch {
	case *versionOf:
		fmt.Fprintln(out, version.NVML)
		return nil
	case *header:
		path, err := version.Path()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, path)
		return nil
	}

	root, err := findRoot()
	if err != nil {
		return err
	}
	if *update {
		if err := updateModels(root); err != nil {
			return err
		}
	}
	p, err := load(root)
	if err != nil {
		return err
	}
	switch {
	case *stats && *line:
		return p.statsLine(out)
	case *stats && *asJSON:
		return p.statsJSON(out)
	case *stats:
		return p.statsTable(out)
	case *missing:
		return p.missing(out)
	case *front != "":
		return p.writeFront(version, *front)
	case *check:
		return p.check()
	}
	if *update {
		if err := p.updateGoldens(); err != nil {
			return err
		}
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
