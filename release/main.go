// Command release packs what make has built into what people install: a tarball, packages for Debian and for RPM, and an image
// for containers. The same commit, built with the same tools, gives the same bytes: nothing in them depends on the time, the
// folder, the user or the order of a directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
)

type flags struct {
	Version  string `required:"" help:"The version of the release."`
	Arch     string `required:"" enum:"amd64,arm64" help:"The machine that it is for: amd64 or arm64."`
	Built    string `required:"" help:"The folder with the bin, lib and nvml that go into the release." placeholder:"DIR"`
	Native   string `required:"" help:"The folder with commands that run on this machine, whose help becomes the manual pages." placeholder:"DIR"`
	Coverage string `required:"" help:"A file with the output of generator --stats --json." placeholder:"FILE"`
	Output   string `required:"" help:"The folder to write to." placeholder:"DIR"`
	Packages bool   `negatable:"" default:"true" help:"Write the packages and the image too."`
}

func main() {
	var f flags
	kong.Parse(&f, kong.Name("go run ./release"), kong.Description("Packs a build into a tarball, packages and an image."))
	if err := f.run(); err != nil {
		fmt.Fprintf(os.Stderr, "nvmlfab: %v\n", err)
		os.Exit(1)
	}
}

func (f flags) run() error {
	b, err := collect(f)
	if err != nil {
		return err
	}
	outputs := []struct {
		name  string
		write func(path string) error
	}{{b.name() + ".tar.gz", b.writeTarball}}
	if f.Packages {
		outputs = append(outputs, []struct {
			name  string
			write func(path string) error
		}{
			{fmt.Sprintf("nvmlfab_%s_%s.deb", debianVersion(b.version), b.arch), b.writeDeb},
			{fmt.Sprintf("nvmlfab-%s-1.%s.rpm", rpmVersion(b.version), rpmArch[b.arch]), b.writeRPM},
			{b.name() + "-image.tar", b.writeImage},
		}...)
	}
	for _, o := range outputs {
		path := filepath.Join(f.Output, o.name)
		// Under another name first, so that nobody takes half of a file.
		temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
		if err := o.write(temporary); err != nil {
			os.Remove(temporary)
			return fmt.Errorf("%s: %w", o.name, err)
		}
		if err := os.Rename(temporary, path); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
