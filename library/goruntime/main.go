// Command overlay writes what go build -overlay needs to link with a Go runtime that leaves its process alone in ways that
// no setting can make it.
//
// A library's (overlay library DIR):
//
//   - It handles no signal, not even while it is being loaded: a handler that is called in that moment puts itself back
//     afterwards, and a Go host whose SIGURG it answers hangs. And its threads unblock none. They would otherwise take
//     SIGCHLD, SIGPROF and the first real-time signal from a host that blocks them and reads them from a signalfd.
//   - It opens no descriptors to sleep on. A host that closes all of its own would otherwise be ended by the next collection.
//
// That of a program which only becomes another (overlay exec DIR):
//
//   - It handles no signal and unblocks none, so that the other program finds them as they were.
//   - It opens nothing in the place of standard input, output or error where one is closed.
//
// All are changes of files that belong to one release of Go. With another release the runtime stays as it is, and one line
// says so.
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
var netpoll string

// change makes one file of the runtime another.
type change struct {
	file string
	edit func(text string) string
}

// flags are those of every line of the table of signals. A line with none is a signal that the runtime leaves alone.
var flags = regexp.MustCompile(`(?m)^(\t/\* [0-9]+ \*/ )\{[^"]*"`)

var noSignals = change{"sigtab_linux_generic.go", func(text string) string { return flags.ReplaceAllString(text, `${1}{0, "`) }}

// changes are those of each kind of build.
var changes = map[string][]change{
	"library": {
		noSignals,
		{"netpoll_epoll.go", func(string) string { return netpoll }},
	},
	"exec": {
		noSignals,
		{"fds_unix.go", func(text string) string {
			return strings.Replace(text, "func checkfds() {", "func checkfds() {\n\treturn", 1)
		}},
	},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || changes[args[0]] == nil {
		return fmt.Errorf("usage: overlay library|exec DIR")
	}
	dir, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	out, err := exec.Command("go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	version, goroot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	replace := map[string]string{}
	if version != release && !strings.HasPrefix(version, release+".") {
		fmt.Fprintf(os.Stderr, "overlay: wants the runtime of %s and gets that of %s, which changes signals and descriptors of its process\n", release, version)
	} else {
		for _, c := range changes[args[0]] {
			path := filepath.Join(goroot, "src", "runtime", c.file)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			changed := c.edit(string(text))
			if changed == string(text) {
				return fmt.Errorf("%s is not the file of %s that the overlay knows", path, release)
			}
			replace[path] = filepath.Join(dir, c.file)
			if err := os.WriteFile(replace[path], []byte(changed), 0o644); err != nil {
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
