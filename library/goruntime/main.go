// Command goruntime writes what go build -overlay needs to link with a Go runtime that leaves its
// process alone in ways that no setting can make it.
//
// For a library (goruntime library DIR):
//
//   - It handles no signal, not even while it is being loaded: a handler that is called in that
//     moment puts itself back afterwards, and a Go host whose SIGURG it answers hangs. And its
//     threads unblock none. They would otherwise take SIGCHLD, SIGPROF and the first real-time
//     signal from a host that blocks them and reads them from a signalfd.
//   - It leaves the limit of open files as it is. Another thread of the host's may be changing it.
//   - Its large stacks have a guard below them, since signal handlers of the host's may run on them.
//   - It opens no descriptors to sleep on. A host that closes all of its own would otherwise be
//     ended by the next collection.
//
// For a program that only becomes another (goruntime exec DIR):
//
//   - It handles no signal and unblocks none, so that the other program finds them as they were.
//   - It opens nothing in the place of standard input, output or error where one is closed.
//
// That of a program which does its own work first and may be interrupted (overlay launcher DIR) opens nothing there either.
//
// All are changes of files that belong to one release of Go, so the releases that were tried stand
// here, and each file with its hash. Any other stops the build, since a library that changes the
// signals of its process is worse than none. NVMLFAB_UNPATCHED=1 builds with the runtime as it is.
package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// releases are the releases of Go that the changes were tried with, by "go1.26" for every go1.26.x,
// and the sha256 of each file that is changed. A release in which another file differs is a further
// entry, once the tests of signals and descriptors have passed with it.
var releases = map[string]map[string]string{
	"go1.26": {
		"runtime/sigtab_linux_generic.go": "0e618e00f7d446bc55e03083f76a276e481652603d10c96e7662e943d5101513",
		"runtime/netpoll_epoll.go":        "cd94172ee133e4e522a8091818c6d82c9fdb94a9c263d5004feee114f76f9624",
		"runtime/stack.go":                "0225942ade2eed1e4ec5a0e813c66b3ed06c142c33c987b2fd9e031a0b871d3d",
		"syscall/rlimit.go":               "f0eee111b4a1fd060d21d2a18878353242c9c9440da5aec97d74667ef634eb51",
		"runtime/fds_unix.go":             "82e2d0c6f73403b973c29c24e0e8aea8ad848f1c20c22cc1172a08ced04481de",
	},
}

// wanted is the release that go.mod names, for the line that says how to go on.
const wanted = "go1.26.8"

//go:embed _netpoll.go
var netpoll string

//go:embed _stack.go
var stack string

// change makes one file of Go's standard library another.
type change struct {
	file string
	edit func(text string) string
}

// flags are those of every line of the table of signals. A line with none is a signal that the
// runtime leaves alone.
var flags = regexp.MustCompile(`(?m)^(\t/\* [0-9]+ \*/ )\{[^"]*"`)

var noSignals = change{"runtime/sigtab_linux_generic.go", func(text string) string {
	return flags.ReplaceAllString(text, `${1}{0, "`)
}}

var noDescriptors = change{"runtime/fds_unix.go", func(text string) string {
	return after("func checkfds() {", "return", text)
}}

// changes are those of each kind of build.
var changes = map[string][]change{
	"library": {
		noSignals,
		{"runtime/netpoll_epoll.go", func(string) string { return netpoll }},
		{"runtime/stack.go", func(text string) string {
			return after("func stackalloc(n uint32) stack {", "if n >= apartFrom { return stackallocApart(uintptr(n)) }",
				after("func stackfree(stk stack) {", "if stk.hi-stk.lo >= apartFrom { stackfreeApart(stk); return }", text)) +
				stack[strings.Index(stack, "// What follows"):]
		}},
		{"syscall/rlimit.go", func(text string) string { return after("func init() {", "return", text) }},
	},
	"exec":     {noSignals, noDescriptors},
	"launcher": {noDescriptors},
}

// after adds a statement to text after the line that a function begins with.
func after(line, statement, text string) string {
	return strings.Replace(text, line+"\n", line+"\n\t"+statement+"\n", 1)
}

func main() {
	if err := run(os.Args[1:], os.Getenv("NVMLFAB_UNPATCHED") == "1", os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "nvmlfab:", err)
		os.Exit(1)
	}
}

// run writes DIR/overlay.json and the changed files beside it. The runtime is that of the go command
// in PATH. Unpatched, the overlay is empty, and one line on stderr says so.
func run(args []string, unpatched bool, stderr io.Writer) error {
	if len(args) != 2 || changes[args[0]] == nil {
		return fmt.Errorf("usage: goruntime library|exec DIR")
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
	if unpatched {
		fmt.Fprintf(stderr, "nvmlfab: NVMLFAB_UNPATCHED=1: this %s has the runtime of %s as it is, "+
			"which changes signals and descriptors of its process\n", args[0], version)
	} else if replace, err = patch(changes[args[0]], version, goroot, dir); err != nil {
		return fmt.Errorf("%w; build with GOTOOLCHAIN=%s, or set NVMLFAB_UNPATCHED=1 for a runtime "+
			"that changes signals and descriptors of its process", err, wanted)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}

// patch writes the changed files into dir and returns the path of each by that of the original.
func patch(list []change, version, goroot, dir string) (map[string]string, error) {
	known := releases[series.FindString(version)]
	if known == nil {
		return nil, fmt.Errorf("the Go runtime of %s is not one that this build knows how to change",
			version)
	}
	replace := map[string]string{}
	for _, c := range list {
		path := filepath.Join(goroot, "src", c.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != known[c.file] {
			return nil, fmt.Errorf("%s of %s is not the file that this build knows how to change",
				path, version)
		}
		replace[path] = filepath.Join(dir, filepath.Base(c.file))
		if err := os.WriteFile(replace[path], []byte(c.edit(string(text))), 0o644); err != nil {
			return nil, err
		}
	}
	return replace, nil
}

// series is the part of a version that all of its minor releases share.
var series = regexp.MustCompile(`^go[0-9]+\.[0-9]+\b`)
