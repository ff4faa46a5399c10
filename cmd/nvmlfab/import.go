package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/nvmlfab/nvmlfab/profiles/importer"
)

type importCmd struct {
	Files           []string `arg:"" name:"file" help:"Output of nvidia-smi, or - for standard input."`
	Output          string   `short:"o" placeholder:"FILE" help:"The profile; standard output if absent."`
	KeepIdentifiers bool     `help:"Keep UUIDs, serial numbers and other identifiers, and the folders of programs, in place of made-up ones."`
}

func (importCmd) Help() string {
	return `The files are from one machine. One of them has the output of nvidia-smi -q -x or nvidia-smi -q, of the drivers 340 to 610;
text around it, as in a bug report, is passed over. Beside it topo -m, nvlink -s and --query-supported-clocks=mem,gr
--format=csv are read, in the same file or in others. What the profile does not have of the output is told on standard
error, with file and line. Identifiers are replaced by made-up ones. Example:

    nvidia-smi -q -x > q.xml; nvidia-smi topo -m > topo.txt; nvidia-smi nvlink -s > nvlink.txt
    nvmlfab profiles import q.xml topo.txt nvlink.txt -o mine.yaml`
}

func (c importCmd) Run() error {
	files := make([]importer.File, 0, len(c.Files))
	for _, name := range c.Files {
		text, err := inputText(name)
		if err != nil {
			return err
		}
		files = append(files, importer.File{Name: name, Text: text})
	}
	result, err := importer.Import(files, importer.Options{KeepIdentifiers: c.KeepIdentifiers})
	if err != nil {
		return err
	}
	for _, note := range result.Notes {
		fmt.Fprintf(os.Stderr, "nvmlfab: %s\n", note)
	}
	return writeOutput(c.Output, result.Profile)
}

// inputText is the text of a file, or what standard input has if the name is "-".
func inputText(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, importer.MaxFile+1))
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &profiles.Error{File: name, Text: "is a directory: want output of nvidia-smi"}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, importer.MaxFile+1))
	return text, errors.Join(err, f.Close())
}
