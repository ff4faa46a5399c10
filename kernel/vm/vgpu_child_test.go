//go:build guest

package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/kernel/vgpuctl"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The test binary is also a program that makes driver calls on command, one per line. Tests use it for calls that
// another process must make.
func init() {
	if os.Getenv("VGPU_CHILD") == "" {
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	c := childState{}
	for lines.Scan() {
		var name string
		var n uint64
		fmt.Sscan(lines.Text(), &name, &n)
		answer, err := c.do(name, n)
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
	os.Exit(0)
}

// childState is a client on the program's own descriptor, or on the inherited descriptor 3.
type childState struct {
	ctl            int
	client, device uint32
	last           uint32
}

// alloc is RM_ALLOC, without a test to report to.
func (c *childState) alloc(parent uint32, object *uint32, class uint32, params any) error {
	v := nvos64{Root: c.client, Parent: parent, Object: *object, Class: class}
	v.Params, v.ParamsSize = place(params)
	err := rmIoctl(c.ctl, escAlloc, &v)
	runtime.KeepAlive(params)
	*object = v.Object
	return failed(err, v.Status)
}

func failed(err error, status uint32) error {
	if err == nil && status != 0 {
		return fmt.Errorf("status %#x", status)
	}
	return err
}

func (c *childState) start(gpu uint32) error {
	c.client, c.device = 0, 0
	if err := c.alloc(0, &c.client, classRoot, (*byte)(nil)); err != nil {
		return err
	}
	return c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: gpu})
}

func (c *childState) do(name string, n uint64) (answer string, err error) {
	switch name {
	case "open": // a client; n is the GPU
		if c.ctl, err = unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			err = c.start(uint32(n))
		}
	case "inherit":
		c.ctl = 3
		err = c.start(uint32(n))
	case "alloc": // n bytes
		c.last = 0
		err = c.alloc(c.device, &c.last, classLocal, &memoryParams{Size: n})
	case "close":
		err = unix.Close(c.ctl)
	case "policy": // for itself, by its number in its own PID namespace, a limit of n bytes
		var d *vgpuctl.Device
		if d, err = vgpuctl.Open(); err == nil {
			defer d.Close()
			err = d.SetPolicy(uint32(os.Getpid()), vgpuctl.MinorAny, vgpuctl.Limits{MemoryLimitBytes: n})
		}
	default:
		err = fmt.Errorf("%q is no command", name)
	}
	return "ok", err
}

// traffic makes a call of some kind, wrapped or not.
func (c *childState) traffic(step string, wrapped bool) error {
	switch step {
	case "client":
		return c.start(0)
	case "alloc":
		c.last = 0
		return c.alloc(c.device, &c.last, classLocal, &memoryParams{Size: 65536})
	case "free":
		v := nvos00{Root: c.client, Object: c.last}
		return failed(c.wrap(wrapped, escFree, at(&v), sizeOf(v), func() { runtime.KeepAlive(&v) }), v.Status)
	case "timeslice":
		var group uint32
		if err := c.alloc(c.device, &group, classGroup, &groupParams{Engine: 1}); err != nil {
			return err
		}
		us := uint64(1500)
		v := nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: at(&us), ParamsSize: 8}
		return failed(c.wrap(wrapped, escControl, at(&v), sizeOf(v), func() { runtime.KeepAlive(&v); runtime.KeepAlive(&us) }), v.Status)
	}
	return fmt.Errorf("%q is no step", step)
}

func (c *childState) wrap(wrapped bool, nr uintptr, address uint64, size uint32, keep func()) error {
	defer keep()
	if !wrapped {
		return rmIoctlAt(c.ctl, escape(nr, uintptr(size)), uintptr(address))
	}
	x := xferParams{Command: uint32(nr), Size: size, Pointer: address}
	return rmIoctl(c.ctl, escXfer, &x)
}

// child is such a process.
type child struct {
	t *testing.T
	*exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// startChild starts one, in the cgroup dir unless that is "".
func startChild(t *testing.T, dir string, change func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/init")
	cmd.Env = []string{"VGPU_CHILD=1"}
	cmd.Stderr = os.Stderr
	if dir != "" {
		inCgroup(t, cmd, dir)
	}
	if change != nil {
		change(cmd)
	}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// try gives it a command, and returns "ok" or the error.
func (c *child) try(command string, n uint64) string {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, command, n)
	require.NoError(c.t, err)
	require.True(c.t, c.out.Scan(), "it ended at %s", command)
	return strings.TrimPrefix(c.out.Text(), "error: ")
}

func (c *child) do(command string, n uint64) {
	c.t.Helper()
	require.Equal(c.t, "ok", c.try(command, n), "%s %d", command, n)
}

func (c *child) kill() {
	c.Process.Kill()
	c.Wait()
}
