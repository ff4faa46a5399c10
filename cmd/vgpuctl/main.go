// Command vgpuctl shows and sets, in the kernel module vgpu, what processes and cgroups may use of the GPUs of NVIDIA's
// driver.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
)

// commands are the subcommands; their fields are flags and arguments.
type commands struct {
	JSON   bool      `name:"json" help:"Print JSON, for scripts."`
	Status statusCmd `cmd:"" help:"Show how the module stands."`
	Mode   modeCmd   `cmd:"" help:"Set what the module does with what it sees."`
	Policy policyCmd `cmd:"" help:"Say what processes and cgroups may use."`
	Usage  usageCmd  `cmd:"" help:"Show what processes and cgroups use."`
	Stats  statsCmd  `cmd:"" help:"Show what the module has counted since it was loaded."`
	Watch  watchCmd  `cmd:"" help:"Print events as they come."`
	Exec   execCmd   `cmd:"" help:"Run a program, and what it starts, under a policy."`
	Verify verifyCmd `cmd:"" help:"Try the loaded module with the driver that it hooks, as a dry run."`
	Worker workerCmd `cmd:"" name:"verify-worker" hidden:""`
}

const description = `vgpuctl shows and sets what processes and cgroups may use of the GPUs of NVIDIA's driver. It speaks to the kernel module
vgpu, for which it takes root.

Example: vgpuctl exec --memory 8G -- python3 train.py`

// Exit statuses in addition to 0, 1 for a failed subcommand, and those of a program that exec ran.
const (
	exitUsage         = 2
	exitExec          = 125 // these three are as with env, nohup and timeout
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the signal's number
)

// exitError is an error, or nil, with an exit status of its own.
type exitError struct {
	error
	status int
}

// surroundings are the streams, context and device of a subcommand; tests replace them.
type surroundings struct {
	ctx            context.Context // is cancelled by SIGINT and SIGTERM
	stdout, stderr io.Writer
	json           bool
	open           func() (*vgpuctl.Device, error)
	debugfs        string
	parameters     string // the folder of the module's parameters
	cgroupID       func(path string) (uint64, error)
	cgroupPaths    func() map[uint64]string
}

func main() {
	os.Exit(run(os.Args[1:], &surroundings{
		ctx: context.Background(), stdout: os.Stdout, stderr: os.Stderr,
		open: vgpuctl.Open, debugfs: "/sys/kernel/debug/vgpu", parameters: "/sys/module/vgpu/parameters",
		cgroupID: vgpuctl.CgroupID, cgroupPaths: vgpuctl.CgroupPaths,
	}))
}

// run is the command; it returns the exit status.
func run(args []string, s *surroundings) int {
	var cli commands
	help := -1
	parser := kong.Must(&cli, kong.Name("vgpuctl"), kong.Description(description), kong.Writers(s.stdout, s.stderr),
		kong.Exit(func(status int) { help = status }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.KindMapper(reflect.String, kong.MapperFunc(verbatim)))
	ctx, err := parser.Parse(args)
	if help >= 0 {
		return help
	}
	if err != nil {
		complain(s.stderr, fmt.Errorf("%w; see vgpuctl --help", err))
		return exitUsage
	}
	s.json = cli.JSON
	err = ctx.Run(s)
	status := 0
	if err != nil {
		status = 1
	}
	if e := (exitError{}); errors.As(err, &e) {
		err, status = e.error, e.status
	}
	if err != nil {
		complain(s.stderr, err)
	}
	return status
}

// verbatim takes an argument without changes. The parser's own decoder goes through JSON, which changes bytes that are
// not UTF-8.
func verbatim(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(token.String())
	return nil
}

// complain prints an error as one line.
func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "vgpuctl: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// with opens the device while do runs.
func (s *surroundings) with(do func(*vgpuctl.Device) error) error {
	device, err := s.open()
	if err != nil {
		return err
	}
	defer device.Close()
	return do(device)
}

// print writes a value as JSON if that was asked for, and otherwise as text does.
func (s *surroundings) print(value any, text func(w io.Writer) error) error {
	if !s.json {
		return text(s.stdout)
	}
	e := json.NewEncoder(s.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// interrupted returns a context that the signals which end watch cancel.
func (s *surroundings) interrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(s.ctx, os.Interrupt, syscall.SIGTERM)
}
