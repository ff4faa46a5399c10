// Command nvmlfab-hook is a hook that container runtimes start for each container that NVIDIA's device plugin, DRA driver or
// nvidia-ctk gives GPUs of a staged machine. It has the command line of NVIDIA's nvidia-cdi-hook, does what that does, and shows
// the container the machine's GPUs at their real paths: in /sys and /proc, by the profile and by the state directory. It needs
// nothing but itself, neither in the container nor on the machine.
//
// nvmlfab stage puts it into the folder that it writes, as usr/bin/nvmlfab-hook. There NVIDIA_CDI_HOOK_PATH, or nvidia-ctk's
// --nvidia-cdi-hook-path, has to name it: the folder that it lies in is the machine that it shows.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/container"
)

// version is the version of a release, which is built with -ldflags "-X main.version=1.2.3".
var version string

func main() {
	h := hook{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, self: self}
	if err := h.run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "nvmlfab-hook: %v\n", err)
		os.Exit(1)
	}
}

// hook is one start of the program. Tests replace what is around it.
type hook struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	self           func() (string, error) // the program's path
	debug, quiet   bool
}

func (h *hook) say(format string, args ...any) {
	if h.debug && !h.quiet {
		fmt.Fprintf(h.stderr, "nvmlfab-hook: "+format+"\n", args...)
	}
}

func (h *hook) warn(format string, args ...any) {
	if !h.quiet {
		fmt.Fprintf(h.stderr, "nvmlfab-hook: warning: "+format+"\n", args...)
	}
}

// on says whether one of some variables, of which the first that is set counts, is true.
func (h *hook) on(names ...string) (bool, error) {
	for _, name := range names {
		if text := h.getenv(name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				err = fmt.Errorf("%s: want true or false, not %q", name, text)
			}
			return value, err
		}
	}
	return false, nil
}

// run does what the arguments say. A command that nvidia-cdi-hook does not have is no error, as it is none there: what wrote the
// specification may be newer than this, and the container should start.
func (h *hook) run(args []string) error {
	l, err := parse(args)
	if err != nil {
		return err
	}
	if h.debug, err = h.on("NVIDIA_CTK_DEBUG", "NVIDIA_CDI_DEBUG"); err != nil {
		return err
	}
	if h.quiet, err = h.on("NVIDIA_CTK_QUIET", "NVIDIA_CDI_QUIET"); err != nil {
		return err
	}
	h.debug, h.quiet = l.bool("debug", h.debug), l.bool("quiet", h.quiet)
	switch {
	case l.bool("help", false):
		_, err := io.WriteString(h.stdout, help)
		return err
	case l.bool("version", false):
		_, err := fmt.Fprintln(h.stdout, "nvmlfab-hook "+buildVersion())
		return err
	case l.word == "":
		h.warn("no command is given, and nothing was done")
		return nil
	case l.command == nil:
		h.warn("there is no command %q, and nothing was done", l.word)
		return nil
	}
	for _, word := range l.rest {
		h.warn("%s: the argument %q says nothing to it", l.word, word)
	}
	if l.command.do == nil {
		return nil
	}
	if err := h.do(l); err != nil {
		return fmt.Errorf("%s: %w", l.word, err)
	}
	return nil
}

// do does a command's work in the container. The first command of each container shows it the GPUs, since which commands there are
// depends on who wrote the specification.
func (h *hook) do(l *line) error {
	if l.command.check != nil {
		if err := l.command.check(l); err != nil {
			return err
		}
	}
	from := h.stdin
	if name := l.text("container-spec"); name != "" && name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	c, err := container.Open(from)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := h.show(c); err != nil {
		return err
	}
	return l.command.do(c, l)
}

// show shows the container the GPUs of the machine in whose folder this program lies.
func (h *hook) show(c *container.Container) error {
	switch {
	case !c.HasGPU():
		h.say("%s has no device node of a GPU", c.Root)
		return nil
	case c.Shown():
		return nil
	}
	if err := machine.CheckDriver(); err != nil {
		return fmt.Errorf("%w: this container has been given such nodes", err)
	}
	self, err := h.self()
	if err != nil {
		return err
	}
	root := filepath.Join(filepath.Dir(self), "../..")
	tree := state.TreeAt(root)
	text, err := os.ReadFile(tree.Profile())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing is staged in %s, where this program is: use the one that nvmlfab stage puts into usr/bin of the folder that it writes", root)
	} else if err != nil {
		return err
	}
	if _, err := os.Stat(tree.Beside()); err != nil {
		return fmt.Errorf("the state directory of %s: %w; run nvmlfab stage again", root, err)
	}
	h.say("showing %s the GPUs of %s", c.Root, root)
	return c.Show(container.Node{Profile: text, State: tree.Beside()})
}

// self is the path by which this program was started, without links. The kernel knows another one too, which is that of the file:
// when a folder is staged anew, that is moved away, and gone a moment later.
func self() (string, error) {
	if path := startedAs(); filepath.IsAbs(path) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real, nil
		}
	}
	return os.Executable()
}

// startedAs is the path that the kernel was given; empty if it cannot be read.
func startedAs() string {
	const pathTag = 31
	vector, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return ""
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.NativeEndian.Uint64(vector) != pathTag {
			continue
		}
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			return ""
		}
		defer memory.Close()
		text := make([]byte, 4096) // the longest path, and the page after it need not be there
		n, _ := memory.ReadAt(text, int64(binary.NativeEndian.Uint64(vector[8:])))
		path, _, ended := bytes.Cut(text[:n], []byte{0})
		if !ended {
			return ""
		}
		return string(path)
	}
	return ""
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
