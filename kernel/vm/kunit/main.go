// Command kunit runs the suites of kernel/logic as KUnit, in a kernel that it builds for them: go run ./kernel/vm/kunit
//
// The kernel is Debian's 6.1 as User Mode Linux, which runs as an ordinary program, with KASAN and UBSAN. Source and
// build stay in the user's cache, so a second run compiles only what has changed. Every case that runs in user space
// must also run here.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/kernel/vm/logic"
	"github.com/nvmlfab/nvmlfab/tests/debian"
)

const dir = "kernel"

func main() {
	start := time.Now()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kunit:", err)
		os.Exit(1)
	}
	fmt.Printf("kunit: all of it passed, in %d s\n", int(time.Since(start).Seconds()))
}

func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder to build in: %w; set XDG_CACHE_HOME", err)
	}
	build := filepath.Join(cache, "nvmlfab", "kunit")
	if err := os.MkdirAll(build, 0o755); err != nil {
		return err
	}
	unlock, err := lock(build)
	if err != nil {
		return err
	}
	defer unlock()

	whole, err := cover()
	if err != nil {
		return err
	}
	source, err := source()
	if err != nil {
		return err
	}
	if err := plant(source); err != nil {
		return err
	}
	if err := configure(source, build); err != nil {
		return err
	}
	if err := compile(source, build); err != nil {
		return err
	}
	return boot(build, whole)
}

// published is where the coverage of the last run lies.
const published = "dist/kernel/coverage.txt"

// cover runs the suites in user space, to know what there is to run and how much of the logic that executes. The kernel
// runs the same suites, without counters.
func cover() ([]logic.Suite, error) {
	fmt.Println("kunit: the suites in user space, with their coverage")
	absolute, err := filepath.Abs(filepath.Join(dir, "logic"))
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "nvmlfab-coverage-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	covered, whole, err := logic.Cover(absolute, work)
	if err != nil {
		return nil, err
	}
	table := logic.Table(covered)
	fmt.Printf("%skunit: this is in %s\n", table, published)
	return whole, errors.Join(os.MkdirAll(filepath.Dir(published), 0o755), os.WriteFile(published, []byte(table), 0o644))
}

// lock makes others wait who would build in the same folder.
func lock(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fmt.Println("kunit: waiting for another run to end")
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	return func() { f.Close() }, nil
}

// source returns the folder of the kernel's source. It fetches the source if necessary.
func source() (string, error) {
	dir, err := debian.Fetch("linux-source")
	if err != nil {
		return "", err
	}
	makefiles, err := filepath.Glob(filepath.Join(dir, "usr/src/linux-source-*/Makefile"))
	if err != nil || len(makefiles) != 1 {
		return "", fmt.Errorf("no source of a kernel in %s: remove that folder to fetch it anew", dir)
	}
	return filepath.Dir(makefiles[0]), nil
}

