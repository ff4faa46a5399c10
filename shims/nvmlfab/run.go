package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// The variables that choose a profile; a file wins.
const (
	profileName = "NVMLFAB_PROFILE"
	profileFile = "MOCK_NVML_CONFIG"
)

type runCmd struct {
	Profile *string  `placeholder:"NAME|FILE" help:"A shipped profile, or a profile file, which has a / in it or ends in .yaml or .yml."`
	Command []string `arg:"" name:"cmd" passthrough:"partial" help:"The program and its arguments."`
}

func (runCmd) Help() string {
	return `Flags of nvmlfab stand before the program, and what follows the program is its own. Examples:

    nvmlfab run -- nvidia-smi -L
    nvmlfab run --profile mine.yaml -- python3 monitor.py --interval 5

The program takes the place of nvmlfab: exit status, signals, input, output, working directory and user are its own. It finds
nvmlfab's libnvidia-ml.so.1 before NVIDIA's. Without --profile the environment chooses: MOCK_NVML_CONFIG a profile file, else
NVMLFAB_PROFILE a shipped profile, else it is ` + profiles.Default + `.

The exit status is 127 if there is no such program, 126 if it cannot be executed, and 125 if anything else is wrong.`
}

// AfterApply drops the -- in front of the program, which the parser leaves in place.
func (c *runCmd) AfterApply() error {
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New(`expected "<cmd> ..."`)
	}
	return nil
}

// Run only returns if the program cannot be started.
func (c *runCmd) Run() error {
	if err := c.setProfile(); err != nil {
		return exitError{err, exitRun}
	}
	if err := setLibrary(); err != nil {
		return exitError{err, exitRun}
	}
	return become(c.Command)
}

// setProfile puts the profile into the environment. It loads the profile first: a program on a broken one would only say
// that NVML does not work.
func (c *runCmd) setProfile() error {
	switch {
	case c.Profile == nil:
		return checkInherited()
	case isFile(*c.Profile):
		if _, err := profiles.Load(*c.Profile); err != nil {
			return err
		}
		path, err := filepath.Abs(*c.Profile)
		if err != nil {
			return err
		}
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, path)
	default:
		if _, err := profiles.Shipped(*c.Profile); err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		os.Unsetenv(profileFile)
		return os.Setenv(profileName, *c.Profile)
	}
}

// checkInherited loads the profile that the environment names already.
func checkInherited() error {
	if path := os.Getenv(profileFile); path != "" {
		_, err := profiles.Load(path)
		return err
	}
	if name := os.Getenv(profileName); name != "" {
		if _, err := profiles.Shipped(name); err != nil {
			return fmt.Errorf("%s: %w", profileName, err)
		}
	}
	return nil
}

func isFile(profile string) bool {
	ext := filepath.Ext(profile)
	return strings.Contains(profile, "/") || ext == ".yaml" || ext == ".yml"
}

// setLibrary makes the dynamic linker find nvmlfab's libraries first. They are in the folder lib beside the command's own
// folder, in a build as in a release.
func setLibrary() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(self), "..", "lib")
	for _, name := range []string{"libnvidia-ml.so.1", "libnvmlfab-core.so.1"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("no %s in %s: run make, or keep the folders bin and lib of a release side by side", name, dir)
		}
	}
	if strings.ContainsAny(dir, ":;") {
		return fmt.Errorf("%s: the dynamic linker takes no folder with : or ; in its name: move nvmlfab elsewhere", dir)
	}
	if others := os.Getenv("LD_LIBRARY_PATH"); others != "" {
		dir += ":" + others
	}
	return os.Setenv("LD_LIBRARY_PATH", dir)
}

// become replaces this process by a program. Of the signals that nvmlfab's own parent had ignored, Go's runtime keeps SIGHUP
// and SIGINT ignored; the others have their default effect in the program.
func become(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err == nil || errors.Is(err, exec.ErrDot) { // PATH may name the working directory
		err = syscall.Exec(path, argv, os.Environ())
		if err == syscall.ENOENT {
			err = errors.New("the interpreter that it names is missing")
		}
		return exitError{fmt.Errorf("cannot run %q: %w", argv[0], err), exitNotExecutable}
	}
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return exitError{fmt.Errorf("cannot run %q: %w", argv[0], errors.Unwrap(err)), status}
}
