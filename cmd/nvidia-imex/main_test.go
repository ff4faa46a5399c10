package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWithoutGPU(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"nothing":                        {"", "--nogpu"},
		"options":                        {"-c imex.cfg", "-c imex.cfg --nogpu"},
		"the flag":                       {"--nogpu -q", "--nogpu -q"},
		"its other spelling":             {"-q -nogpu", "-q -nogpu"},
		"its look-alikes":                {"nogpu --nogpus ---nogpu --NOGPU", "nogpu --nogpus ---nogpu --NOGPU --nogpu"},
		"with a value":                   {"--nogpu=true", "--nogpu=true --nogpu"},
		"with another value":             {"--nogpu=false", "--nogpu=false --nogpu"},
		"as a file's name":               {"-c --nogpu", "-c --nogpu --nogpu"},
		"as a file's name, long":         {"--config -nogpu", "--config -nogpu --nogpu"},
		"as a file's name and once more": {"--config --nogpu --nogpu", "--config --nogpu --nogpu"},
		"the name in one word":           {"--config=--nogpu", "--config=--nogpu --nogpu"},
		"no name":                        {"-c", "-c --nogpu"},
		"the end of options":             {"-q -- x", "-q --nogpu -- x"},
		"only that":                      {"--", "--nogpu --"},
		"the flag after the end":         {"-- --nogpu", "--nogpu -- --nogpu"},
		"the flag before the end":        {"--nogpu -- x", "--nogpu -- x"},
		"a file called --":               {"-c -- -nogpu", "-c -- -nogpu"},
		"version":                        {"--version", "--version --nogpu"},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(c.args)
			assert.Equal(t, strings.Fields(c.want), withoutGPU(args))
			assert.Equal(t, strings.Fields(c.args), args, "the caller's own arguments")
		})
	}
}
