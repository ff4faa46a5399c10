package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// home is the folder with bin, lib and nvml, in a build and in a release; empty if it cannot be found.
func home() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "..")
}

// libraryDir is the folder with the library of an NVML version. If none is named, it is the version that came with the
// board's driver, so that programs do not find functions which this driver lacks.
func libraryDir(nvml string, board *profiles.Board) (string, error) {
	version := profiles.NVML(profiles.Branch(board.System.DriverVersion.Or(""))).NVML
	if nvml != "" {
		var err error
		if version, err = findVersion(nvml); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(home(), "nvml", version)
	for _, name := range []string{"libnvidia-ml.so.1", "libnvmlfab-core.so.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("no %s in %s: run make lib, or keep the folders bin, lib and nvml of a release side by side", name, dir)
		} else if err != nil {
			return "", err
		}
	}
	if strings.ContainsAny(dir, ":;") {
		return "", fmt.Errorf("%s: the dynamic linker takes no folder with : or ; in its name: move nvmlfab elsewhere", dir)
	}
	return dir, nil
}

// findVersion finds the only NVML version with this name, or with this name and a dot as its beginning.
func findVersion(name string) (string, error) {
	var all, found []string
	for _, v := range abi.Versions {
		all = append(all, v.NVML)
		if v.NVML == name || strings.HasPrefix(v.NVML, strings.TrimSuffix(name, ".")+".") {
			found = append(found, v.NVML)
		}
	}
	switch {
	case slices.Contains(found, name):
		return name, nil
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return "", fmt.Errorf("--nvml: there is no NVML %q: name one of %s", name, strings.Join(all, ", "))
	}
	return "", fmt.Errorf("--nvml: %q may be %s", name, strings.Join(found, " or "))
}

// libcuda is the path of the libcuda without devices; empty if it has not been built.
func libcuda() string {
	path := filepath.Join(home(), "lib", "libcuda-none.so.1")
	if !exists(path) {
		return ""
	}
	return path
}

// containerHook is the path of the hook for containers; empty if it has not been built.
func containerHook() string {
	path := filepath.Join(home(), "bin", filepath.Base(machine.HookFile))
	if !exists(path) {
		return ""
	}
	return path
}

// setLibrary makes the dynamic linker search a folder first.
func setLibrary(dir string) error {
	if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
		dir += ":" + others
	}
	return os.Setenv("LD_LIBRARY_PATH", dir)
}
