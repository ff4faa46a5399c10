package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nvmlfab/nvmlfab/profiles"
)

type profilesCmd struct {
	List     listCmd     `cmd:"" help:"List the shipped profiles."`
	Show     showCmd     `cmd:"" help:"Print a shipped profile, as a file to start one's own from."`
	Validate validateCmd `cmd:"" help:"Check profile files."`
	Import   importCmd   `cmd:"" help:"Make a profile of what nvidia-smi printed on a real machine."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON Schema of profile files, for editors."`
}

type listCmd struct{}

func (listCmd) Help() string {
	return `Driver and product are what a program is told, memory is that of one GPU, and MIG how many instances a GPU can be cut
into. A machine with GPUs of several boards has several products. Example:

    nvmlfab profiles list`
}

func (listCmd) Run() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tGPUS\tPRODUCT\tDRIVER\tMEMORY\tMIG")
	for _, name := range profiles.Names() {
		board, err := profiles.Shipped(name)
		if err != nil {
			return err
		}
		each := func(of func(*profiles.Device) string) string {
			var all []string
			for i := range board.Devices {
				all = append(all, of(&board.Devices[i]))
			}
			return strings.Join(slices.Compact(all), ", ")
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", name, len(board.Devices),
			each(func(d *profiles.Device) string { return d.Name.Or("N/A") }), board.System.DriverVersion.Or("N/A"),
			each(func(d *profiles.Device) string {
				if total, ok := d.Memory.TotalBytes.Get(); ok {
					return fmt.Sprintf("%d MiB", total>>20)
				}
				return "N/A"
			}),
			each(func(d *profiles.Device) string {
				if most, ok := d.MIG.MaxGPUInstances.Get(); ok && most > 0 {
					return fmt.Sprint(most)
				}
				return "-"
			}))
	}
	return w.Flush()
}

type showCmd struct {
	Name string `arg:"" help:"The profile's name, as list prints it."`
}

func (showCmd) Help() string {
	return `Example:

    nvmlfab profiles show h100 > mine.yaml`
}

func (c showCmd) Run() error {
	text, err := profiles.Source(c.Name)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

type validateCmd struct {
	Files []string `arg:"" name:"file" help:"A profile file."`
}

func (validateCmd) Help() string {
	return `Every file is read as the library would read it. What is wrong is said with file and line, and the exit status is 1.
Keys that nothing reads yet get a warning.
Example:

    nvmlfab profiles validate mine.yaml`
}

func (c validateCmd) Run() error {
	var wrong []error
	for _, file := range c.Files {
		board, err := profiles.Load(file)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		for _, key := range board.Ignored() {
			fmt.Fprintf(os.Stderr, "nvmlfab: %s: %s is accepted, and has no effect\n", file, key)
		}
		for _, what := range board.Missing() {
			fmt.Fprintf(os.Stderr, "nvmlfab: %s: %s\n", file, what)
		}
		gpus := "GPUs"
		if len(board.Devices) == 1 {
			gpus = "GPU"
		}
		if _, err := fmt.Printf("%s: ok, %d %s\n", file, len(board.Devices), gpus); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

type schemaCmd struct{}

func (schemaCmd) Help() string {
	return `Example:

    nvmlfab profiles schema > schema.json

and, as the first line of a profile beside it,

    # yaml-language-server: $schema=schema.json`
}

func (schemaCmd) Run() error {
	_, err := os.Stdout.Write(profiles.Schema())
	return err
}
