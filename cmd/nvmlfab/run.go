package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

// A mount namespace belongs to a thread, and the program inherits that of the thread that executes it. So everything
// runs on the main thread, which is also the one that /proc/self shows.
//
// If standard input, output or error is closed, a file that this program opens would get its number. So /dev/null is
// opened for it until the program is executed; there it is closed again.
func init() {
	runtime.LockOSThread()
	for fd := range 3 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == unix.EBADF {
			_, _ = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		}
	}
}

type runCmd struct {
	Profile   *string     `placeholder:"NAME|FILE" help:"A shipped profile, or a profile file, which has a / in it or ends in .yaml or .yml."`
	GPUs      *uint32     `name:"gpus" placeholder:"N" help:"How many GPUs there are, instead of the profile's number."`
	Driver    string      `placeholder:"VERSION" help:"The driver's version, instead of the profile's."`
	NVML      string      `name:"nvml" placeholder:"VERSION" help:"The version of NVML, instead of the one that came with the driver; the beginning of it will do."`
	NUMA      bool        `name:"numa" help:"Show the profile's CPUs and NUMA nodes in /sys too, if it gives any, instead of the machine's."`
	State     string      `placeholder:"DIR" help:"The directory that keeps what changes about the GPUs; made if it does not exist. By default each run has one of its own, which ends with it, unless NVMLFAB_STATE_DIR names one."`
	Name      string      `placeholder:"NAME" help:"A name for the run, for the flag --run of other commands; by default the program's process id."`
	Memory    []gpuMemory `name:"process-memory" sep:"none" placeholder:"SIZE[@GPU]" help:"Put the program on the list of GPU 0, or of that index or UUID, with that much memory, such as 2GiB or 512MiB@1, for as long as it lives. Can be given for several GPUs."`
	SM        *uint32     `name:"process-sm" placeholder:"PERCENT" help:"How much of these GPUs the program uses."`
	ibFlags   `embed:""`
	AsRoot    bool     `name:"as-root" help:"Let an ordinary user be root in the program's namespace, so that the program may change the GPUs."`
	Namespace bool     `xor:"how" help:"Run the program in a mount namespace or not at all."`
	Preload   bool     `xor:"how" help:"Preload a library into the program instead of using a mount namespace."`
	Command   []string `arg:"" optional:"" name:"cmd" passthrough:"partial" help:"The program and its arguments."`

	front func(libraries string) (string, error) // puts another library in front, if there is one; returns its folder
}

func (runCmd) Help() string {
	return `Flags of nvmlfab stand before the program, and what follows the program is its own. Examples:

    nvmlfab run -- nvidia-smi -L
    nvmlfab run -- lspci -d 10de:
    nvmlfab run --profile mine.yaml -- python3 monitor.py --interval 5
    nvmlfab run --gpus 2 --driver 550.163.01 --nvml 12.4 -- nvidia-smi
    nvmlfab run --as-root -- nvidia-smi -i 0 -pl 300
    nvmlfab run --ib full -- ibstat
    nvmlfab run --process-memory 2GiB --process-sm 60 -- python3 train.py
    nvmlfab run --name lab --state ./lab -- bash      (then, elsewhere: nvmlfab set --run lab …)

The program takes the place of nvmlfab: exit status, signals, input, output, working directory and user are its own. It finds
nvmlfab's libnvidia-ml.so.1 before NVIDIA's, and in a mount namespace of its own it sees the machine's /dev, /sys and /proc
with the GPUs in them. The library is of the NVML version that came with the driver: what is younger is missing from it, as
programs find it on such a machine. Nothing outside the namespace changes, and it ends with its last process. Where namespaces are not
allowed, which one line on standard error says, a preloaded library shows /sys alone, and static programs and those written
in Go are refused.

What the program, and other commands of nvmlfab, change about the GPUs is seen by all processes of the run. A program that is not
root may not change them, as on a real machine; --as-root lets it.

Without --profile the environment chooses: MOCK_NVML_CONFIG a profile file, else NVMLFAB_PROFILE a shipped profile, else it
is ` + profiles.Default + `.

The exit status is 127 if there is no such program, 126 if it cannot be executed, and 125 if anything else is wrong.`
}

// AfterApply removes the -- before the program, which the parser leaves in place.
func (c *runCmd) AfterApply() error {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New("there is no program to run: name one after the flags, as in nvmlfab run -- nvidia-smi -L")
	}
	return nil
}

// Run returns only if the program cannot be started.
func (c *runCmd) Run() error {
	debug.SetGCPercent(-1) // a collection would only slow the start
	if err := c.prepare(append([]string{os.Args[0], "entered"}, os.Args[2:]...)); err != nil {
		return exitError{err, exitRun}
	}
	return become(c.Command)
}

// enteredCmd is the second run of nvmlfab, which nvmlfab-enter starts inside the user namespace.
type enteredCmd struct {
	runCmd `embed:""`
}