// plant copies the logic and its suites into the kernel's source, as lib/nvmlfab. It leaves unchanged files alone,
// since they would be compiled again.
func plant(source string) error {
	top := filepath.Join(source, "lib", "nvmlfab")
	want := map[string]string{filepath.Join(top, "Makefile"): filepath.Join(dir, "kunit", "Makefile")}
	for _, pattern := range []string{"logic/*.[ch]", "logic/tests/*.[ch]", "uapi/*.h"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			rel, err := filepath.Rel(dir, file)
			if err != nil {
				return err
			}
			want[filepath.Join(top, rel)] = file
		}
	}
	have, err := filepath.Glob(filepath.Join(top, "*", "*.[ch]"))
	if err != nil {
		return err
	}
	deeper, err := filepath.Glob(filepath.Join(top, "*", "*", "*.[ch]"))
	if err != nil {
		return err
	}
	for _, file := range append(have, deeper...) {
		if _, ok := want[file]; !ok {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for to, from := range want {
		if err := update(to, from); err != nil {
			return err
		}
	}
	makefile := filepath.Join(source, "lib", "Makefile")
	text, err := os.ReadFile(makefile)
	if line := "obj-$(CONFIG_KUNIT) += nvmlfab/\n"; err == nil && !bytes.Contains(text, []byte(line)) {
		err = os.WriteFile(makefile, append(text, line...), 0o644)
	}
	return err
}

func update(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
}

// configure writes the kernel's configuration if it differs from the present one.
func configure(source, build string) error {
	fragment, err := filepath.Abs(filepath.Join(dir, "kunit", "config"))
	if err != nil {
		return err
	}
	wanted, err := os.ReadFile(fragment)
	if err != nil {
		return err
	}
	done := filepath.Join(build, "configured")
	if old, err := os.ReadFile(done); err == nil && bytes.Equal(old, wanted) {
		return nil
	}
	if err := kbuild(source, build, io.Discard, "KCONFIG_ALLCONFIG="+fragment, "allnoconfig"); err != nil {
		return err
	}
	made, err := os.ReadFile(filepath.Join(build, ".config"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(wanted)) {
		if strings.HasPrefix(line, "CONFIG_") && !strings.Contains("\n"+string(made), "\n"+line) {
			return fmt.Errorf("this kernel has no %s: change %s", strings.TrimSpace(line), fragment)
		}
	}
	return os.WriteFile(done, wanted, 0o644)
}

// compile builds the kernel and reports its progress from time to time.
func compile(source, build string) error {
	fmt.Println("kunit: building the kernel, which takes minutes the first time")
	return kbuild(source, build, &progress{last: time.Now()}, "-j"+strconv.Itoa(runtime.NumCPU()), "linux")
}

var complaint = regexp.MustCompile(`(?i)error|warning|undefined|not found`)

// kbuild runs the kernel's make. If it fails, the error has the lines that say why.
func kbuild(source, build string, progress io.Writer, args ...string) error {
	var output bytes.Buffer
	cmd := exec.Command("nice", slices.Concat([]string{"make", "-C", source, "O=" + build, "ARCH=um"}, args)...)
	cmd.Stdout = io.MultiWriter(&output, progress)
	cmd.Stderr = cmd.Stdout
	for _, v := range os.Environ() { // an outer make sets variables for its own children
		if name, _, _ := strings.Cut(v, "="); name != "MAKEFLAGS" && name != "MAKELEVEL" && name != "MFLAGS" && name != "MAKEOVERRIDES" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if err := cmd.Run(); err != nil {
		var why []string
		for line := range strings.Lines(output.String()) {
			if complaint.MatchString(line) && !slices.Contains(why, line) {
				why = append(why, line)
			}
		}
		return fmt.Errorf("%s: %w\n%s", cmd, err, strings.Join(why[:min(len(why), 40)], ""))
	}
	return nil
}

// progress counts the files that make compiles.
type progress struct {
	files int
	last  time.Time
}

func (p *progress) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != "CC" {
			continue
		}
		p.files++
		if time.Since(p.last) > 10*time.Second {
			p.last = time.Now()
			fmt.Printf("kunit: %d files compiled, at %s\n", p.files, f[1])
		}
	}
	return len(text), nil
}

// boot runs the kernel, which runs the suites and halts.
func boot(build string, whole []logic.Suite) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(build, "linux"), "mem=256M", "console=tty", "kunit_shutdown=halt")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	fmt.Println("kunit: running the suites in the kernel")
	ended := cmd.Run()
	log := filepath.Join(build, "log")
	if err := os.WriteFile(log, output.Bytes(), 0o644); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the kernel hangs: what it printed is in %s", log)
	}
	suites, err := logic.Parse(bytes.NewReader(output.Bytes()))
	for _, s := range suites {
		fmt.Printf("%s %s: %d cases\n", verdict(s.OK), s.Name, len(s.Cases))
		for _, c := range s.Cases {
			if !c.OK {
				err = errors.Join(err, fmt.Errorf("%s %s failed:\n%s", s.Name, c.Name, strings.Join(c.Log, "\n")))
			}
		}
	}
	if ended != nil {
		err = errors.Join(err, fmt.Errorf("the kernel ended with %w", ended))
	}
	if err = errors.Join(err, logic.Compare(suites, whole), complaints(output.Bytes())); err != nil {
		return fmt.Errorf("%w\nwhat the kernel printed is in %s", err, log)
	}
	return nil
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "not ok"
}

var fault = regexp.MustCompile(`BUG:|KASAN:|UBSAN:|WARNING:|Kernel panic|Oops`)

// complaints returns an error for what the kernel reported in addition to the results of the suites.
func complaints(output []byte) error {
	var found []error
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		if line := lines.Text(); fault.MatchString(line) {
			found = append(found, errors.New(strings.TrimSpace(line)))
		}
	}
	return errors.Join(found...)
}
