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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

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
	board, err := c.board()
	if err != nil {
		return err
	}
	node := c.Node
	if node == "" {
		node = machine.NodeName(board)
	}
	f, err := c.build(board, node)
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
	local, server := umad.NewLocal(f, node)
	if secret != nil {
		end, err := c.together(ctx, local, f, secret)
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
	var m *machine.Mirror
	if exists(filepath.Join(c.Root, "sys/class/infiniband")) {
		m = machine.NewMirror(c.Root, board, f, node)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { watch(ctx, local, m, e) })
	fmt.Fprintf(stdout, "mock-ib: %s has %d ports in a fabric of %d nodes\n", node, len(f.UMAD(node)), len(f.Nodes))
	return server.Serve(ctx, l)
}

// watchEvery is how often is looked what has happened to the host's ports.
const watchEvery = 250 * time.Millisecond

// watch keeps the files of the tree as the fabric is, if there is a mirror and until they cannot be written, and sends events
// about ports, until the context ends.
func watch(ctx context.Context, local *umad.Local, m *machine.Mirror, e *events) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var err error
		local.Do(func(f *fabric.Fabric) {
			if m != nil {
				err = m.Update(f, local.Host, time.Now())
			}
			e.look(f.Host(local.Host))
		})
		if err != nil {
			fmt.Fprintf(os.Stderr, "mock-ib: sysfs no longer follows the fabric: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
			m = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// together lets the daemon be one of several. end waits for the connections to close, after the context has ended.
func (c *command) together(ctx context.Context, local *umad.Local, f *fabric.Fabric, secret []byte) (end func(), err error) {
	t := newTogether(local, f, f.Simulated, secret, func(format string, args ...any) { fmt.Fprintf(os.Stderr, "mock-ib: "+format+"\n", args...) })
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

// board is the profile of the host.
func (c *command) board() (*profiles.Board, error) {
	switch {
	case c.Profile == "":
		board, err := profiles.Load(filepath.Join(c.Root, machine.ProfileFile))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w; stage a tree there with nvmlfab stage, or name a profile with --profile", err)
		}
		return board, err
	case strings.ContainsAny(c.Profile, "/."):
		return profiles.Load(c.Profile)
	}
	return profiles.Shipped(c.Profile)
}

// build is the fabric that the description describes, or one of this host alone.
func (c *command) build(board *profiles.Board, node string) (*fabric.Fabric, error) {
	name := c.Fabric
	if name == "" {
		name = filepath.Join(c.Root, machine.FabricFile)
	}
	text, err := os.ReadFile(name)
	if err != nil && (c.Fabric != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	return machine.Subnet(board, node, name, text)
}
