// Command nvmlfab shows unmodified programs GPUs that do not exist: it lists and checks profiles of GPU boards, and
// runs programs with one. Each subcommand has a file of its own.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// commands are the subcommands; their fields are flags and arguments.
type commands struct {
	Version    versionCmd       `cmd:"" help:"Print the version of nvmlfab and how much of NVML it answers."`
	Profiles   profilesCmd      `cmd:"" help:"List, show and check the profiles that describe GPU boards."`
	Run        runCmd           `cmd:"" help:"Run a program that sees a profile's GPUs."`
	Status     statusCmd        `cmd:"" help:"Show a node's GPUs as they are now, and what has changed about them."`
	Set        setCmd           `cmd:"" help:"Give keys of the profile other values while programs run."`
	Unset      unsetCmd         `cmd:"" help:"Give keys the profile's values again."`
	Fail       failCmd          `cmd:"" help:"Make GPUs, or the node's driver, fail."`
	Heal       healCmd          `cmd:"" help:"Take faults back."`
	Reset      resetCmd         `cmd:"" help:"Reset GPUs as a driver does."`
	Events     eventsCmd        `cmd:"" help:"Send and watch the events that programs wait for."`
	Process    processCmd       `cmd:"" help:"Put processes on the GPUs' lists."`
	MIG        migCmd           `cmd:"" name:"mig" help:"Cut GPUs into MIG instances."`
	Play       playCmd          `cmd:"" help:"Play a scenario: a timed list of values, faults, events and processes."`
	Trace      traceCmd         `cmd:"" help:"Run a program as run does, and print each call of NVML that it makes."`
	Capture    captureCmd       `cmd:"" help:"Make a profile of what the NVML library of a machine answers."`
	Doctor     doctorCmd        `cmd:"" help:"Say what is wrong on this machine and in this environment, and what mends it."`
	Stage      stageCmd         `cmd:"" help:"Write what a machine with a profile's GPUs has in /sys, /proc, /dev and its driver's folders."`
	Unstage    unstageCmd       `cmd:"" help:"Take away what stage wrote."`
	CDI        cdiCmd           `cmd:"" name:"cdi" help:"Write a CDI specification that shows a staged machine to containers."`
	Fakegpu    fakegpuCmd       `cmd:"" name:"fakegpu" help:"Print the parameters with which fakegpu.ko has a profile's GPUs."`
	Completion completionCmd    `cmd:"" help:"Print a script by which a shell completes nvmlfab's commands."`
	Complete   completeCmd      `cmd:"" hidden:""`
	Hook       hookCmd          `cmd:"" hidden:""`
	Entered    enteredCmd       `cmd:"" hidden:""`
	Traced     tracedCmd        `cmd:"" hidden:""`
	InTraced   enteredTracedCmd `cmd:"" name:"entered-traced" hidden:""`
	Reap       reapCmd          `cmd:"" hidden:""`
	IBDaemon   ibDaemonCmd      `cmd:"" name:"ib-daemon" hidden:""`
}

const description = `nvmlfab shows GPUs that are not there to programs that use NVML.

Example: nvmlfab run --profile h100 -- nvidia-smi -L`

// Exit statuses in addition to 0, 1 for a failed subcommand, and those of a program that run executes.
const (
	exitUsage         = 2
	exitRun           = 125 // these three are as with env, nohup and timeout
	exitNotExecutable = 126
	exitNotFound      = 127
)

// exitError is an error with an exit status of its own.
type exitError struct {
	error
	status int
}

func main() {
	var cli commands
	ctx, err := newParser(&cli).Parse(spelled(os.Args[1:]))
	if err != nil {
		complain(fmt.Errorf("%w; see nvmlfab --help", err))
		os.Exit(exitUsage)
	}
	if err := ctx.Run(); err != nil {
		complain(err)
		status := 1
		if e := (exitError{}); errors.As(err, &e) {
			status = e.status
		}
		os.Exit(status)
	}
}

// newParser is the parser of the command line; options come in addition to its own.
func newParser(cli *commands, options ...kong.Option) *kong.Kong {
	return kong.Must(cli, append(options, kong.Name("nvmlfab"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.KindMapper(reflect.String, kong.MapperFunc(verbatim)))...)
}

// spelled translates common spellings into those of the parser: help, help COMMAND and --version.
func spelled(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return args
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

// complain prints an error as one line; joined errors get a line each.
func complain(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			complain(err)
		}
		return
	}
	fmt.Fprintf(os.Stderr, "nvmlfab: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}
