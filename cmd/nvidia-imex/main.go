// Command nvidia-imex is installed in place of NVIDIA's IMEX daemon. It adds --nogpu to the arguments and executes the
// daemon, which then starts on a machine without GPUs. docs/imex.md says what stays unchanged.
package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
)

const (
	realDaemon   = "/usr/bin/nvidia-imex.real"
	realVariable = "NVMLFAB_IMEX_REAL"

	// mark distinguishes any build of this program from the daemon. Since it is also printed, it stays in the binary.
	mark = "it is the nvidia-imex of nvmlfab, not NVIDIA's"
)

// Exit statuses as with env, nohup and timeout.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func main() {
	path := os.Getenv(realVariable)
	if path == "" {
		path = realDaemon
	}
	why, status := become(path, os.Args[1:])
	line := "nvmlfab: cannot run " + path + ": " + why + "; install NVIDIA's there or name it in " + realVariable
	os.Stderr.WriteString(strings.ReplaceAll(line, "\n", " ") + "\n")
	os.Exit(status)
}

// become replaces this process by the daemon. It returns only if that fails, with the reason.
func become(path string, args []string) (why string, status int) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return failure(err)
	}
	if isThisProgram(path, info) {
		return mark, exitNotExecutable
	}
	err = syscall.Exec(path, append([]string{path}, withoutGPU(args)...), environment())
	if err == syscall.ENOENT {
		return "the interpreter that it names is missing", exitNotExecutable
	}
	return failure(err)
}

func failure(err error) (why string, status int) {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return err.Error(), exitNotFound
	}
	return err.Error(), exitNotExecutable
}

// withoutGPU adds --nogpu to arguments that do not have it, as the last option. It must come before a --, which ends
// the options.
func withoutGPU(args []string) []string {
	end := len(args)
	for i := 0; i < end; i++ {
		switch args[i] {
		case "--nogpu", "-nogpu":
			return args
		case "-c", "--config": // the next argument is a file name, whatever it looks like
			i++
		case "--":
			end = i
		}
	}
	return slices.Insert(slices.Clone(args), end, "--nogpu")
}

// isThisProgram reports whether path is this program, by a link, under a new name or as a copy. Executing it would
// never end.
func isThisProgram(path string, info fs.FileInfo) bool {
	if self, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(self, info) {
		return true
	}
	if !info.Mode().IsRegular() {
		return false
	}
	text, err := os.ReadFile(path)
	return err == nil && bytes.HasPrefix(text, []byte("\x7fELF")) && bytes.Contains(text, []byte(mark))
}

// environment is the environment as the kernel passed it. Go's own list lacks repeated names.
func environment() []string {
	text, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return os.Environ()
	}
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
