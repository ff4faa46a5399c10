package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine"
)

// How much of InfiniBand a run shows.
const (
	ibSysfs = "sysfs"
	ibFull  = "full"
)

// Variables of the InfiniBand libraries.
const (
	ibTier = "MOCK_IB"
	ibRoot = "MOCK_IB_ROOT"
)

// infinibandLibraries are preloaded, in this order. The last is left out where files are mounted.
var infinibandLibraries = []string{"libibmockumad.so", "libibmockverbs.so", "libibmocksys.so"}

// infiniband adds the profile's adapters to what a tree is made from. file is a description of the fabric; if it is empty, the
// machine is alone in it. It returns whether the profile has adapters.
func (p *profile) infiniband(file string, options *machine.Options) (bool, error) {
	node := machine.NodeName(p.board)
	if len(p.board.Adapters(node)) == 0 {
		return false, nil
	}
	var text []byte
	var err error
	if file != "" {
		if text, err = os.ReadFile(file); err != nil {
			return true, err
		}
	}
	f, err := machine.Subnet(p.board, node, file, text)
	options.Fabric, options.Host, options.Description = f, node, string(text)
	return true, err
}

// ibFlags are the flags of a run about InfiniBand.
type ibFlags struct {
	IB     string `name:"ib" enum:"off,full,sysfs" default:"off" placeholder:"full|sysfs" help:"Show the profile's InfiniBand adapters too: with sysfs programs find them, with full they can open them and talk to the fabric."`
	Fabric string `name:"ib-fabric" placeholder:"FILE" help:"A description of the InfiniBand fabric around the machine; by default the machine is alone."`
}

func (f ibFlags) on() bool { return f.IB == ibSysfs || f.IB == ibFull }

// adapters adds the profile's adapters to what a tree is made from, if the flags ask for them.
func (f ibFlags) adapters(p *profile, options *machine.Options) error {
	if !f.on() {
		if f.Fabric != "" {
			return errors.New("--ib-fabric needs --ib full or --ib sysfs")
		}
		return nil
	}
	any, err := p.infiniband(f.Fabric, options)
	if err == nil && !any {
		err = fmt.Errorf("--ib: the profile %s has no InfiniBand adapters", p.base.Name)
	}
	return err
}

// preload lets programs find the adapters of a tree, whose files are mounted or are to be redirected, by the libraries of a folder
// below lib.
func (f ibFlags) preload(root, folder string, mounted bool) error {
	if !f.on() {
		return nil
	}
	names := infinibandLibraries
	if mounted {
		names = names[:len(names)-1]
	}
	var paths []string
	for _, name := range names {
		path, err := toPreload(folder, name)
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		paths = append(paths, others)
	}
	os.Setenv("LD_PRELOAD", strings.Join(paths, ":"))
	os.Setenv(ibTier, f.IB)
	return os.Setenv(ibRoot, root)
}
