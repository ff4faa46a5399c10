package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine/container"
)

const help = `Usage: nvmlfab-hook [--debug] [--quiet] COMMAND [FLAG...]

a hook for containers that NVIDIA's software gives GPUs of a staged machine.

It has the command line of NVIDIA's nvidia-cdi-hook 1.17 to 1.20 and reads, as that does, the container's state from its input.
Whichever command comes first shows the container the GPUs whose device nodes it has, in /sys and /proc, by the profile and by
the state directory. nvmlfab stage puts this program into usr/bin of the folder that it writes. There NVIDIA_CDI_HOOK_PATH has
to name it.

Commands:
  create-symlinks                   Make links: --link TARGET::LINK, any number of times.
  update-ldcache                    Let the dynamic linker find libraries: --folder DIR, any number of times. No ldconfig is
                                    started, so --ldconfig-path FILE changes nothing.
  chmod                             Give files a mode: --mode OCTAL, and --path PATH any number of times.
  enable-cuda-compat                Prefer the image's libraries of a newer driver: --host-driver-version VERSION,
                                    --host-cuda-version VERSION, --cuda-compat-container-root DIR.
  disable-device-node-modification  Say in the driver's parameters that it makes no device nodes, as all containers are told.
  update-application-profile        Let EGL and Vulkan find the container's GPUs alone.
  noop                              Do nothing.

Flags:
  -d, --debug              Say what is done.
      --quiet              Say nothing but errors.
      --container-spec FILE  After a command: read the container's state from a file, not from the input.
  -v, --version            Print the version.
  -h, --help               Print this.
`

// kind is what a flag takes.
type kind int

const (
	boolean kind = iota
	text
	list // any number of times, and several with commas between them
)

// command is one of nvidia-cdi-hook's.
type command struct {
	flags map[string]kind
	check func(*line) error // of the flags; nil if all are right
	do    func(*container.Container, *line) error
}

var globals = map[string]kind{"debug": boolean, "quiet": boolean, "help": boolean, "version": boolean}

// short are flags of one letter.
var short = map[string]string{"d": "debug", "h": "help", "v": "version"}

var commands = map[string]*command{
	"create-symlinks": {
		flags: map[string]kind{"link": list},
		check: func(l *line) error {
			for _, link := range l.values["link"] {
				if parts := strings.Split(link, "::"); len(parts) != 2 {
					return fmt.Errorf("--link: want TARGET::LINK, not %q", link)
				}
			}
			return nil
		},
		do: func(c *container.Container, l *line) error {
			for _, link := range l.values["link"] {
				target, name, _ := strings.Cut(link, "::")
				if err := c.Link(name, target); err != nil {
					return err
				}
			}
			return nil
		},
	},
	"update-ldcache": {
		flags: map[string]kind{"folder": list, "ldconfig-path": text},
		check: func(l *line) error {
			if path, given := l.given("ldconfig-path"); given && path == "" {
				return errors.New("--ldconfig-path: the name is empty")
			}
			return nil
		},
		do: func(c *container.Container, l *line) error { return c.UpdateCache(l.values["folder"]...) },
	},
	"chmod": {
		flags: map[string]kind{"mode": text, "path": list},
		check: func(l *line) error {
			if _, err := l.mode(); err != nil {
				return fmt.Errorf("--mode: want a mode such as 755, not %q", l.text("mode"))
			}
			for _, path := range l.values["path"] {
				if strings.TrimSpace(path) == "" {
					return errors.New("--path: the name is empty")
				}
			}
			return nil
		},
		do: func(c *container.Container, l *line) error {
			mode, err := l.mode()
			if err != nil {
				return err
			}
			return c.Chmod(mode, l.values["path"]...)
		},
	},
	"enable-cuda-compat": {
		flags: map[string]kind{"host-driver-version": text, "host-cuda-version": text, "cuda-compat-container-root": text},
		do: func(c *container.Container, l *line) error {
			folder, given := l.given("cuda-compat-container-root")
			if !given {
				folder = container.CompatFolder
			}
			return c.EnableCompat(folder, l.text("host-driver-version"), l.text("host-cuda-version"))
		},
	},
	"disable-device-node-modification": {do: func(*container.Container, *line) error { return nil }}, // as is shown to all
	"update-application-profile":       {do: func(c *container.Container, _ *line) error { return c.ApplicationProfile() }},
	"noop":                             {},
}

// line is what a command line says.
type line struct {
	word    string   // the command's name
	command *command // nil if there is none of that name
	values  map[string][]string
	rest    []string // further words
}

// parse reads a command line. Flags have one dash or two, and their values follow, or are joined to them by an equals sign. The
// word hook may come before the command, as with nvidia-ctk.
func parse(args []string) (*line, error) {
	l := &line{values: map[string][]string{}}
	words := func(word string) {
		switch {
		case l.word != "":
			l.rest = append(l.rest, word)
		case word == "hook":
		default:
			l.word, l.command = word, commands[word]
		}
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			for _, word := range args {
				words(word)
			}
			break
		}
		name, dashed := strings.CutPrefix(arg, "-")
		if !dashed || name == "" {
			words(arg)
			continue
		}
		name, value, joined := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if long := short[name]; long != "" {
			name = long
		}
		k, known := l.kind(name)
		switch {
		case !known && l.command == nil && (l.word != "" || !names(args)):
			continue // of a command that there is not, which is warned of
		case !known:
			return nil, fmt.Errorf("%sthere is no flag %q", l.before(), arg)
		case k == boolean && !joined:
			value = "true"
		case k == boolean:
			on, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("%s--%s: want true or false, not %q", l.before(), name, value)
			}
			value = strconv.FormatBool(on)
		case !joined && len(args) == 0:
			return nil, fmt.Errorf("%s--%s: a value has to follow", l.before(), name)
		case !joined:
			value, args = args[0], args[1:]
		}
		if k == list {
			for value := range strings.SplitSeq(value, ",") {
				l.values[name] = append(l.values[name], strings.TrimSpace(value))
			}
		} else {
			l.values[name] = []string{value}
		}
	}
	return l, nil
}

// names says whether there is a command's name among arguments.
func names(args []string) bool {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") && arg != "hook" {
			return commands[arg] != nil
		}
	}
	return false
}

// kind is what a flag takes in this place of the line.
func (l *line) kind(name string) (kind, bool) {
	if l.command != nil {
		if name == "container-spec" && l.command.do != nil {
			return text, true
		}
		if k, ok := l.command.flags[name]; ok {
			return k, true
		}
	}
	k, ok := globals[name]
	return k, ok
}

// before is what an error about a flag begins with.
func (l *line) before() string {
	if l.word == "" {
		return ""
	}
	return l.word + ": "
}

func (l *line) given(name string) (string, bool) {
	values := l.values[name]
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

func (l *line) text(name string) string {
	value, _ := l.given(name)
	return value
}

func (l *line) bool(name string, otherwise bool) bool {
	value, given := l.given(name)
	if !given {
		return otherwise
	}
	return value == "true"
}

// mode is the mode of chmod.
func (l *line) mode() (uint32, error) {
	mode, err := strconv.ParseUint(l.text("mode"), 8, 32)
	return uint32(mode) & 0o7777, err
}
