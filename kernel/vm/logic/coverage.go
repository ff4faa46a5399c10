package logic

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Coverage is how much of a file the suites execute.
type Coverage struct {
	File            string
	Lines, Executed int
	Branches, Taken int // of conditions, both ways
}

// Cover compiles the suites in dir with gcc's counters in the empty folder build, runs them, and returns the coverage of
// each C file of the logic, and of all together at last.
func Cover(dir, build string) ([]Coverage, []Suite, error) {
	suites, err := RunSuites(dir, filepath.Join(build, "suites"), []string{"-std=c11", "-O0", "--coverage"})
	if err != nil {
		return nil, suites, err
	}
	counters, err := filepath.Glob(filepath.Join(build, "*.gcda"))
	if err != nil || len(counters) == 0 {
		return nil, suites, errors.Join(err, fmt.Errorf("no counters in %q", build))
	}
	cmd := exec.Command("gcov", append([]string{"-n", "-b"}, counters...)...)
	cmd.Dir = build
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return nil, suites, fmt.Errorf("gcov: %w", err)
	}
	covered, err := parseCoverage(out, dir)
	return covered, suites, err
}

var (
	covFile     = regexp.MustCompile(`^File '(.+)'$`)
	covLines    = regexp.MustCompile(`^Lines executed:([\d.]+)% of (\d+)$`)
	covBranches = regexp.MustCompile(`^Taken at least once:([\d.]+)% of (\d+)$`)
)

// parseCoverage reads gcov's summary of each file.
func parseCoverage(text []byte, dir string) ([]Coverage, error) {
	share := func(m []string) (executed, all int) {
		percent, _ := strconv.ParseFloat(m[1], 64) // digits alone
		all, _ = strconv.Atoi(m[2])
		return int(percent*float64(all)/100 + 0.5), all
	}
	var files []Coverage
	current := -1
	for line := range bytes.Lines(text) {
		line := string(bytes.TrimSpace(line))
		if m := covFile.FindStringSubmatch(line); m != nil {
			current = -1
			path := m[1]
			if filepath.IsAbs(path) {
				if rel, err := filepath.Rel(dir, path); err == nil {
					path = rel
				}
			}
			if filepath.Dir(path) == "." && filepath.Ext(path) == ".c" {
				files, current = append(files, Coverage{File: path}), len(files)
			}
		} else if current < 0 {
			continue
		} else if m := covLines.FindStringSubmatch(line); m != nil {
			files[current].Executed, files[current].Lines = share(m)
		} else if m := covBranches.FindStringSubmatch(line); m != nil {
			files[current].Taken, files[current].Branches = share(m)
		}
	}
	if len(files) == 0 {
		return nil, errors.New("gcov names no file of the logic")
	}
	slices.SortFunc(files, func(a, b Coverage) int { return strings.Compare(a.File, b.File) })
	all := Coverage{File: "all"}
	for _, f := range files {
		all.Lines, all.Executed = all.Lines+f.Lines, all.Executed+f.Executed
		all.Branches, all.Taken = all.Branches+f.Branches, all.Taken+f.Taken
	}
	return append(files, all), nil
}

// Table is the coverage as text, a line for each file.
func Table(covered []Coverage) string {
	percent := func(part, whole int) string {
		if whole == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s  %16s  %20s\n", "file", "lines executed", "branches taken")
	for _, c := range covered {
		fmt.Fprintf(&b, "%-12s  %7s of %5d  %11s of %5d\n", c.File, percent(c.Executed, c.Lines), c.Lines, percent(c.Taken, c.Branches), c.Branches)
	}
	return b.String()
}
