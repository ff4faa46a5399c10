//go:build guest

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// way is how a program passes the arguments of a call.
type way struct {
	xfer      bool // wrapped in an nv_xfer
	untouched bool // on pages never touched before: a hook that does not fault them in cannot read them
}

func (w way) String() string { return fmt.Sprintf("xfer=%v,untouched=%v", w.xfer, w.untouched) }

var ways = []way{{}, {xfer: true}, {untouched: true}, {true, true}}

// page is memory for a structure, mapped from a file of its own.
type page struct {
	t       *testing.T
	fd      int
	memory  []byte
	address uint64
}

// newPage makes a page with that structure. It faults the page in unless untouched is set.
func newPage(t *testing.T, v any, protection int, untouched bool) page {
	t.Helper()
	fd, err := unix.MemfdCreate("arguments", 0)
	require.NoError(t, err)
	p := page{t: t, fd: fd}
	p.write(v)
	p.memory, err = unix.Mmap(fd, 0, unix.Getpagesize(), protection, unix.MAP_SHARED)
	require.NoError(t, err)
	p.address, _ = place(p.memory)
	if !untouched {
		_ = p.memory[0] + 1
		require.NoError(t, unix.Madvise(p.memory, unix.MADV_POPULATE_READ))
	}
	t.Cleanup(p.drop)
	return p
}

// write and read use the file, so that the mapping stays untouched.
func (p page) write(v any) {
	p.t.Helper()
	var b bytes.Buffer
	require.NoError(p.t, binary.Write(&b, binary.LittleEndian, v))
	require.NoError(p.t, unix.Ftruncate(p.fd, int64(unix.Getpagesize())))
	_, err := unix.Pwrite(p.fd, b.Bytes(), 0)
	require.NoError(p.t, err)
}

func (p page) read(v any) {
	p.t.Helper()
	b := make([]byte, binary.Size(v))
	_, err := unix.Pread(p.fd, b, 0)
	require.NoError(p.t, err)
	require.NoError(p.t, binary.Read(bytes.NewReader(b), binary.LittleEndian, v))
}

func (p page) drop() {
	if p.memory != nil {
		unix.Munmap(p.memory)
		unix.Close(p.fd)
	}
}

// call makes a driver call whose structure is in a page.
func (w way) call(t *testing.T, fd int, nr uintptr, size int, p page) error {
	t.Helper()
	if !w.xfer {
		return rmIoctlAt(fd, escape(nr, uintptr(size)), uintptr(p.address))
	}
	x := newPage(t, &xferParams{Command: uint32(nr), Size: uint32(size), Pointer: p.address}, unix.PROT_READ|unix.PROT_WRITE, w.untouched)
	return rmIoctlAt(fd, escape(escXfer, uintptr(binary.Size(xferParams{}))), uintptr(x.address))
}

// rm makes a call with a structure in a page of that protection, and reads the structure back.
func (w way) rm(t *testing.T, fd int, nr uintptr, v any) error {
	t.Helper()
	p := newPage(t, v, unix.PROT_READ|unix.PROT_WRITE, w.untouched)
	err := w.call(t, fd, nr, binary.Size(v), p)
	p.read(v)
	return err
}

// memory allocates bytes of the GPU with an RM_ALLOC.
func (w way) memory(t *testing.T, c *rmClient, size uint64) (object, status uint32) {
	t.Helper()
	params := newPage(t, &memoryParams{Size: size}, unix.PROT_READ|unix.PROT_WRITE, w.untouched)
	call := nvos64{Root: c.client, Parent: c.device, Class: classLocal, Params: params.address, ParamsSize: uint32(binary.Size(memoryParams{}))}
	require.NoError(t, w.rm(t, c.ctl, escAlloc, &call))
	return call.Object, call.Status
}

// setTimeslice sets a timeslice, and returns the value in the caller's memory afterwards.
func (w way) setTimeslice(t *testing.T, c *rmClient, group uint32, us uint64) (status uint32, after uint64) {
	t.Helper()
	params := newPage(t, &us, unix.PROT_READ|unix.PROT_WRITE, w.untouched)
	call := nvos54{Client: c.client, Object: group, Command: ctrlSetTimeslice, Params: params.address, ParamsSize: 8}
	require.NoError(t, w.rm(t, c.ctl, escControl, &call))
	params.read(&after)
	return call.Status, after
}

// abandoned is a client that nobody frees; it ends with its file.
func abandoned(t *testing.T, ctl int, gpu uint32) *rmClient {
	t.Helper()
	c := &rmClient{t: t, ctl: ctl}
	require.Zero(t, c.alloc(0, &c.client, classRoot, (*byte)(nil)))
	require.Zero(t, c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: gpu}))
	return c
}

// group makes a channel group.
func (c *rmClient) group() uint32 {
	c.t.Helper()
	var group uint32
	require.Zero(c.t, c.alloc(c.device, &group, classGroup, &groupParams{Engine: 1}))
	return group
}

// timeslice is the driver's timeslice of a group.
func (c *rmClient) timeslice(group uint32) uint64 {
	c.t.Helper()
	var us uint64
	require.Zero(c.t, c.control(group, ctrlGetTimeslice, &us))
	return us
}

// dup makes a duplicate of another client's object below our device.
func (c *rmClient) dup(from *rmClient, source uint32) (object, status uint32) {
	c.t.Helper()
	call := nvos55{Client: c.client, Parent: c.device, ClientSrc: from.client, ObjectSrc: source}
	require.NoError(c.t, rmIoctl(c.ctl, escDup, &call))
	return call.Object, call.Status
}

func isErrno(err error, errno unix.Errno) bool { return errors.Is(err, errno) }
