package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generator/binding"
	"github.com/nvmlfab/nvmlfab/generator/registry"
)

// readerLimit is how many times as much the machine itself may gain from eight threads as the readers do.
const readerLimit = 1.35

// readers compares eight threads that ask every getter about each of 64 GPUs with one thread that does: how many times as many calls are
// answered in the same time. The floor are threads that only compute, since cores are shared and not always free.
func (b *bench) readers(pairs int) (missed int, err error) {
	if err := b.buildReaders(); err != nil {
		return 0, err
	}
	var ours, floor, ratios []float64
	for i := -1; i < pairs; i++ { // the first pair warms up
		out, err := command([]string{"MOCK_NVML_CONFIG=" + b.path("readers.yaml")}, b.path("readers"), b.library)
		if err != nil {
			return 0, err
		}
		var a, f float64
		if _, err := fmt.Sscan(out, &a, &f); err != nil {
			return 0, fmt.Errorf("readers print %q: %w", out, err)
		}
		if i >= 0 {
			ours, floor, ratios = append(ours, a), append(floor, f), append(ratios, f/a)
		}
	}
	verdict := ""
	if median(ratios) > readerLimit {
		verdict = "  missed"
		missed++
	}
	fmt.Printf("%-38s %9.2fx %9.2fx %6.2fx %6.2f … %-6.2f %5.2fx%s\n", fmt.Sprintf("eight readers of 64 GPUs, %d cores", runtime.NumCPU()),
		median(ours), median(floor), median(ratios), slices.Min(ratios), slices.Max(ratios), readerLimit, verdict)
	return missed, nil
}

// buildReaders compiles the program with a table of the getters that are implemented.
func (b *bench) buildReaders() error {
	table, err := getters(".")
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.path("getters.h"), []byte(table), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(b.path("readers.yaml"), []byte("extends: h100\ncount: 64\n"), 0o644); err != nil {
		return err
	}
	_, err = command(nil, "gcc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", b.dir, "-o", b.path("readers"),
		"tests/bench/testdata/readers.c")
	return err
}

// getters renders a table of all functions that read something of a GPU and want no other handle.
func getters(root string) (string, error) {
	_, symbols, err := binding.Load(root)
	if err != nil {
		return "", err
	}
	functions, err := registry.Read(root, "handwritten", symbols)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("static const struct getter getters[] = {\n")
	for _, s := range symbols {
		if !strings.HasPrefix(s.Name, "nvmlDeviceGet") || functions.Func(s.Name) == "" || !ofDevices(s) {
			continue
		}
		fmt.Fprintf(&out, "\t{\"%s\", %d, {", s.Name, len(s.Args))
		for _, a := range s.Args {
			var version uint32
			if len(a.Versions) > 0 {
				version = a.Versions[len(a.Versions)-1].Version
			}
			size := a.Extent
			if a.Type.Stars > 0 {
				size = max(size, s.Header.SizeOf(a.Type.Elem()))
			}
			fmt.Fprintf(&out, "{%s, %d, %d, %d, %#x}, ", strings.ToUpper(string(a.Role)), a.At, a.Size, max(size, int64(version&0xffffff)), version)
		}
		out.WriteString("}},\n")
	}
	out.WriteString("};\n")
	return out.String(), nil
}

// ofDevices says whether a function wants a device first, and no handle of anything else.
func ofDevices(s *binding.Symbol) bool {
	for i, a := range s.Args {
		if device := a.Role == binding.ByHandle && a.Type.Name == "nvmlDevice_t"; i == 0 && !device || a.Role == binding.ByHandle && !device {
			return false
		}
	}
	return len(s.Args) > 0
}