func (c *enteredCmd) Run() error {
	debug.SetGCPercent(-1)
	if err := c.prepare(nil); err != nil {
		return exitError{err, exitRun}
	}
	return become(c.Command)
}

// prepare makes the program's environment. It checks the profile and the libraries first, since a program with a broken
// profile would only report that NVML does not work. again are the arguments for starting over in a user namespace.
func (c *runCmd) prepare(again []string) error {
	for _, name := range []string{profileFile, "NVMLFAB_CORE"} { // the program may change its directory
		if err := absolute(name); err != nil {
			return err
		}
	}
	p, err := choose(c.Profile)
	if err != nil {
		return err
	}
	if err := p.change(c.GPUs, c.Driver); err != nil {
		return err
	}
	libraries, err := libraryDir(c.NVML, p.board)
	if err != nil {
		return err
	}
	if c.front != nil {
		if libraries, err = c.front(libraries); err != nil {
			return err
		}
	}
	lasting, err := c.stateDir(p.board)
	if err != nil {
		return err
	}
	if err := checkRunName(c.Name); err != nil {
		return err
	}
	if err := c.checkProcess(p.board); err != nil {
		return err
	}
	if c.Preload && c.AsRoot && os.Geteuid() != 0 {
		return errors.New("--as-root needs a namespace: leave --preload away")
	}
	if c.Preload {
		err = p.showPreloaded(libraries, c.Command[0], lasting, c.ibFlags)
	} else if err = machine.EnterNamespace(filepath.Join(home(), "lib", "nvmlfab-enter"), again, c.AsRoot); err == nil {
		err = p.showNamespace(libraries, c.Command[0], c.NUMA, lasting, c.ibFlags)
	} else if !c.Namespace && !(c.AsRoot && os.Geteuid() != 0) {
		complain(fmt.Errorf("%w; preloading %s instead", err, preloaded))
		err = p.showPreloaded(libraries, c.Command[0], lasting, c.ibFlags)
	}
	if err != nil {
		return err
	}
	if lasting == "" { // then programs see the first change at their next call, too
		if err := state.At(os.Getenv(stateVariable)).Create(); err != nil {
			return err
		}
	}
	if err := os.Setenv(runVariable, cmp.Or(c.Name, strconv.Itoa(os.Getpid()))); err != nil {
		return err
	}
	return c.enrol()
}

// stateDir is the lasting state directory that is asked for; empty if the run shall have one of its own. Inside another run,
// whose state directory the environment names, a run shares that one if it has the same GPUs.
func (c *runCmd) stateDir(board *profiles.Board) (string, error) {
	path, inherited := c.State, false
	if path == "" {
		path = os.Getenv(stateVariable)
		inherited = os.Getenv(runVariable) != ""
	}
	if path == "" {
		return "", nil
	}
	path, err := filepath.Abs(path)
	if err == nil && !inherited {
		err = os.MkdirAll(path, 0o755)
	}
	if err == nil && !inherited {
		if err = state.At(path).Prepare(machine.Minors(board)); state.Refused(err) {
			err = nil // then instances cannot be made either
		}
	}
	if err == nil {
		err = machine.CheckState(state.At(path), board)
	}
	if inherited && (err != nil || !exists(path)) {
		return "", nil
	}
	return path, err
}

// checkRunName returns an error for a name that other commands could not tell from a process id, or not find.
func checkRunName(name string) error {
	if name == "" || runName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("--name: want letters, digits and any of . _ - with a letter first, not %.40q", name)
}

var runName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)

// absolute makes the path in a variable absolute.
func absolute(variable string) error {
	path := os.Getenv(variable)
	if path == "" {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return os.Setenv(variable, path)
}

// become replaces this process by a program. The program finds SIGHUP and SIGINT ignored if they were ignored in
// nvmlfab's parent. Go's runtime does not keep that for other signals, which get their default action.
func become(argv []string) error {
	path, err := lookPath(argv[0])
	if err == nil || errors.Is(err, exec.ErrDot) { // PATH may name the working directory
		err = syscall.Exec(path, argv, os.Environ())
		if err == syscall.ENOENT {
			err = errors.New("the interpreter that it names is missing")
		}
		return exitError{fmt.Errorf("cannot run %q: %w", argv[0], err), exitNotExecutable}
	}
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return exitError{fmt.Errorf("cannot run %q: %w", argv[0], errors.Unwrap(err)), status}
}

// lookPath finds a program as execvp does: an unset PATH means /bin:/usr/bin, and an empty element means the working
// directory.
func lookPath(name string) (string, error) {
	path, set := os.LookupEnv("PATH")
	switch {
	case !set:
		os.Setenv("PATH", "/bin:/usr/bin")
		defer os.Unsetenv("PATH")
	case path == "":
		os.Setenv("PATH", ".")
		defer os.Setenv("PATH", "")
	}
	return exec.LookPath(name)
}
