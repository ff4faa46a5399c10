// Command bench compares the library with two floors in one run: a stub library in C, and the smallest Go c-shared
// library. Since machines are noisy, it alternates between the two and compares the median of the ratios, which it
// prints with their spread. It exits with 1 if a limit is exceeded.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mark is one line of the table: what is measured, the floor, and the highest ratio allowed.
type mark struct {
	name  string
	mode  string
	floor string
	limit float64
	yaml  bool // with a profile file of 400 lines instead of a shipped board
}

// In the modes inert and active the floor is a stat that does nothing, and ours is the same stat called through libmockfs. In
// the mode kernel the floor is a real call without libmockfs. The modes infiniband and infiniband-kernel are inert and kernel for
// the InfiniBand libraries, all of which are preloaded but not turned on. The words after these modes are arguments of
// tests/testdata/mockfs/cost.c.
var marks = []mark{
	{"stub, per call", "stub", "c", 2.5, false},
	{"getter, per call", "getter1", "go", 1.5, false},
	{"getter, four threads", "getter4", "go", 2, false},
	{"process: load, init, count, shutdown", "process", "go", 1.3, false},
	{"the same with a 400-line profile file", "process", "go", 3, true},
	{"resident memory after init", "rss", "go", 1.65, false},
	{"size of front and core", "size", "go", 5, false},
	{"stat, libmockfs inert", "inert stat static", "stat", 3, false},
	{"stat, libmockfs active, other path", "active stat static", "stat", 3, false},
	{"the same, path on the stack", "active stat stack", "stat", 3, false},
	{"the same, path on the heap", "active stat heap", "stat", 3, false},
	{"the same, path in mapped memory", "active stat mapped", "stat", 3, false},
	{"the same with the kernel's stat", "kernel stat heap", "none", 1.3, false},
	{"the same with the kernel's open", "kernel open heap", "none", 2, false},
	{"stat, InfiniBand's libraries without MOCK_IB", "infiniband stat static", "stat", 3, false},
	{"the same with the kernel's stat", "infiniband-kernel stat heap", "none", 1.3, false},
}

