package tests

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scratch copies the tree as git sees it, untracked files included and ignored ones not.
func scratch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := run(t, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").succeeds(t).stdout
	for name := range strings.SplitSeq(strings.Trim(list, "\x00"), "\x00") {
		from, err := os.Open(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not yet committed so
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		info, err := from.Stat()
		require.NoError(t, err)
		to, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, info.Mode())
		require.NoError(t, err)
		_, err = io.Copy(to, from)
		require.NoError(t, err)
		require.NoError(t, to.Close())
		from.Close()
	}
	return dir
}

const walkthroughHead = `package handwritten

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/engine"
)

`

// TestWalkthrough retires a stub as the README tells it, and then makes each mistake that one can make.
func TestWalkthrough(t *testing.T) {
	dir := scratch(t)
	file := filepath.Join(dir, "handwritten", "walkthrough.go")
	write := func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(file, []byte(walkthroughHead+text), 0o644))
	}
	generator := func(t *testing.T, args ...string) outcome {
		return runIn(t, dir, nil, "go", append([]string{"run", "./generator"}, args...)...)
	}
	const symbol = "nvmlDeviceGetIrqNum"

	t.Run("retire a stub", func(t *testing.T) {
		require.Contains(t, generator(t, "--missing").succeeds(t).stdout, symbol)
		write(t, `// DeviceGetIrqNum answers the number of the GPU's interrupt.
func DeviceGetIrqNum(dev *engine.Device) (uint32, abi.Return) { return 174, abi.SUCCESS }
`)
		assert.NotZero(t, generator(t, "--check").code, "generated/ is stale now")
		generator(t, "--update").succeeds(t)
		generator(t, "--check").succeeds(t)
		assert.NotContains(t, generator(t, "--missing").succeeds(t).stdout, symbol)

		runIn(t, dir, nil, "make", "--no-print-directory", "lib").succeeds(t)
		program := compile(t, "irq", linked()...)
		assert.Equal(t, "0 174\n", run(t, with(filepath.Join(dir, "dist", "lib")), program).succeeds(t).stdout)
		assert.Equal(t, "3 0\n", run(t, with(library), program).succeeds(t).stdout, "the library without the function")
	})

	// The line that each mistake is on, the head included.
	for name, mistake := range map[string]struct{ text, line string }{
		"wrong parameter": {"func DeviceGetIrqNum(dev *engine.Device, sensor uint32) (uint32, abi.Return) {\n\treturn 0, abi.SUCCESS\n}\n", "8"},
		"wrong result":    {"func DeviceGetIrqNum(dev *engine.Device) (string, abi.Return) {\n\treturn \"\", abi.SUCCESS\n}\n", "8"},
		"unknown symbol":  {"func DeviceGetIrqNumber(dev *engine.Device) (uint32, abi.Return) {\n\treturn 0, abi.SUCCESS\n}\n", "8"},
		"unknown directive": {"//nvml:symbol nvmlDeviceGetIrqNumber\nfunc DeviceGetIrqNum(dev *engine.Device) (uint32, abi.Return) {\n" +
			"\treturn 0, abi.SUCCESS\n}\n", "8"},
		"duplicate": {"func DeviceGetIrqNum(dev *engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }\n\n" +
			"//nvml:symbol nvmlDeviceGetIrqNum\nfunc InterruptNumber(dev *engine.Device) (uint32, abi.Return) { return 0, abi.SUCCESS }\n", "1[01]"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, mistake.text)
			out := generator(t)
			assert.NotZero(t, out.code)
			assert.Regexp(t, `(?m)^handwritten/walkthrough\.go:`+mistake.line+`:`, out.stderr)
			assert.Contains(t, out.stderr, "GetIrqNum")
		})
	}
}
