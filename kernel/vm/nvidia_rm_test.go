//go:build guest

package kernel

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Structures and numbers of kernel/uapi/nvrm.h.
type (
	nvos00 struct{ Root, Parent, Object, Status uint32 }
	nvos02 struct {
		Root, Parent, Object, Class, Flags, _ uint32
		Memory, Limit                         uint64
		Status, _                             uint32
		FD                                    int32
		_                                     uint32
	}
	nvos21 struct {
		Root, Parent, Object, Class uint32
		Params                      uint64
		ParamsSize, Status          uint32
	}
	nvos64 struct {
		Root, Parent, Object, Class  uint32
		Params, Rights               uint64
		ParamsSize, Flags, Status, _ uint32
	}
	nvos54 struct {
		Client, Object, Command, Flags uint32
		Params                         uint64
		ParamsSize, Status             uint32
	}
	nvos55 struct{ Client, Parent, Object, ClientSrc, ObjectSrc, Flags, Status uint32 }
	nvos32 struct {
		Root, Parent, Function, VASpace uint32
		_                               [2]uint16
		Status                          uint32
		Total, Free                     uint64
		Owner, Memory, Type, Flags      uint32
		Attr                            uint32
		_                               [7]uint32
		Size, Alignment, Offset, Limit  uint64
		_                               [64]byte
	}
	nvos46 struct {
		Client, Device, DMA, Memory uint32
		Offset, Length              uint64
		Flags, _                    uint32
		Address                     uint64
		Status, _                   uint32
	}
	nvos47 struct {
		Client, Device, DMA, Memory, Flags, _ uint32
		Address, Size                         uint64
		Status, _                             uint32
	}
	memoryParams struct {
		Owner, Type, Flags                         uint32
		_                                          [3]uint32
		Attr                                       uint32
		_                                          [5]uint32
		RangeLo, RangeHi                           uint64
		Size, Alignment, Offset, Limit, Address    uint64
		CTag, VASpace, InternalFlags, Tag, NUMA, _ uint32
	}
	deviceParams struct {
		ID, _, _, _, _, _ uint32
		_                 [3]uint64
		_, _              uint32
	}
	groupParams struct{ _, _, _, Engine, _ uint32 }
	cardInfo    struct {
		Valid                                  uint8
		_                                      [3]uint8
		Domain                                 uint32
		Bus, Slot, Function, _                 uint8
		Vendor, Device                         uint16
		GPU                                    uint32
		Interrupt, _                           uint16
		RegAddress, RegSize, FBAddress, FBSize uint64
		Minor                                  uint32
		_                                      [12]uint8
	}
	xferParams struct {
		Command, Size uint32
		Pointer       uint64
	}
	versionParams struct {
		Command, Reply uint32
		Version        [64]byte
	}
	idInfo struct {
		GPU, Flags, Device, Subdevice uint32
		Name                          uint64
		SLI, Board, Instance, NUMA    uint32
	}
	idInfoV2 struct{ GPU, Flags, Device, Subdevice, SLI, Board, Instance, NUMA uint32 }
)

