package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// These variables choose a profile. The file has priority.
const (
	profileName = "NVMLFAB_PROFILE"
	profileFile = "MOCK_NVML_CONFIG"
)

// profile is a board and its source.
type profile struct {
	board  *profiles.Board
	base   profiles.Base
	layers []profiles.Layer // what flags change about the base
	given  bool             // by a flag, not by the environment
}

func isFile(profile string) bool {
	ext := filepath.Ext(profile)
	return strings.Contains(profile, "/") || ext == ".yaml" || ext == ".yml"
}

// choose loads the profile that a flag names or, without a flag, the one that the environment names.
func choose(flag *string) (p profile, err error) {
	what, path := profileName, os.Getenv(profileFile)
	switch {
	case flag != nil && *flag == "":
		return p, fmt.Errorf("--profile: the name is empty: name a shipped profile, such as %s, or a file; nvmlfab profiles list has the names", profiles.Default)
	case flag != nil && isFile(*flag):
		path, p.given = *flag, true
	case flag != nil:
		path, p.base.Name, p.given, what = "", *flag, true, "--profile"
	case path == "":
		p.base.Name = cmp.Or(os.Getenv(profileName), profiles.Default)
	}
	if path != "" {
		text, err := profiles.Read(path)
		if err != nil {
			return p, err
		}
		p.base = profiles.Base{Name: path, Text: text}
		p.board, err = p.base.With()
		return p, err
	}
	if p.board, err = p.base.With(); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return p, err
}

// change gives the profile another number of GPUs or another driver; nil and empty mean no change. It refuses a driver
// version that cannot be part of a file name.
func (p *profile) change(gpus *uint32, driver string) error {
	if gpus != nil {
		p.layers = append(p.layers, profiles.GPUs("--gpus", *gpus))
	}
	if driver != "" {
		if oldest := abi.Versions[0].Driver; !realDriver.MatchString(driver) || profiles.Branch(driver) < oldest {
			return fmt.Errorf("--driver: there is no driver %q: want a version from %d on, such as 580.105.08", driver, oldest)
		}
		p.layers = append(p.layers, profiles.Driver("--driver", driver))
	}
	if len(p.layers) > 0 {
		var err error
		if p.board, err = p.base.With(p.layers...); err != nil {
			return err
		}
	}
	if v, ok := p.board.System.DriverVersion.Get(); ok && !driverVersion.MatchString(v) {
		return fmt.Errorf("the driver's version is %q: want something like 580.105.08", v)
	}
	return nil
}

// realDriver is the form of a driver's version: a branch of three digits, then a release.
var realDriver = regexp.MustCompile(`^[0-9]{3}(\.[0-9]+){1,3}$`)

var driverVersion = regexp.MustCompile(`^[0-9][0-9A-Za-z.-]*$`)

// setProfile puts the profile into the environment. changed is the path of its changed text.
func (p *profile) setProfile(changed string) error {
	switch {
	case len(p.layers) > 0:
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, changed)
	case !p.given:
		return nil
	case p.base.Text != nil:
		path, err := filepath.Abs(p.base.Name)
		if err != nil {
			return err
		}
		os.Unsetenv(profileName)
		return os.Setenv(profileFile, path)
	default:
		os.Unsetenv(profileFile)
		return os.Setenv(profileName, p.base.Name)
	}
}

// declare writes the MIG instances that the profile gives GPUs into a state directory, so that they have files as any other.
// A directory that this process may not write stays as it is.
func declare(dir string, board *profiles.Board) error {
	source := change.Source{Board: board, Overridden: board, Origin: machine.Booted().UnixMilli()}
	if !source.Declares() {
		return nil
	}
	_, _, err := state.At(dir).Update(func(now *state.State) (*state.State, error) {
		if source.State = now; !source.Declares() {
			return nil, nil
		}
		return change.Begin(source, time.Now().UnixMilli()).Finish()
	})
	if state.Refused(err) {
		return nil
	}
	return err
}

// showNamespace shows the board to programs in this mount namespace, with a state directory; a fresh one if lasting is empty.
// InfiniBand adapters are shown as flags say.
func (p *profile) showNamespace(libraries, program string, system bool, lasting string, ib ibFlags) error {
	options := machine.Options{CPUs: machine.OnlineCPUs(), System: system, Libraries: libraries, CUDA: libcuda(), State: machine.LaunchState}
	if err := ib.adapters(p, &options); err != nil {
		return err
	}
	tree := machine.New(p.board, options)
	m := machine.Launch{Tree: tree, Identity: p.base.Name + "\n" + ib.IB + "\n" + options.Description + "\n" + string(p.base.File(p.layers...)), Profile: p.source(), State: lasting}
	dir, err := m.Show()
	if err != nil {
		return err
	}
	if err := machine.DropNamespaceRights(); err != nil {
		return err
	}
	if err := declare(dir, p.board); err != nil {
		return err
	}
	if err := p.setProfile(filepath.Join(machine.Private, machine.ProfileFile)); err != nil {
		return err
	}
	os.Setenv(stateVariable, dir)
	os.Setenv("SYSTEMD_DEVICE_VERIFY_SYSFS", "0") // otherwise udev's library ignores whatever is not on a sysfs
	if err := ib.start(machine.InfiniBandRoot, true); err != nil {
		return err
	}
	folder, _ := preloadable(program) // where nothing can be preloaded, variables do no harm
	if err := ib.preload(machine.InfiniBandRoot, folder, true); err != nil {
		return err
	}
	return setLibrary(libraries)
}
