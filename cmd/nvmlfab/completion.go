package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Prints a script that lets the shell complete commands, flags, GPUs, keys, faults, profiles and scenarios. Examples:

    source <(nvmlfab completion bash)
    nvmlfab completion zsh > "${fpath[1]}/_nvmlfab"
    nvmlfab completion fish > ~/.config/fish/completions/nvmlfab.fish`
}

// completions are the scripts. They ask nvmlfab complete for the words that can stand where the cursor is, and the shell's
// own completion of files does the rest.
var completions = map[string]string{
	"bash": `_nvmlfab() {
    local words
    mapfile -t words < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=("${words[@]}")
    if [ "${#COMPREPLY[@]}" = 1 ]; then
        case ${COMPREPLY[0]} in
        *=) compopt -o nospace ;;
        esac
    fi
}
complete -o default -F _nvmlfab nvmlfab
`,
	"zsh": `#compdef nvmlfab
_nvmlfab() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if (( ! ${#found[1]} )); then
        _files
        return
    fi
    compadd -Q -- "${(@)found:#*=}"
    compadd -Q -S '' -- "${(@M)found:#*=}"
    return 0
}
if [ "$funcstack[1]" = "_nvmlfab" ]; then
    _nvmlfab "$@"
else
    compdef _nvmlfab nvmlfab
fi
`,
	"fish": `function __nvmlfab_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] complete -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c nvmlfab -f -a '(__nvmlfab_complete)'
`,
}

func (c completionCmd) Run() error {
	script, ok := completions[c.Shell]
	if !ok {
		return fmt.Errorf("there is no completion for %.40q: want %s", c.Shell, strings.Join(slices.Sorted(maps.Keys(completions)), ", "))
	}
	_, err := fmt.Print(script)
	return err
}

// completeCmd prints the words that can stand in the place of the last word, a line each. The scripts call it.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c completeCmd) Run(k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return errors.New("complete wants the words of a command, the last one unfinished or empty")
	}
	last := words[len(words)-1]
	if last == "=" { // bash makes a word of it
		last = ""
	}
	for _, word := range candidates(k.Model.Node, words[:len(words)-1], last) {
		if strings.HasPrefix(word, last) {
			if _, err := fmt.Println(word); err != nil {
				return err
			}
		}
	}
	return nil
}

// candidates are the words that can follow others.
func candidates(at *kong.Node, words []string, last string) []string {
	var flag *kong.Flag // that wants a value
	positional := 0
	for _, word := range words {
		switch {
		case flag != nil && word == "=":
		case flag != nil:
			flag = nil
		case word == "--" && at.Name == "run":
			return nil // what follows is a program's
		case strings.HasPrefix(word, "-"):
			if f := flagOf(at, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				flag = f
			}
		default:
			if next := childOf(at, word); next != nil {
				at, positional = next, 0
				continue
			}
			positional++
		}
	}
	switch {
	case flag != nil:
		return valuesOf(flag.Name, flag.Enum, last)
	case strings.HasPrefix(last, "-"):
		if name, begun, given := strings.Cut(last, "="); given {
			var list []string
			if f := flagOf(at, name); f != nil {
				for _, value := range valuesOf(f.Name, f.Enum, begun) {
					list = append(list, name+"="+value)
				}
			}
			return list
		}
		var list []string
		for _, group := range at.AllFlags(true) {
			for _, f := range group {
				list = append(list, "--"+f.Name)
			}
		}
		return list
	}
	var list []string
	for _, child := range at.Children {
		if !child.Hidden {
			list = append(list, child.Name)
		}
	}
	if n := len(at.Positional); n > 0 {
		p := at.Positional[min(positional, n-1)]
		if positional < n || p.IsSlice() {
			list = append(list, argumentsOf(at.FullPath(), p.Name, words)...)
		}
	}
	return list
}

func childOf(at *kong.Node, name string) *kong.Node {
	for _, child := range at.Children {
		if child.Name == name && !child.Hidden {
			return child
		}
	}
	return nil
}

func flagOf(at *kong.Node, word string) *kong.Flag {
	word, _, _ = strings.Cut(word, "=")
	for _, group := range at.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// valuesOf are values of a flag.
func valuesOf(flag, enum, begun string) []string {
	switch flag {
	case "profile":
		return profiles.Names()
	case "gpu":
		return gpuWords(begun)
	case "run":
		return slices.Sorted(maps.Keys(runs()))
	case "nvml":
		var list []string
		for _, v := range abi.Versions {
			list = append(list, v.NVML)
		}
		return list
	case "for", "every":
		return []string{"10s", "30s", "1m", "5m", "1h"}
	}
	switch {
	case enum != "":
		return strings.Split(enum, ",")
	case flag == "ib":
		return portWords(begun)
	case flag == "speed":
		return speedNames()
	}
	return nil
}

// portWords are the ports and switches of the InfiniBand fabric around the node that the environment names, or around the
// profile alone.
func portWords(begun string) (list []string) {
	p, err := choose(nil)
	if err != nil {
		return nil
	}
	f, self, err := machine.FabricAt(os.Getenv(ibRoot), p.board)
	if err != nil || len(f.Nodes) == 0 {
		return nil
	}
	before := begun[:strings.LastIndex(begun, ",")+1]
	if before == "" {
		list = append(list, "all")
	}
	for _, name := range f.Names(self) {
		list = append(list, before+name)
	}
	return list
}

// speedNames are the names of the speeds of links.
func speedNames() (list []string) {
	for s := fabric.SDR; s <= fabric.XDR; s++ {
		list = append(list, s.String())
	}
	return list
}

// gpuWords are the GPUs of the node that the environment names, or of the profile alone.
func gpuWords(begun string) []string {
	board, err := profiles.Shipped(profiles.Default)
	if p, e := choose(nil); e == nil {
		board, err = p.board, nil
	}
	if err != nil {
		return nil
	}
	before := begun[:strings.LastIndex(begun, ",")+1]
	var list []string
	if before == "" {
		list = append(list, "all")
	}
	for i := range board.Devices {
		list = append(list, fmt.Sprint(before, board.Devices[i].Index))
	}
	for i := range board.Devices {
		list = append(list, before+string(board.Devices[i].UUID))
	}
	return list
}

// argumentsOf are values of a command's argument.
func argumentsOf(command, argument string, words []string) (list []string) {
	has := func(flag string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return w == flag || strings.HasPrefix(w, flag+"=") })
	}
	forGPU, forIB := has("--gpu"), has("--ib")
	switch argument {
	case "key=value":
		for _, key := range profiles.Keys() {
			if profiles.OfNode(key) != forGPU {
				list = append(list, key+"=")
			}
		}
	case "key":
		for _, key := range profiles.Keys() {
			if profiles.OfNode(key) != forGPU {
				list = append(list, key)
			}
		}
	case "kind":
		for _, k := range change.Kinds() {
			of := k.Node
			switch {
			case forIB:
				of = k.InfiniBand()
			case forGPU:
				of = k.GPU
			case strings.HasSuffix(command, "heal"):
				of = true
			}
			if of {
				list = append(list, k.Name)
			}
		}
	case "event":
		for _, t := range change.EventKinds {
			list = append(list, t.Name)
		}
	case "scenario":
		return scenarioNames()
	case "shell":
		return slices.Sorted(maps.Keys(completions))
	case "name":
		if strings.HasSuffix(command, "show") {
			return profiles.Names()
		}
	}
	return list
}
