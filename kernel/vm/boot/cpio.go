package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// initramfs is a cpio archive (newc), which the kernel unpacks at boot.
type initramfs struct {
	bytes.Buffer
	names []string
}

// add adds a file, after the folders above it.
func (a *initramfs) add(name string, mode os.FileMode, content []byte) {
	if slices.Contains(a.names, name) {
		return
	}
	if dir := path.Dir(name); dir != "." {
		a.add(dir, os.ModeDir|0o755, nil)
	}
	a.names = append(a.names, name)
	kind := map[os.FileMode]uint32{0: 0o100000, os.ModeDir: 0o040000, os.ModeSymlink: 0o120000}[mode.Type()]
	a.entry(name, kind|uint32(mode.Perm()), content)
}

func (a *initramfs) entry(name string, mode uint32, content []byte) {
	const nlink = 1
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", len(a.names), mode, 0, 0, nlink, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(content)
	a.pad()
}

func (a *initramfs) pad() { a.Write(make([]byte, -a.Len()&3)) }

// addFile adds a file of this machine.
func (a *initramfs) addFile(name, from string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		a.add(name, 0o755, content)
	}
	return err
}

// addProgram adds a dynamically linked program with its loader and libraries, which get the paths that they have here.
// It searches folders first for libraries that are named without a path.
func (a *initramfs) addProgram(name, from string, folders ...string) error {
	if err := a.addFile(name, from); err != nil {
		return err
	}
	f, err := elf.Open(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader := make([]byte, p.Filesz)
			if _, err := p.ReadAt(loader, 0); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
			at := string(bytes.TrimRight(loader, "\x00"))
			if err := a.addFile(at[1:], at); err != nil {
				return err
			}
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, library := range libraries {
		at, err := findLibrary(library, folders)
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if to := at[1:]; !slices.Contains(a.names, to) {
			if err := a.addProgram(to, at, folders...); err != nil {
				return err
			}
		}
	}
	return nil
}

func findLibrary(name string, folders []string) (string, error) {
	for _, dir := range append(slices.Clone(folders), "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib") {
		if at := filepath.Join(dir, name); exists(at) {
			return at, nil
		}
	}
	return "", fmt.Errorf("no library %s on this machine", name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
