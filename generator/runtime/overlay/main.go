// Command overlay writes what go build -overlay needs to link the core with a Go runtime that leaves its host alone in two
// ways more than a setting can make it:
//
//   - Its threads keep SIGCHLD, SIGPROF and the first real-time signal blocked. They would otherwise take them from a host
//     that blocks them and reads them from a signalfd.
//   - It opens no descriptors to sleep on. A host that closes all of its own would otherwise be ended by the next collection.
//
// Both are changes of files that belong to one release of Go. With another release the core is linked with the runtime as
// it is, and one line says so.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// release is the release of Go whose files the overlay knows.
const release = "go1.26"

//go:embed _netpoll.go
var netpoll []byte

// taken are the lines of the table of signals that the runtime unblocks and has no use for here. What remains are faults,
// and the two signals that belong to the C library.
var taken = regexp.MustCompile(`(?m)^(.*) \+ _SigUnblock(.*"(?:SIGSTKFLT|SIGCHLD|SIGPROF|signal 34)\b.*)$`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: overlay DIR")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	replace := map[string]string{}
	out, err := exec.Command("go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	version, goroot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if version != release && !strings.HasPrefix(version, release+".") {
		fmt.Fprintf(os.Stderr, "overlay: the core wants the runtime of %s and gets that of %s: it keeps two descriptors and takes signals from a signalfd\n", release, version)
	} else {
		runtime := filepath.Join(goroot, "src", "runtime")
		table, err := os.ReadFile(filepath.Join(runtime, "sigtab_linux_generic.go"))
		if err != nil {
			return err
		}
		for name, text := range map[string][]byte{
			"sigtab_linux_generic.go": taken.ReplaceAll(table, []byte("$1$2")),
			"netpoll_epoll.go":        netpoll,
		} {
			replace[filepath.Join(runtime, name)] = filepath.Join(dir, name)
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}
