package tests

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A caller is a running testdata/call.c. It can call any name that the library exports, also old names that go-nvml
// does not use, and it checks the memory after each buffer.
type caller struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

func newCaller(t *testing.T, program string, env ...string) *caller {
	t.Helper()
	cmd := exec.Command(program, filepath.Join(library, "libnvidia-ml.so.1"))
	cmd.Env = append(append(environ(), "NVMLFAB_STATE_DIR="+stateDir(t)), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close() // this ends the program
		assert.NoError(t, cmd.Wait())
		assert.Empty(t, stderr.String())
	})
	return &caller{t, in, bufio.NewReader(out)}
}

// call calls a function. An argument is a number, a string, nil for NULL, or a pointer or slice whose memory the function
// reads and writes.
func (c *caller) call(symbol string, args ...any) nvml.Return {
	c.t.Helper()
	line := symbol
	var buffers [][]byte
	for _, a := range args {
		if s, ok := a.(string); ok {
			a = append([]byte(s), 0)
		}
		if in, ok := a.(pointed); ok {
			buffers = append(buffers, memory(reflect.ValueOf(in.buffer)))
			line += fmt.Sprintf(" &%x=%x", in.at, buffers[len(buffers)-1])
			continue
		}
		switch v := reflect.ValueOf(a); v.Kind() {
		case reflect.Invalid:
			line += " 0"
		case reflect.Pointer, reflect.Slice:
			buffers = append(buffers, memory(v))
			line += fmt.Sprintf(" =%x", memory(v))
		default:
			line += fmt.Sprintf(" %x", a)
		}
	}
	_, err := fmt.Fprintln(c.in, line)
	require.NoError(c.t, err)
	answer, err := c.out.ReadString('\n')
	require.NoError(c.t, err, "%s killed the program", symbol)

	words := strings.Fields(answer)
	require.Len(c.t, words, len(buffers)+1)
	var ret nvml.Return
	_, err = fmt.Sscan(words[0], &ret)
	require.NoError(c.t, err)
	for i, buffer := range buffers {
		after, err := hex.DecodeString(words[i+1])
		require.NoError(c.t, err)
		n := copy(buffer, after)
		require.Equal(c.t, bytes.Repeat([]byte{0xa5}, 16), after[n:], "%s wrote past its buffer of %d bytes", symbol, n)
	}
	return ret
}

// pointed is no argument: the struct before it has a pointer to this buffer, at bytes after its start.
type pointed struct {
	at     int
	buffer any
}

// memory is what a pointer or slice refers to.
func memory(v reflect.Value) []byte {
	n := v.Type().Elem().Size()
	if v.Kind() == reflect.Slice {
		n *= uintptr(v.Len())
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), n)
}

// get calls a function whose last argument is its result.
func get[T any](c *caller, symbol string, args ...any) (T, nvml.Return) {
	c.t.Helper()
	var value T
	ret := c.call(symbol, slices.Concat(args, []any{&value})...)
	return value, ret
}

// list calls a function whose last arguments are a count and an array. The first call gets only the count.
func list[T any](c *caller, symbol string, args ...any) ([]T, nvml.Return) {
	c.t.Helper()
	var n uint32
	ret := c.call(symbol, slices.Concat(args, []any{&n, nil})...)
	if ret != nvml.ERROR_INSUFFICIENT_SIZE {
		return make([]T, n), ret
	}
	array := make([]T, n)
	ret = c.call(symbol, slices.Concat(args, []any{&n, array})...)
	return array[:n], ret
}
