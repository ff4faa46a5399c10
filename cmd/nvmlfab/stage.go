package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	"golang.org/x/sys/unix"
)

type stageCmd struct {
	Root      string  `required:"" placeholder:"DIR" help:"The folder to write below; made if it does not exist."`
	Profile   *string `placeholder:"NAME|FILE" help:"A shipped profile, or a profile file."`
	GPUs      *uint32 `name:"gpus" placeholder:"N" help:"How many GPUs there are, instead of the profile's number."`
	Driver    string  `placeholder:"VERSION" help:"The driver's version, instead of the profile's."`
	NVML      string  `name:"nvml" placeholder:"VERSION" help:"The version of NVML, instead of the one that came with the driver."`
	Fabric    string  `name:"ib-fabric" placeholder:"FILE" help:"A description of the InfiniBand fabric around the machine; by default the machine is alone."`
	SMI       string  `name:"nvidia-smi" placeholder:"FILE" help:"An nvidia-smi to copy; by default the one in PATH, if there is one."`
	NoDevices bool    `help:"Write empty files in the place of device nodes. Where NVIDIA's kernel driver is loaded, nodes would open the GPUs that are really there, and nothing is staged without this."`
}

func (stageCmd) Help() string {
	return `Writes what a machine with the profile's GPUs has: the driver's libraries under their names, device nodes (or empty files
where those cannot be made), /proc/driver/nvidia, what is seen of the driver's modules, the PCI devices in /sys and
/proc, and the profile's InfiniBand adapters. A tree that was staged there before is replaced at once. Example:

    nvmlfab stage --root /var/lib/nvmlfab --profile a100-sxm4-40gb

The folder serves as a driver root, as MOCK_PCI_ROOT and MOCK_IB_ROOT, and for nvmlfab cdi. The library in it finds the profile there without any
variable. DIR.state beside it is the node's state directory: there setters and nvmlfab set write what they change, which stays
when the folder is staged anew.`
}

func (c stageCmd) Run() error {
	if err := machine.CheckDriver(); err != nil && !c.NoDevices {
		return fmt.Errorf("%w: stage on another machine, or with --no-devices", err)
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
	options := machine.Options{CPUs: machine.OnlineCPUs(), System: true, Libraries: libraries, CUDA: libcuda(), Hook: containerHook(), SMI: c.SMI, Profile: string(p.source())}
	if any, err := p.infiniband(c.Fabric, &options); err != nil {
		return err
	} else if !any && c.Fabric != "" {
		return fmt.Errorf("--ib-fabric: the profile %s has no InfiniBand adapters", p.base.Name)
	}
	if options.SMI == "" {
		options.SMI, _ = exec.LookPath("nvidia-smi")
	}
	state, err := machine.StateDir(c.Root)
	if err == nil {
		err = machine.CheckState(state, p.board)
	}
	if err != nil {
		return err
	}
	options.State = filepath.Join("..", filepath.Base(state.Path()))
	tree := machine.New(p.board, options)
	tree.StandIns = c.NoDevices
	if err := writeTree(tree, c.Root); err != nil {
		return err
	}
	if err := os.Mkdir(state.Path(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := state.Prepare(machine.Minors(p.board)); err != nil {
		return err
	}
	return declare(state.Path(), p.board)
}

func writeTree(tree *machine.Tree, root string) error {
	defer showProgress(tree)()
	return tree.Write(root)
}

// showProgress says on a terminal how far a tree is that takes more than a second to write, until done is called.
func showProgress(tree *machine.Tree) (done func()) {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err != nil {
		return func() {}
	}
	all := 0
	tree.Walk(func(string, *machine.Node) { all++ })
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		const clear = "\r\x1b[K"
		for end := ""; ; end = clear {
			select {
			case <-stop:
				fmt.Fprint(os.Stderr, end)
				return
			case <-tick.C:
				fmt.Fprintf(os.Stderr, clear+"nvmlfab: %d of %d files and folders written", tree.Made.Load(), all)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// source is the profile as the text of a file.
func (p *profile) source() []byte {
	if p.base.Text == nil && len(p.layers) == 0 {
		if text, err := profiles.Source(p.base.Name); err == nil { // this text has comments
			return text
		}
	}
	return p.base.File(p.layers...)
}

type unstageCmd struct {
	Root string `required:"" placeholder:"DIR" help:"The folder that nvmlfab stage has written."`
}

func (unstageCmd) Help() string {
	return `Takes away what nvmlfab stage wrote and what has changed about the node since, and nothing else. Example:

    nvmlfab unstage --root /var/lib/nvmlfab`
}

func (c unstageCmd) Run() error {
	state, err := machine.StateDir(c.Root) // while the folder is there, for it may be a link
	if err == nil {
		err = machine.Remove(c.Root)
	}
	if err != nil {
		return fmt.Errorf("--root: %w", err)
	}
	return state.Remove()
}
