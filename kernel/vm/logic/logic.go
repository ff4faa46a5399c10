// Package logic builds the tests of kernel/logic and reads their results, from user space and from a kernel.
package logic

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Sanitized are the compiler flags for the tests in user space. A fault ends the program.
var Sanitized = []string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// Sources are the C files of the logic, and of its tests in dir, kernel/logic: the suites with their main program, or
// the fuzzer.
func Sources(dir string, fuzzer bool) ([]string, error) {
	code, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return nil, err
	}
	tests, err := filepath.Glob(filepath.Join(dir, "tests", "*.c"))
	if err != nil || len(code) == 0 || len(tests) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no C files in %q and its tests", dir))
	}
	tests = slices.DeleteFunc(tests, func(path string) bool {
		name := filepath.Base(path)
		if fuzzer {
			return name == "main.c" || strings.HasSuffix(name, "_test.c")
		}
		return name == "fuzz.c"
	})
	return append(code, tests...), nil
}

// Compile compiles the sources to a program.
func Compile(compiler string, flags, sources []string, program string) error {
	args := slices.Concat(flags, []string{"-o", program}, sources)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return nil
}

// RunSuites compiles the suites in dir with gcc to a program and runs it. It returns an error if the program does not
// finish, or if its exit status contradicts its results.
func RunSuites(dir, program string, flags []string) ([]Suite, error) {
	sources, err := Sources(dir, false)
	if err != nil {
		return nil, err
	}
	if err := Compile("gcc", flags, sources, program); err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := cmd.Run()
	suites, err := Parse(&stdout)
	failed := slices.ContainsFunc(suites, func(s Suite) bool { return !s.OK })
	switch {
	case err != nil:
		err = fmt.Errorf("%w; %s", err, &stderr)
	case ended != nil && !failed:
		err = fmt.Errorf("no suite failed, and yet: %w; %s", ended, &stderr)
	case ended == nil && failed:
		err = errors.New("a suite failed, and the program ended well")
	}
	return suites, err
}
