// Command mock-ib keeps an InfiniBand subnet that is not there, for the programs on one host that look at it through
// libibmockumad.so. It knows the host's adapters from the profile of a staged tree, and the other hosts, switches and cables
// from a description of the fabric.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/machine/fabric/umad"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// defaultRoot is the tree if nothing names one. The preloaded libraries have the same.
const defaultRoot = "/var/lib/nvml-mock/ib"

// command has the flags.
type command struct {
	Root      string `env:"MOCK_IB_ROOT" default:"${root}" placeholder:"DIR" help:"The staged tree. The socket is made in its folder run."`
	Profile   string `placeholder:"NAME|FILE" help:"The profile whose adapters the host has; by default the tree's."`
	Fabric    string `placeholder:"FILE" help:"A description of the other hosts and of the switches; by default the tree's etc/nvmlfab/fabric.yaml."`
	Listen    string `placeholder:"ADDR" help:"Let the daemons of other hosts into the fabric at a TCP address, such as :7471; without a host it is 127.0.0.1."`
	Join      string `placeholder:"ADDR" help:"Join the fabric of the daemon that listens at an address."`
	TokenFile string `placeholder:"FILE" help:"The secret that the daemons of a fabric know, for --listen and --join."`
	State     string `env:"NVMLFAB_STATE_DIR" placeholder:"DIR" help:"The state directory from which the faults of nvmlfab fail --ib come; by default the one beside the tree."`
	Node      string `placeholder:"NAME" help:"The host's name in the fabric; by default the profile's node_name, or else the machine's name."`
}

const description = `mock-ib keeps an InfiniBand subnet that is not there, for ibstat, iblinkinfo, perfquery and other programs that have
libibmockumad.so preloaded.`

func main() {
	var c command
	parser := kong.Must(&c, kong.Name("mock-ib"), kong.Description(description), kong.Vars{"root": defaultRoot},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}), kong.KindMapper(reflect.String, kong.MapperFunc(verbatim)))
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "mock-ib: %s; see mock-ib --help\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "mock-ib: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
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

// run serves until the context ends.
func (c *command) run(ctx context.Context, stdout io.Writer) error {
	base, board, err := c.board()
	if err != nil {
		return err
	}
	node := c.Node
	if node == "" {
		node = machine.NodeName(board)
	}
	text, err := c.text()
	if err != nil {
		return err
	}
	f, err := machine.Subnet(board, node, c.Fabric, text)
	if err != nil {
		return err
	}
	dir, err := c.stateDir()
	if err != nil {
		return err
	}
	var secret []byte
	if c.Listen != "" || c.Join != "" {
		if c.Listen != "" && c.Join != "" {
			return errors.New("--listen and --join: a daemon does one of them")
		}
		if secret, err = token(c.TokenFile); err != nil {
			return err
		}
	}
	l, release, err := listen(c.Root)
	if err != nil {
		return err
	}
	defer release()
	if err := (machine.Served{Node: node, Description: string(text)}).Write(c.Root); err != nil {
		l.Close()
		return err
	}
	local, server := umad.NewLocal(f, node)
	w := &watcher{local: local, node: newNode(dir, base, board), load: newLoad(board, node, f.Host(node)), wake: make(chan struct{}, 1), ends: 1} // the load is to be set
	f.Traffic, f.Started, f.CPUs = w.traffic, machine.Booted(), cpus("/proc/cpuinfo")
	if secret != nil {
		end, err := c.together(ctx, w, f, secret)
		if err != nil {
			l.Close()
			return err
		}
		defer end()
	}
	e, err := newEvents(filepath.Join(c.Root, "run"))
	if err != nil {
		l.Close()
		return err
	}
	defer e.close()
	w.events = e
	if exists(filepath.Join(c.Root, "sys/class/infiniband")) {
		if err := fits(c.Root, f.Host(node)); err != nil {
			complain(err)
		}
		w.mirror = machine.NewMirror(c.Root, board, f, node)
	}
	w.look(time.Now()) // so that the first answers have the faults
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { w.run(ctx) })
	fmt.Fprintf(stdout, "mock-ib: %s has %d ports in a fabric of %d nodes\n", node, len(f.UMAD(node)), len(f.Nodes))
	return server.Serve(ctx, l)
}

// fits returns an error if a tree has adapters that are another host's: their GUIDs differ.
func fits(root string, nodes []*fabric.Node) error {
	for _, n := range nodes {
		text, err := os.ReadFile(filepath.Join(root, "sys/class/infiniband", n.HCA.Name, "node_guid"))
		if err != nil {
			continue
		}
		shown, err := strconv.ParseUint(strings.ReplaceAll(strings.TrimSpace(string(text)), ":", ""), 16, 64)
		if err == nil && shown != n.GUID {
			return fmt.Errorf("the tree %s was staged for another host than %q: its %s has the GUID %#016x, and not %#016x as in the fabric; set infiniband.node_name in the profile and stage it again",
				root, n.Host, n.HCA.Name, shown, n.GUID)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// together lets the daemon be one of several. end waits for the connections to close, after the context has ended.
func (c *command) together(ctx context.Context, w *watcher, f *fabric.Fabric, secret []byte) (end func(), err error) {
	t := newTogether(w.local, f, f.Simulated, secret, func(format string, args ...any) { complain(fmt.Errorf(format, args...)) })
	t.changed, t.listens = w.wakeUp, c.Listen != ""
	w.together = t
	var all sync.WaitGroup
	if c.Join != "" {
		all.Go(func() { t.group.Join(ctx, c.Join) })
		return all.Wait, nil
	}
	l, err := net.Listen("tcp", address(c.Listen))
	if err != nil {
		return nil, err
	}
	all.Go(func() { t.group.Listen(ctx, l) })
	return all.Wait, nil
}

// complain prints an error on one line of standard error.
func complain(err error) {
	fmt.Fprintf(os.Stderr, "mock-ib: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// board is the profile of the host.
func (c *command) board() (base profiles.Base, board *profiles.Board, err error) {
	switch {
	case c.Profile == "":
		base.Name = filepath.Join(c.Root, machine.ProfileFile)
	case strings.ContainsAny(c.Profile, "/."):
		base.Name = c.Profile
	default:
		base.Name = c.Profile
		board, err = base.With()
		return base, board, err
	}
	if base.Text, err = profiles.Read(base.Name); errors.Is(err, fs.ErrNotExist) && c.Profile == "" {
		err = fmt.Errorf("%w; stage a tree there with nvmlfab stage, or name a profile with --profile", err)
	}
	if err == nil {
		board, err = base.With()
	}
	return base, board, err
}

// text is the description of the fabric; empty if the host is alone in it.
func (c *command) text() ([]byte, error) {
	given := c.Fabric != ""
	if !given {
		c.Fabric = filepath.Join(c.Root, machine.FabricFile)
	}
	text, err := os.ReadFile(c.Fabric)
	if !given && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// cpus are the processors that a file such as /proc/cpuinfo lists; none if it cannot be read.
func cpus(file string) (list []fabric.CPU) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch name = strings.TrimSpace(name); {
		case name == "processor":
			list = append(list, fabric.CPU{})
		case len(list) == 0:
		case name == "model name":
			list[len(list)-1].Model = value
		case name == "cpu MHz":
			list[len(list)-1].MHz = value
		}
	}
	return list
}

// stateDir is where the node's changes are. It need not be there.
func (c *command) stateDir() (*state.Dir, error) {
	if c.State != "" {
		return state.At(c.State), nil
	}
	return machine.StateDir(c.Root)
}