const (
	escAllocMemory  = 0x27
	escFree         = 0x29
	escControl      = 0x2a
	escAlloc        = 0x2b
	escDup          = 0x34
	escHeap         = 0x4a
	escMapDMA       = 0x57
	escUnmapDMA     = 0x58
	escCardInfo     = 200
	escRegisterFD   = 201
	escAllocEvent   = 206
	escFreeEvent    = 207
	escStatusCode   = 209
	escVersion      = 210
	escXfer         = 211
	escAttachGPUs   = 212
	escSysParams    = 214
	escNUMAInfo     = 215
	escOpenComplete = 218

	classRoot      = 0x41
	classDevice    = 0x80
	classSubdevice = 0x2080
	classSystem    = 0x3e
	classLocal     = 0x40
	classRange     = 0x70
	classVirtual   = 0x50a0
	classVASpace   = 0x90f1
	classGroup     = 0xa06c

	ctrlAttachedIDs  = 0x201
	ctrlIDInfo       = 0x202
	ctrlIDInfoV2     = 0x205
	ctrlProbedIDs    = 0x214
	ctrlAttachIDs    = 0x215
	ctrlDetachIDs    = 0x216
	ctrlSetTimeslice = 0xa06c0103
	ctrlGetTimeslice = 0xa06c0104

	rmOK                  = 0
	rmDuplicateName       = 0x19
	rmNoResources         = 0x1a
	rmNoPermission        = 0x1b
	rmInvalidAddress      = 0x1e
	rmInvalidArgument     = 0x1f
	rmInvalidClass        = 0x22
	rmInvalidClient       = 0x23
	rmInvalidEvent        = 0x28
	rmInvalidLimit        = 0x2e
	rmInvalidObjectHandle = 0x33
	rmInvalidParent       = 0x36
	rmInvalidOffset       = 0x37
	rmInvalidParamStruct  = 0x3a
	rmInvalidState        = 0x40
	rmNoMemory            = 0x51
	rmNotSupported        = 0x56
	rmNotFound            = 0x57

	attrPCI        = 1 << 25
	flagVirtual    = 0x80000
	flagFixed      = 0x10
	flagHandle     = 0x4000
	flagDMAFixed   = 0x8000
	invalidGPU     = 0xffffffff
	defaultSliceUS = 1024
)

// nodes are the descriptors that the tests have open.
var nodes sync.Map

// node opens a device node of the driver until the test is over.
func node(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open("/dev/"+name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err, name)
	nodes.Store(fd, name)
	t.Cleanup(func() { shut(t, fd) })
	return fd
}

// shut closes a node earlier.
func shut(t *testing.T, fd int) {
	t.Helper()
	if _, open := nodes.LoadAndDelete(fd); open {
		require.NoError(t, unix.Close(fd))
	}
}

// rmClient is a client of the resource manager with a device.
type rmClient struct {
	t              *testing.T
	ctl            int
	client, device uint32
}

// newClient opens nvidiactl and makes a client with a device for the GPU of that instance.
func newClient(t *testing.T, gpu uint32) *rmClient {
	t.Helper()
	return clientOn(t, node(t, "nvidiactl"), gpu)
}

func clientOn(t *testing.T, ctl int, gpu uint32) *rmClient {
	t.Helper()
	c := &rmClient{t: t, ctl: ctl}
	require.Zero(t, c.alloc(0, &c.client, classRoot, (*byte)(nil)))
	require.NotZero(t, c.client)
	require.Zero(t, c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: gpu}))
	return c
}

// alloc is RM_ALLOC; it returns the status.
func (c *rmClient) alloc(parent uint32, object *uint32, class uint32, params any) uint32 {
	c.t.Helper()
	call := nvos64{Root: c.client, Parent: parent, Object: *object, Class: class}
	call.Params, call.ParamsSize = place(params)
	require.NoError(c.t, rmIoctl(c.ctl, escAlloc, &call))
	runtime.KeepAlive(params)
	*object = call.Object
	return call.Status
}

func (c *rmClient) free(object uint32) uint32 {
	c.t.Helper()
	call := nvos00{Root: c.client, Object: object}
	require.NoError(c.t, rmIoctl(c.ctl, escFree, &call))
	return call.Status
}

// control is RM_CONTROL with parameters, which the driver may change.
func (c *rmClient) control(object, command uint32, params any) uint32 {
	c.t.Helper()
	call := nvos54{Client: c.client, Object: object, Command: command}
	call.Params, call.ParamsSize = place(params)
	require.NoError(c.t, rmIoctl(c.ctl, escControl, &call))
	runtime.KeepAlive(params)
	return call.Status
}

// memory allocates bytes of the GPU.
func (c *rmClient) memory(bytes uint64) (object, status uint32) {
	c.t.Helper()
	status = c.alloc(c.device, &object, classLocal, &memoryParams{Size: bytes})
	return object, status
}
