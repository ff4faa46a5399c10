// Command boot runs the tests of the kernel modules in a virtual machine: go run ./kernel/vm/boot [-kernel 6.12] [-smp N] [-run REGEX]
//
// It builds the modules, their programs and the tests in ./kernel/vm, packs them into an initramfs, and starts Debian's
// cloud kernel under qemu's emulation, with the test binary as the first process. The virtual machine has neither disk
// nor network. Only its console output is kept, in dist/kernel.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

type options struct {
	kernel    string
	smp       int
	count     int
	memory    int
	run, skip string
	threads   string
	limit     time.Duration
	verbose   bool
}

func main() {
	var o options
	flag.StringVar(&o.kernel, "kernel", debian.DefaultKernel, "Debian's kernel to boot, one of "+strings.Join(debian.Kernels(), ", "))
	flag.IntVar(&o.smp, "smp", 1, "processors of the virtual machine")
	flag.IntVar(&o.count, "count", 1, "run each test this often")
	flag.IntVar(&o.memory, "memory", 768, "its memory, in MiB")
	flag.StringVar(&o.run, "run", "", "only tests that match this expression, as go test has it")
	flag.StringVar(&o.skip, "skip", "", "no tests that match this expression")
	flag.StringVar(&o.threads, "threads", "", "qemu's threads for the processors, single or multi; multi if there are several")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "end the virtual machine as hung after this time")
	flag.BoolVar(&o.verbose, "v", false, "print all of the console")
	flag.Parse()
	// qemu ends with the thread that started it, however that ends, so this goroutine must keep its thread.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := boot(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "boot:", err)
		os.Exit(1)
	}
}

// out is the folder for all build results, relative to the top of the tree.
const out = "dist/kernel"

func boot(ctx context.Context, o options) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the virtual machine is made for amd64, and this is %s", runtime.GOARCH)
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return errors.New("qemu-system-x86_64 is missing: apt-get install qemu-system-x86, or make setup")
	}
	kernel, err := debian.FetchKernel(o.kernel)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	archive, err := build(kernel)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	name := fmt.Sprintf("linux-%s-smp%d%s", o.kernel, o.smp, o.threads)
	image := filepath.Join(out, name+".initramfs")
	if err := os.WriteFile(image, archive.Bytes(), 0o644); err != nil {
		return err
	}
	defer os.Remove(image)
	return start(ctx, qemu, kernel, image, filepath.Join(out, name+".console"), o)
}

// lock makes other runs wait that would build the same files.
func lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(out, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; time.Sleep(200 * time.Millisecond) {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		if !said {
			fmt.Println("waiting for another virtual machine of this tree to end")
			said = true
		}
		if err = ctx.Err(); err != nil {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// start boots, shows the output of the tests, and decides on success. qemu's own exit status says nothing about it.
func start(stopped context.Context, qemu string, kernel debian.Kernel, image, log string, o options) error {
	ctx, cancel := context.WithTimeout(stopped, o.limit)
	defer cancel()
	threads := o.threads
	switch {
	case threads != "":
	case o.smp > 1:
		threads = "multi"
	default:
		threads = "single"
	}
	// no_timer_check: under emulation on a busy machine the kernel's test of its timer fails. The other words make any
	// problem end the kernel at once (a warning, an oops, a lock-up, a hung task) and check the slabs at each use.
	words := []string{"console=ttyS0", "quiet", "no_timer_check", "panic=-1", "oops=panic", "panic_on_warn=1", "softlockup_panic=1",
		"sysctl.kernel.watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=300",
		"sysctl.kernel.hung_task_timeout_secs=240", "sysctl.kernel.hung_task_panic=1", "slub_debug=FZPU", "log_buf_len=4M", "random.trust_cpu=on", "mitigations=off"}
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "VERIFY_") || strings.HasPrefix(v, "NVMLFAB_GUEST_") {
			words = append(words, v)
		}
	}
	words = append(words, "--", "-test.v", "-test.timeout="+(o.limit-5*time.Second).String())
	if o.count != 1 {
		words = append(words, fmt.Sprint("-test.count=", o.count))
	}
	if o.run != "" {
		words = append(words, "-test.run="+o.run)
	}
	if o.skip != "" {
		words = append(words, "-test.skip="+o.skip)
	}
	fmt.Printf("booting Linux %s with %d processor(s) under qemu\n", kernel.Release, o.smp)
	cmd := exec.CommandContext(ctx, qemu, "-accel", "tcg,thread="+threads, "-machine", "q35", "-cpu", "max", "-smp", strconv.Itoa(o.smp), "-m", strconv.Itoa(o.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", kernel.Image, "-initrd", image, "-append", strings.Join(words, " "))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	console, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("qemu: %w", err)
	}
	verdict := follow(io.TeeReader(console, f), o.verbose)
	err = cmd.Wait()
	took := time.Since(began).Round(100 * time.Millisecond)
	switch {
	case stopped.Err() != nil:
		return errors.New("interrupted")
	case ctx.Err() != nil:
		return fmt.Errorf("the virtual machine hung for %s; its console is in %s", o.limit, log)
	case err != nil:
		return fmt.Errorf("qemu: %w; the console is in %s", err, log)
	case verdict != nil:
		return fmt.Errorf("%w; the console is in %s", verdict, log)
	}
	fmt.Printf("Linux %s with %d processor(s) is done after %s\n", kernel.Release, o.smp, took)
	return nil
}

// endLine is the last line of the tests in the virtual machine; see kernel/vm/main_test.go.
var endLine = regexp.MustCompile(`^nvmlfab guest: exit (\d+)$`)

// dull are lines that only matter if something is wrong.
var dull = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) .*|PASS|\[.*\] reboot: .*|\s*)$`)

// follow prints the interesting lines, and returns an error if one of them shows a failure.
func follow(console io.Reader, verbose bool) error {
	end, tests := "", 0
	lines := bufio.NewScanner(console)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if strings.HasPrefix(line, "--- PASS") {
			tests++
		}
		if m := endLine.FindStringSubmatch(line); m != nil {
			end = m[1]
		} else if verbose || !dull.MatchString(line) {
			fmt.Println(line)
		}
	}
	switch {
	case end == "":
		return errors.New("the virtual machine ended before its tests did")
	case end != "0":
		return errors.New("tests failed")
	case tests == 0:
		return errors.New("no test ran")
	}
	return nil
}

// command runs a build step.
func command(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}
