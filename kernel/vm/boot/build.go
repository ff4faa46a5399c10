package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// build makes all files of the virtual machine.
func build(kernel debian.Kernel) (*initramfs, error) {
	make := func(target string, args ...string) error {
		return command(nil, "make", append([]string{"--no-print-directory", "-C", "kernel", target}, args...)...)
	}
	// With the variable of an outer make, this make would print its folder.
	os.Unsetenv("MAKEFLAGS")
	if err := make("kernel", "KDIR="+kernel.Headers, "STRICT=1"); err != nil {
		return nil, err
	}
	if err := make("programs"); err != nil {
		return nil, err
	}
	static := []string{"CGO_ENABLED=0"}
	if err := command(static, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(out, "bin")+"/", "./cmd/vgpuctl"); err != nil {
		return nil, err
	}
	guest := filepath.Join(out, "guest.test")
	if err := command(static, "go", "test", "-c", "-tags", "guest", "-ldflags=-s -w", "-o", guest, "./kernel/vm"); err != nil {
		return nil, err
	}

	var a initramfs
	if err := a.addFile("init", guest); err != nil {
		return nil, err
	}
	for folder, files := range map[string]string{
		"modules": filepath.Join(out, kernel.Release, "*.ko"),
		"bin":     filepath.Join(out, "bin", "*"),
	} {
		found, err := filepath.Glob(files)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if err := a.addFile(folder+"/"+filepath.Base(f), f); err != nil {
				return nil, err
			}
		}
	}
	if err := a.addDynamic(); err != nil {
		return nil, err
	}
	if err := a.addFile("TRACE-NOTES.md", "kernel/TRACE-NOTES.md"); err != nil {
		return nil, err
	}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "etc"} {
		a.add(dir, os.ModeDir|0o755, nil)
	}
	a.add("TRAILER!!!", 0, nil)
	fmt.Printf("the initramfs has %d files, %d MiB\n", len(a.names), a.Len()>>20)
	return &a, nil
}