func main() {
	pairs := flag.Int("pairs", 15, "interleaved pairs per line")
	gate := flag.Bool("gate", false, "measure the NVENC filter's hook alone")
	only := flag.String("only", "", "measure only the lines of the libraries whose name contains `TEXT`")
	flag.Parse()
	var missed int
	var err error
	if !*gate {
		missed, err = run(*pairs, *only)
	}
	if err == nil && *only == "" {
		var more int
		more, err = gates(*pairs)
		missed += more
	}
	if err == nil && missed > 0 {
		err = fmt.Errorf("marks missed: %d", missed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// So many GPUs must start within manyLimit, measured for nvmlInit alone.
const (
	many      = 1000
	manyLimit = 100 * time.Millisecond

	manyReaders = 7 // pairs for the readers, which take seconds each
)

func run(pairs int, only string) (missed int, err error) {
	dir, err := os.MkdirTemp("", "nvmlfab-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, library: "dist/lib/libnvidia-ml.so.1"}
	if err := b.build(); err != nil {
		return 0, err
	}
	fmt.Printf("%-38s %10s %10s %7s %15s %6s\n", "", "nvmlfab", "floor", "ratio", "spread", "mark")
	for _, m := range marks {
		if !strings.Contains(m.name, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring: %s, %d pairs\r", m.name, pairs)
		ours, floor, ratios, err := b.compare(m, pairs)
		if err != nil {
			return missed, err
		}
		verdict := ""
		if median(ratios) > m.limit {
			verdict = "  missed"
			missed++
		}
		fmt.Printf("%-38s %10s %10s %6.2fx %6.2f … %-6.2f %5.2fx%s\n", m.name, m.show(median(ours)), m.show(median(floor)),
			median(ratios), slices.Min(ratios), slices.Max(ratios), m.limit, verdict)
	}
	if only != "" {
		return missed, nil
	}
	more, err := b.readers(min(pairs, manyReaders))
	if missed += more; err != nil {
		return missed, err
	}
	var times []float64
	for range pairs {
		t, err := b.measure("init", b.library, []string{"MOCK_NVML_CONFIG=" + b.path("many.yaml")})
		if err != nil {
			return missed, err
		}
		times = append(times, t)
	}
	verdict := ""
	if median(times) > float64(manyLimit) {
		verdict = "  missed"
		missed++
	}
	fmt.Printf("%-38s %7.2f ms %18s %6.2f … %-6.2f %3.0f ms%s\n", fmt.Sprintf("nvmlInit with %d GPUs", many),
		median(times)/1e6, "", slices.Min(times)/1e6, slices.Max(times)/1e6, manyLimit.Seconds()*1e3, verdict)
	return missed, nil
}

func (m mark) show(v float64) string {
	switch m.mode {
	case "process":
		return fmt.Sprintf("%.2f ms", v/1e6)
	case "rss", "size":
		return fmt.Sprintf("%.1f MB", v/1024)
	}
	return fmt.Sprintf("%.1f ns", v)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

type bench struct {
	dir, library string
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// build makes the floors, the probe and a long profile file.
func (b *bench) build() error {
	header, err := command(nil, "go", "run", "./generator", "--header")
	if err != nil {
		return err
	}
	include := filepath.Dir(strings.TrimSpace(header))
	for _, c := range [][]string{
		{"gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", include, "-o", b.path("c.so"), "tests/bench/testdata/floor.c"},
		{"gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", include, "-o", b.path("probe"), "tests/bench/testdata/probe.c"},
		{"gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-DSTUB", "-o", b.path("stat.so"), "tests/testdata/mockfs/cost.c"},
		{"gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", b.path("cost"), "tests/testdata/mockfs/cost.c"},
		{"go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags", "-s -w", "-o", b.path("go.so"), "./tests/bench/floor"},
	} {
		if _, err := command(nil, c[0], c[1:]...); err != nil {
			return err
		}
	}
	profile := fmt.Sprintf("extends: h100\ncount: %d\n", many)
	if err := os.WriteFile(b.path("many.yaml"), []byte(profile), 0o644); err != nil {
		return err
	}
	return os.WriteFile(b.path("long.yaml"), longProfile(), 0o644)
}

// longProfile is a valid profile of 400 lines: devices with their own names and limits.
func longProfile() []byte {
	var out bytes.Buffer
	out.WriteString("extends: h100\ndevices:\n")
	for i := 0; bytes.Count(out.Bytes(), []byte("\n")) < 394; i++ {
		fmt.Fprintf(&out, "  - index: %d\n    name: NVIDIA H100 80GB HBM3\n    power:\n      enforced_limit_mw: 700000\n    thermal:\n      temperature_gpu_c: %d\n", i, 25+i%30)
	}
	return out.Bytes()
}

// compare alternates between the library and the floor.
func (b *bench) compare(m mark, pairs int) (ours, floor, ratios []float64, err error) {
	var env []string
	if m.yaml {
		env = append(env, "MOCK_NVML_CONFIG="+b.path("long.yaml"))
	}
	for i := -1; i < pairs; i++ { // the first pair warms up
		a, err := b.measure(m.mode, b.library, env)
		if err != nil {
			return nil, nil, nil, err
		}
		f, err := b.measure(m.mode, b.path(m.floor+".so"), nil)
		if err != nil {
			return nil, nil, nil, err
		}
		if i >= 0 {
			ours, floor, ratios = append(ours, a), append(floor, f), append(ratios, a/f)
		}
	}
	return ours, floor, ratios, nil
}

// measure runs the probe once. A mode that measures whole processes takes the best of ten, since noise only adds time.
func (b *bench) measure(mode, library string, env []string) (float64, error) {
	if words := strings.Fields(mode); len(words) > 1 {
		return b.cost(words[0], library == b.library, words[1:])
	}
	if mode == "size" {
		return size(library, library == b.library)
	}
	if mode != "process" {
		out, err := command(env, b.path("probe"), library, mode)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(out), 64)
	}
	best := time.Hour
	for range 10 {
		start := time.Now()
		if _, err := command(env, b.path("probe"), library, mode); err != nil {
			return 0, err
		}
		best = min(best, time.Since(start))
	}
	return float64(best), nil
}

// size is that of a library in KiB, with the core that ours loads.
func size(library string, core bool) (float64, error) {
	files := []string{library}
	if core {
		files = append(files, filepath.Join(filepath.Dir(library), "libnvmlfab-core.so.1"))
	}
	sum := int64(0)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return float64(sum) / 1024, nil
}

// cost times a call with a path, with libmockfs (ours) or without it (the floor).
func (b *bench) cost(mode string, ours bool, args []string) (float64, error) {
	var env, preload []string
	mode, infiniband := strings.CutPrefix(mode, "infiniband")
	mode = cmp.Or(strings.TrimPrefix(mode, "-"), "inert")
	switch {
	case ours && infiniband:
		preload = append(preload, "dist/lib/libibmockumad.so", "dist/lib/libibmockverbs.so", "dist/lib/libibmocksys.so")
	case ours:
		preload = append(preload, "dist/lib/libmockfs.so")
	}
	if mode != "kernel" {
		preload = append(preload, b.path("stat.so"))
	}
	if ours && mode != "inert" && !infiniband {
		env = append(env, "MOCK_PCI_ROOT="+b.dir)
	}
	out, err := command(append(env, "LD_PRELOAD="+strings.Join(preload, ":")), b.path("cost"), args...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

func command(env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, stderr.String())
	}
	return string(out), nil
}
