package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// version is the version of a release, which is built with -ldflags "-X main.version=1.2.3".
var version string

type versionCmd struct{}

func (versionCmd) Help() string {
	return `The second line counts the symbols of NVML, and those that answer something: in a release those of the newest version, as its
manifest.json says, which has them for every version; in other builds those of all versions together. Example:

    nvmlfab version`
}

// manifest is what a release says about itself in manifest.json.
type manifest struct {
	Nvmlfab  string
	NVML     []string
	Coverage struct {
		Versions []struct {
			NVML                 string
			Symbols, Implemented int
		}
	}
}

// readManifest reads the manifest of the release that this program is in; nil in other builds.
func readManifest() (*manifest, error) {
	path := filepath.Join(home(), "manifest.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.Nvmlfab != version || len(m.NVML) == 0 || len(m.Coverage.Versions) == 0 {
		return nil, fmt.Errorf("%s is of nvmlfab %q, and this is %q: install the release again", path, m.Nvmlfab, buildVersion())
	}
	return &m, nil
}

func (versionCmd) Run() error {
	if m, err := readManifest(); err != nil {
		return err
	} else if m != nil {
		newest := m.Coverage.Versions[len(m.Coverage.Versions)-1]
		_, err := fmt.Printf("nvmlfab %s\nNVML %s: %d symbols, %d implemented; libraries for %d versions, from %s on\n",
			m.Nvmlfab, newest.NVML, newest.Symbols, newest.Implemented, len(m.NVML), m.NVML[0])
		return err
	}
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
