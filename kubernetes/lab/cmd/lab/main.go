// Command lab starts a Kubernetes for tests and runs a command on its first node, a shell by default:
//
//	lab build [NAME]...                only build what runs in clusters: kubelab, containerd, k8s-device-plugin
//	lab run [-nodes N] [-image FILE]... [COMMAND [ARG]...]
//
// On the node, kubectl is "kubelab kubectl". The cluster ends with the command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/nvmlfab/nvmlfab/kubernetes/lab"
)

func main() {
	if status, isNode := lab.Main(); isNode {
		os.Exit(status)
	}
	if err := command(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func command() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch verb {
	case "build":
		names := os.Args[2:]
		if len(names) == 0 {
			names = lab.Names()
		}
		for _, name := range names {
			folder, err := lab.Build(ctx, name, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Println(folder)
		}
		return nil
	case "run":
	default:
		return fmt.Errorf("usage: lab build|run")
	}
	options := lab.Options{Progress: os.Stderr}
	flags := flag.NewFlagSet("lab run", flag.ExitOnError)
	flags.IntVar(&options.Nodes, "nodes", 1, "how many nodes the cluster has")
	flags.Func("image", "an OCI archive that every node has from the start", func(file string) error {
		options.Images = append(options.Images, file)
		return nil
	})
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	args := flags.Args()
	if len(args) == 0 {
		args = []string{"sh"}
	}
	began := time.Now()
	c, err := lab.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	fmt.Fprintf(os.Stderr, "the cluster is ready after %s\n", time.Since(began).Round(100*time.Millisecond))
	cmd := c.Nodes[0].Command(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := c.Nodes[0].Within(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}
