package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/capture"
)

type captureCmd struct {
	Output          string        `short:"o" placeholder:"FILE" help:"The profile; standard output if absent."`
	Library         string        `placeholder:"FILE" help:"The library; without it, the libnvidia-ml.so.1 that programs find."`
	KeepIdentifiers bool          `help:"Keep UUIDs, serial numbers and other identifiers, and the folders of programs, in place of made-up ones."`
	Timeout         time.Duration `default:"1m" help:"How long a call may take."`
}

func (captureCmd) Help() string {
	return `It calls every function of the library that only reads, on every GPU, MIG instance, vGPU and unit, and writes a profile with
which nvmlfab answers alike. Each value has a comment with the call and the driver that it is from. Identifiers are replaced by
made-up ones. Then it asks nvmlfab's own library with that profile the same, and tells on standard error what differs: what no
key of a profile can say. Values that change by themselves are captured as they are at that moment. Nothing on the machine is changed.
Example:

    nvmlfab capture -o mine.yaml
    nvmlfab run --profile mine.yaml -- nvidia-smi`
}

// most are the functions that may crash or hang before the capture gives up.
const (
	mostCrashes = 16
	mostHangs   = 2
)

func (c captureCmd) Run() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout: want a time such as 30s, not %s", c.Timeout)
	}
	if err := c.writable(); err != nil {
		return err
	}
	source := &source{library: c.library(), env: os.Environ(), timeout: c.Timeout, errors: os.Stderr, skip: map[string]bool{}}
	defer source.close()
	first, err := source.walk()
	if err != nil {
		return source.explain(err)
	}
	second, err := source.walk()
	if err != nil {
		return source.explain(err)
	}
	if first.GPUs == 0 {
		return fmt.Errorf("%s has no GPU, so there is nothing to capture", source.path)
	}
	options := capture.Options{KeepIdentifiers: c.KeepIdentifiers}
	profile, compared, err := c.make(first, capture.Moving(first, second), options)
	if err != nil {
		return err
	}
	if err := writeOutput(c.Output, profile); err != nil {
		return err
	}
	for _, note := range source.notes {
		fmt.Fprintf(os.Stderr, "nvmlfab: %s\n", note)
	}
	if len(first.Missing) > 0 {
		fmt.Fprintf(os.Stderr, "nvmlfab: %s does not have %s\n", source.path, strings.Join(first.Missing, ", "))
	}
	for _, d := range compared.Different {
		fmt.Fprintf(os.Stderr, "nvmlfab: not in the profile: %s\n", d)
	}
	fmt.Fprintf(os.Stderr, "nvmlfab: %d GPUs, %d functions, %d calls: %d values are the same with the profile, %d change by themselves, %d differ\n",
		first.GPUs, compared.Functions, compared.Calls, compared.Values-len(compared.Different), compared.Moving, len(compared.Different))
	return nil
}

// make makes the profile, and compares what nvmlfab's library answers with it.
func (c captureCmd) make(walk *capture.Walk, moving map[string]bool, options capture.Options) ([]byte, *capture.Comparison, error) {
	profile, err := capture.Profile(walk, options, nil)
	if err != nil {
		return nil, nil, err
	}
	compared, err := c.compare(walk, profile, moving, options)
	if err != nil {
		return nil, nil, err
	}
	more := capture.Errors(walk, compared.Different)
	if len(more) == 0 {
		return profile, compared, nil
	}
	if profile, err = capture.Profile(walk, options, more); err != nil {
		return nil, nil, err
	}
	compared, err = c.compare(walk, profile, moving, options)
	return profile, compared, err
}

// compare asks nvmlfab's library with a profile.
func (c captureCmd) compare(walk *capture.Walk, profile []byte, moving map[string]bool, options capture.Options) (*capture.Comparison, error) {
	if _, err := profiles.Parse("profile", profile); err != nil {
		return nil, fmt.Errorf("what the library answers makes no valid profile: %w", err)
	}
	dir, err := os.MkdirTemp("", "nvmlfab-capture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "profile.yaml")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NVMLFAB_") || strings.HasPrefix(v, "MOCK_") })
	own := &source{
		library: filepath.Join(home(), "lib", "libnvidia-ml.so.1"), env: append(env, profileFile+"="+file), timeout: c.Timeout, errors: &said,
		skip: map[string]bool{},
	}
	defer own.close()
	replay, err := own.walk()
	if err != nil {
		return nil, fmt.Errorf("nvmlfab's library with the new profile: %w: %s", own.explain(err), strings.TrimSpace(said.String()))
	}
	return capture.Compare(walk, replay, moving, options), nil
}
