package main

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

// addDynamic adds to /dynamic the files for tests of libraries: the NVENC filter with a library that enumerates GPUs,
// NVIDIA's libcuda, a program that loads it, and strace.
func (a *initramfs) addDynamic() error {
	if err := command(nil, "make", "--no-print-directory", "dist/lib/libnvgpufilter.so"); err != nil {
		return err
	}
	const sources = "kernel/vm/testdata/"
	for name, args := range map[string][]string{
		"libcuda.so.1": {"-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", sources + "enumerate.c"},
		"nvenc":        {sources + "nvenc.c"},
		"cuinit":       {sources + "cuinit.c"},
	} {
		built := filepath.Join(out, "dynamic-"+name)
		if err := command(nil, "gcc", append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", built}, args...)...); err != nil {
			return err
		}
		if err := a.addProgram("dynamic/"+name, built); err != nil {
			return err
		}
	}
	cuda, err := debian.File("libcuda-550", "libcuda.so.550.163.01")
	if err != nil {
		return err
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("%w; apt-get install strace, or make setup", err)
	}
	for name, from := range map[string]string{
		"libnvgpufilter.so":     "dist/lib/libnvgpufilter.so",
		"libcuda.so.550.163.01": cuda,
		"strace":                strace,
	} {
		if err := a.addProgram("dynamic/"+name, from); err != nil {
			return err
		}
	}
	return nil
}
