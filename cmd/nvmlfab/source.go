package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/capture"
)

// source is a library that is asked everything. When a call ends the library's process, it is started again without that function.
type source struct {
	library string
	env     []string
	timeout time.Duration
	errors  io.Writer

	path           string // of the library, once it is loaded
	skip           map[string]bool
	notes          []string
	crashes, hangs int
	running        *caller
}

func (s *source) close() {
	if s.running != nil {
		s.running.close()
		s.running = nil
	}
}

// walk walks through the library.
func (s *source) walk() (*capture.Walk, error) {
	for {
		if s.running == nil {
			c, err := newCaller(s.library, s.env, s.timeout, s.errors)
			if err != nil {
				return nil, err
			}
			s.running, s.path = c, c.path
		}
		w, err := capture.Run(s.running, s.skip)
		if err == nil {
			return w, nil
		}
		var start *capture.StartError
		if !errors.As(err, &start) {
			s.close()
		}
		var call *capture.CallError
		if !errors.As(err, &call) || s.skip[call.Function] {
			return nil, err
		}
		var crash *crashError
		switch {
		case errors.As(err, &crash):
			s.crashes++
		case errors.Is(err, errHangs):
			s.hangs++
		default:
			return nil, err
		}
		s.skip[call.Function] = true
		s.notes = append(s.notes, fmt.Sprintf("left out: %s", err))
		if s.crashes > mostCrashes || s.hangs > mostHangs {
			return nil, fmt.Errorf("too many functions do not come back; the last is %w", err)
		}
	}
}

// explain says what to do about a library that cannot be captured.
func (s *source) explain(err error) error {
	var load *capture.LoadError
	if errors.As(err, &load) {
		if s.library == defaultLibrary && strings.Contains(load.Text, "cannot open shared object file") {
			return fmt.Errorf("there is no %s on this machine, which comes with NVIDIA's driver: install the driver, or name the library by --library", s.library)
		}
		return fmt.Errorf("the library cannot be loaded: %s", load.Text)
	}
	var start *capture.StartError
	if !errors.As(err, &start) {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	advice := ""
	switch start.Return {
	case abi.ERROR_DRIVER_NOT_LOADED:
		advice = ": NVIDIA's driver is not running here: load it (modprobe nvidia) on a machine with an NVIDIA GPU, and see that nvidia-smi works there"
	case abi.ERROR_LIB_RM_VERSION_MISMATCH:
		advice = ": the library and the running driver are of different versions: load the driver that was installed last, or restart the machine"
	case abi.ERROR_NO_PERMISSION:
		advice = ": this user may not open the driver's devices: see the permissions of /dev/nvidia*, or call nvmlfab as root"
	case abi.ERROR_GPU_NOT_FOUND, abi.ERROR_NO_DATA:
		advice = ": the driver finds no GPU"
	case abi.ERROR_FUNCTION_NOT_FOUND:
		advice = ": it has neither nvmlInit_v2 nor nvmlInit, so it is no NVML library"
	}
	return fmt.Errorf("%s: %w%s", s.path, err, advice)
}

const defaultLibrary = "libnvidia-ml.so.1"

// name is the library's name as the dynamic linker wants it: a path for a file.
func (c captureCmd) library() string {
	if c.Library == "" {
		return defaultLibrary
	}
	if path, err := filepath.Abs(c.Library); err == nil {
		return path
	}
	return c.Library
}

// writable finds out whether the output can be written, before the library is asked for it.
func (c captureCmd) writable() error {
	if c.Output == "" || c.Output == "-" {
		return nil
	}
	path, err := target(c.Output)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s is a directory: name a file for the profile", path)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".nvmlfab-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
