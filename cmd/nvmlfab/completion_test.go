package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"|":                            "version profiles run status set unset fail heal reset events process mig play stage unstage cdi fakegpu completion",
		"pr|":                          "profiles process",
		"profiles |":                   "list show validate schema",
		"profiles show t|":             "t4",
		"status --|":                   "--help --root --run --output --watch --every",
		"status -o |":                  "table json",
		"status --output=j|":           "--output=json",
		"run --profile a|":             "a100-sxm4-40gb",
		"run --profile t4 -- |":        "",
		"set --gpu a|":                 "all",
		"set --gpu 0,|":                "", // filled in below
		"set --gpu 0 utilization.g|":   "utilization.gpu=",
		"set system.init|":             "system.init_failure=",
		"set utilization.g|":           "",
		"unset --gpu 0 utilization.g|": "utilization.gpu",
		"fail --gpu 3 fal|":            "fallen-off-bus",
		"fail dri|":                    "driver-not-loaded",
		"heal lo|":                     "lost",
		"events send --gpu 1 x|":       "xid",
		"play t|":                      "thermal-runaway training-epoch",
		"completion |":                 "bash fish zsh",
	} {
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		out := nvmlfab(t, append([]string{"complete", "--"}, words...)...)
		assert.Zero(t, out.status, line)
		assert.Empty(t, out.stderr)
		got := strings.Join(strings.Fields(out.stdout), " ")
		if line == "set --gpu 0,|" {
			assert.Contains(t, got, "0,1 0,2")
			assert.NotContains(t, got, "all")
			continue
		}
		assert.Equal(t, want, got, line)
	}
}

// TestCompletionScripts: the shells that this machine has take the scripts, and complete by them.
func TestCompletionScripts(t *testing.T) {
	bin := filepath.Join(tree, "bin")
	for shell, script := range map[string]string{
		"bash": `source <(nvmlfab completion bash); COMP_WORDS=(nvmlfab fail --gpu 3 fal); COMP_CWORD=4; _nvmlfab; echo "${COMPREPLY[@]}"`,
		"fish": `nvmlfab completion fish | source; complete -C "nvmlfab fail --gpu 3 fal"`,
		"zsh":  `autoload -U compinit; compinit -D; source <(nvmlfab completion zsh); whence -w _nvmlfab >/dev/null && echo fallen-off-bus`,
	} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("without %s: %s", shell, err)
			continue
		}
		cmd := exec.Command(path, "-c", "export PATH="+bin+":$PATH; "+script)
		if shell == "fish" {
			cmd = exec.Command(path, "-c", "set -x PATH "+bin+" $PATH; "+script)
		}
		assert.Equal(t, outcome{"fallen-off-bus\n", "", 0}, start(t, cmd), shell)
	}
}
