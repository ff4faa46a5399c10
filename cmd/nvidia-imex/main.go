// Command nvidia-imex stands in the place of NVIDIA's IMEX daemon and becomes it, with --nogpu added, so that it starts on a
// machine without GPUs. docs/imex.md says what it leaves as it was.
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

	// mark tells a copy of this program, of whatever build, from the daemon. It is printed, and so remains in the binary.
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

// become replaces this process by the daemon. It returns only when that fails, with the reason.
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

// withoutGPU adds --nogpu to arguments that do not have it, as the last option: after a -- it would be no option.
func withoutGPU(args []string) []string {
	end := len(args)
	for i := 0; i < end; i++ {
		switch args[i] {
		case "--nogpu", "-nogpu":
			return args
		case "-c", "--config": // take the next argument for a file's name, whatever it looks like
			i++
		case "--":
			end = i
		}
	}
	return slices.Insert(slices.Clone(args), end, "--nogpu")
}

// isThisProgram tells whether path leads back here, which would go round for ever: by a link, by a new name, or as a copy.
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

// environment is what the kernel handed over. Go's own list lacks entries of a name that came before.
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
