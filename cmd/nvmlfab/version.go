package main

import (
	"fmt"
	"runtime/debug"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// version is the version of a release, which is built with -ldflags "-X main.version=1.2.3".
var version string

type versionCmd struct{}

func (versionCmd) Help() string {
	return `The second line counts the symbols that any version of NVML has, and those that answer something. Example:

    nvmlfab version`
}

func (versionCmd) Run() error {
	symbols, implemented := 0, 0
	for _, s := range abi.Symbols() {
		if s.Kind == "slot" { // an entry of nvidia-smi's table, which is not exported
			continue
		}
		symbols++
		if s.Implemented {
			implemented++
		}
	}
	oldest, newest := abi.Versions[0], abi.Versions[len(abi.Versions)-1]
	_, err := fmt.Printf("nvmlfab %s\nNVML %s to %s: %d symbols, %d implemented\n",
		buildVersion(), oldest.NVML, newest.NVML, symbols, implemented)
	return err
}

// buildVersion is the release's version or, in other builds, what the go command knows about the source.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
