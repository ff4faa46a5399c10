package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// gateMark is a line in the table of the NVENC filter: it compares an ioctl through the hook with the same ioctl made
// directly.
type gateMark struct {
	name, program, call string
	limit               float64 // 0: no limit, since the hook has work to do
}

var gateMarks = []gateMark{
	{"ioctl stubbed, another call", "stub", "other", 2.5},
	{"ioctl stubbed, RM control", "stub", "control", 2.5},
	{"ioctl stubbed, an enumeration", "stub", "enumeration", 0},
	{"seccomp answers, another call", "door", "other", 2.5},
	{"seccomp answers, RM control", "door", "control", 2.5},
	{"seccomp answers, an enumeration", "door", "enumeration", 0},
}

// gates measures the NVENC filter's hook.
func gates(pairs int) (missed int, err error) {
	dir, err := os.MkdirTemp("", "nvmlfab-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	hook := filepath.Join(dir, "libhook.so")
	flags := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations", "-I", "shims/gpufilter", "-o"}
	for _, args := range [][]string{
		{hook, "-shared", "-fPIC", "tests/bench/testdata/gatehook.c"},
		{filepath.Join(dir, "stub"), "-DSTUB", "-rdynamic", "tests/bench/testdata/gate.c", hook},
		{filepath.Join(dir, "door"), "tests/bench/testdata/gate.c", hook},
	} {
		if _, err := command(nil, "gcc", append(flags, args...)...); err != nil {
			return 0, err
		}
	}
	measure := func(m gateMark, way string) (float64, error) {
		out, err := command(nil, filepath.Join(dir, m.program), way, m.call)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(out), 64)
	}
	fmt.Printf("\n%-38s %10s %10s %7s %15s %6s\n", "NVENC filter, per call", "hook", "direct", "ratio", "spread", "mark")
	for _, m := range gateMarks {
		var ours, floor, ratios []float64
		for i := -1; i < pairs; i++ { // the first pair warms up
			a, err := measure(m, "hook")
			if err != nil {
				return missed, err
			}
			f, err := measure(m, "direct")
			if err != nil {
				return missed, err
			}
			if i >= 0 {
				ours, floor, ratios = append(ours, a), append(floor, f), append(ratios, a/f)
			}
		}
		mark := ""
		if m.limit > 0 {
			mark = fmt.Sprintf("%.1fx", m.limit)
			if median(ratios) > m.limit {
				mark += "  missed"
				missed++
			}
		}
		fmt.Printf("%-38s %7.1f ns %7.1f ns %6.2fx %6.2f … %-6.2f %6s\n", m.name, median(ours), median(floor), median(ratios),
			slices.Min(ratios), slices.Max(ratios), mark)
	}
	return missed, nil
}
