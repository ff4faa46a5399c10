package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

// TestCommandReference: docs/commands.md is the help of every command.
func TestCommandReference(t *testing.T) {
	t.Setenv("COLUMNS", "120")
	var cli commands
	parser := newParser(&cli)
	var page strings.Builder
	page.WriteString("# Commands\n\n<!-- go test ./cmd/nvmlfab -run TestCommandReference -update writes this page. -->\n\n" +
		"What `nvmlfab COMMAND --help` prints, for every command. " +
		"The programs `nvidia-imex`, `mock-ib` and `vgpuctl` have pages of their own: [imex.md](imex.md), [infiniband.md](infiniband.md) and [vgpuctl.md](vgpuctl.md).\n\n```\n" + helpOf(t, nil) + "```\n")
	for _, leaf := range parser.Model.Leaves(true) {
		words := strings.Fields(leaf.Path())
		for i, word := range words { // a path also names the arguments
			if strings.HasPrefix(word, "<") || strings.HasPrefix(word, "[") {
				words = words[:i]
				break
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n```\n%s```\n", strings.Join(words, " "), helpOf(t, words))
	}
	path := filepath.Join("..", "..", "docs", "commands.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	assert.Equal(t, page.String(), read(t, "docs", "commands.md"), "run go test ./cmd/nvmlfab -run TestCommandReference -update")
}

// helpOf is the help of a command.
func helpOf(t *testing.T, words []string) string {
	t.Helper()
	var cli commands
	var out bytes.Buffer
	parser := newParser(&cli, kong.Writers(&out, &out), kong.Exit(func(int) {}))
	_, _ = parser.Parse(append(words, "--help"))
	require.NotEmpty(t, out.String(), words)
	return out.String()
}
