//go:build guest

package kernel

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ---- Clients and objects -------------------------------------------------------------------------------------------

func TestNvidiaClients(t *testing.T) {
	loadNvidia(t)
	c, other := newClient(t, 0), newClient(t, 0)
	assert.NotEqual(t, c.client, other.client)

	// A client's number is in hRoot; for 0 the driver chooses one. The number is also returned in the parameters.
	named := nvos21{Root: 0xabcd0001, Object: 0x5555, Class: 0}
	number := uint32(7)
	named.Params = at(&number)
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &named))
	assert.Zero(t, named.Status)
	assert.EqualValues(t, 0xabcd0001, named.Object)
	assert.EqualValues(t, 0xabcd0001, number)
	named.Class = 1 // clients always get the same class, whichever was asked for
	require.NoError(t, rmIoctl(other.ctl, escAlloc, &named))
	assert.EqualValues(t, rmDuplicateName, named.Status)
	bad := nvos21{Class: classRoot, Params: uint64(readOnly(t))}
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &bad))
	assert.EqualValues(t, rmInvalidAddress, bad.Status)

	// No file can use another file's client.
	intruder := &rmClient{t: t, ctl: other.ctl, client: c.client}
	var object uint32
	assert.EqualValues(t, rmInvalidClient, intruder.alloc(c.device, &object, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmInvalidClient, intruder.free(c.device))
	assert.EqualValues(t, rmInvalidClient, intruder.control(c.client, ctrlAttachedIDs, make([]uint32, 32)))
	dup := nvos55{Client: c.client, Parent: c.device, ClientSrc: other.client, ObjectSrc: other.device}
	require.NoError(t, rmIoctl(other.ctl, escDup, &dup))
	assert.EqualValues(t, rmInvalidClient, dup.Status)
	assert.EqualValues(t, rmInvalidClient, heap(t, other.ctl, &nvos32{Root: c.client, Parent: c.device, Function: 2, Size: 4096}))

	// A client that does not exist.
	nobody := &rmClient{t: t, ctl: c.ctl, client: 0x1234}
	assert.EqualValues(t, rmInvalidObjectHandle, nobody.alloc(c.device, &object, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmInvalidObjectHandle, nobody.free(c.device))
	assert.EqualValues(t, rmInvalidClient, nobody.control(c.client, ctrlAttachedIDs, make([]uint32, 32)))

	// A freed client, and everything below it, no longer exist.
	assert.Zero(t, c.free(c.client))
	assert.EqualValues(t, rmInvalidObjectHandle, c.free(c.device))
	assert.Zero(t, other.free(other.client))
}

func heap(t *testing.T, fd int, call *nvos32) uint32 {
	t.Helper()
	require.NoError(t, rmIoctl(fd, escHeap, call))
	return call.Status
}

func TestNvidiaObjects(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 0)
	object := func(parent, class uint32, params any) (handle, status uint32) {
		status = c.alloc(parent, &handle, class, params)
		return handle, status
	}
	must := func(parent, class uint32, params any) uint32 {
		t.Helper()
		handle, status := object(parent, class, params)
		require.Zero(t, status)
		require.NotZero(t, handle)
		return handle
	}
	subdevice := must(c.device, classSubdevice, &[1]uint32{0})
	must(c.device, classSubdevice, nil)
	memory := must(subdevice, classLocal, &memoryParams{Size: 4096})
	must(c.device, classVASpace, &[12]uint32{})
	must(c.device, classGroup, &groupParams{Engine: 1})
	must(c.device, classSystem, &memoryParams{Size: 4096, Attr: attrPCI})
	must(c.device, classRange, &struct{ Offset, Limit, VASpace uint64 }{0, 0xffff, 0})
	must(memory, 0x79, &[6]uint32{}) // an event may be below any object
	must(c.client, 0x5, &[6]uint32{})

	for name, q := range map[string]struct {
		parent, class uint32
		params        any
		want          uint32
	}{
		"unknown class":                   {c.device, 0xdead, nil, rmInvalidClass},
		"unknown class, unknown parent":   {0xdead, 0xdead, nil, rmInvalidClass},
		"unknown parent":                  {0xdead, classLocal, &memoryParams{Size: 1}, rmNotFound},
		"device below a device":           {c.device, classDevice, &deviceParams{}, rmInvalidParent},
		"subdevice below a client":        {c.client, classSubdevice, nil, rmInvalidParent},
		"memory below a client":           {c.client, classLocal, &memoryParams{Size: 1}, rmInvalidParent},
		"memory below memory":             {memory, classLocal, &memoryParams{Size: 1}, rmInvalidParent},
		"host memory below a subdevice":   {subdevice, classSystem, &memoryParams{Size: 1, Attr: attrPCI}, rmInvalidParent},
		"group below a subdevice":         {subdevice, classGroup, &groupParams{}, rmInvalidParent},
		"no such device":                  {c.client, classDevice, &deviceParams{ID: 2}, rmInvalidState},
		"no such number of a device":      {c.client, classDevice, &deviceParams{ID: 32}, rmInvalidArgument},
		"device without parameters":       {c.client, classDevice, nil, rmInvalidArgument},
		"second subdevice":                {c.device, classSubdevice, &[1]uint32{1}, rmInvalidArgument},
		"memory without parameters":       {c.device, classLocal, nil, rmInvalidArgument},
		"group without parameters":        {c.device, classGroup, nil, rmInvalidArgument},
		"no memory":                       {c.device, classLocal, &memoryParams{}, rmInvalidArgument},
		"GPU's memory on the host":        {c.device, classLocal, &memoryParams{Size: 1, Attr: attrPCI}, rmInvalidArgument},
		"host's memory on the GPU":        {c.device, classSystem, &memoryParams{Size: 1}, rmInvalidArgument},
		"memory that is a range":          {c.device, classLocal, &memoryParams{Size: 1, Flags: flagVirtual}, rmInvalidArgument},
		"range that is none":              {c.device, classVirtual, &memoryParams{Size: 1}, rmInvalidArgument},
		"more than the GPU has":           {c.device, classLocal, &memoryParams{Size: 80*gib + 1}, rmNoMemory},
		"a size that cannot be rounded":   {c.device, classLocal, &memoryParams{Size: ^uint64(0)}, rmNoMemory},
		"a range that cannot be":          {c.device, classVirtual, &memoryParams{Size: 1 << 47, Flags: flagVirtual}, rmNoMemory},
		"a range that ends nowhere":       {c.device, classVirtual, &memoryParams{Size: 1 << 16, Offset: ^uint64(0) - 4096, Flags: flagVirtual | flagFixed}, rmInvalidArgument},
		"a range that ends before itself": {c.device, classRange, &struct{ Offset, Limit, VASpace uint64 }{2, 1, 0}, rmInvalidArgument},
	} {
		handle, status := object(q.parent, q.class, q.params)
		assert.Equal(t, q.want, status, name)
		assert.Zero(t, handle, name)
	}

	// Handles that the program chooses.
	handle := uint32(0x1000)
	assert.Zero(t, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmDuplicateName, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))
	handle = c.client
	assert.EqualValues(t, rmInvalidObjectHandle, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))

	// Parameters at bad addresses. The size that the call gives does not count.
	for _, address := range []uint64{1, uint64(readOnly(t)), 0xffff800000000000} {
		call := nvos64{Root: c.client, Parent: c.device, Object: 0x2000, Class: classLocal, Params: address, ParamsSize: 128}
		require.NoError(t, rmIoctl(c.ctl, escAlloc, &call))
		assert.NotZero(t, call.Status)
		assert.Zero(t, c.free(0x2000), "nothing is left of it")
	}
	params := memoryParams{Size: 100}
	call := nvos21{Root: c.client, Parent: c.device, Object: 0x2000, Class: classLocal, Params: at(&params), ParamsSize: 1}
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &call))
	runtime.KeepAlive(&params)
	assert.Zero(t, call.Status)
	assert.EqualValues(t, 4096, params.Size)
	serialized := nvos64{Root: c.client, Parent: c.device, Class: classLocal, Params: at(&params), Flags: 1}
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &serialized))
	assert.EqualValues(t, rmNotSupported, serialized.Status)

	// Freeing also frees what is below. Freeing a handle that does not exist succeeds.
	assert.Zero(t, c.free(subdevice))
	assert.Zero(t, c.free(memory))
	assert.Zero(t, c.free(0xdead))
	_, status := object(subdevice, classLocal, &memoryParams{Size: 1})
	assert.EqualValues(t, rmNotFound, status)
	assert.Equal(t, unix.EINVAL, rmIoctl(node(t, "nvidia0"), escAlloc, &nvos64{Class: classRoot}), "a client through a GPU's node")
}

// ---- Enumeration ---------------------------------------------------------------------------------------------------

func TestNvidiaEnumeration(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 0)
	both := append([]uint32{firstID, secondID}, invalidIDs(30)...)
	ask := func(command uint32, n int) []uint32 {
		t.Helper()
		p := make([]uint32, n)
		require.Zero(t, c.control(c.client, command, p))
		return p
	}
	assert.Equal(t, both, ask(ctrlAttachedIDs, 32))
	assert.Equal(t, append(both, invalidIDs(32)...), ask(ctrlProbedIDs, 64))
	assert.Equal(t, append(append(both, invalidIDs(32)...), make([]uint32, 32)...), ask(ctrlProbedIDs, 96))
	for n := range 130 {
		for command, right := range map[uint32][]int{
			ctrlAttachedIDs: {32}, ctrlProbedIDs: {64, 96}, ctrlAttachIDs: {33}, ctrlDetachIDs: {32}, ctrlIDInfo: {10}, ctrlIDInfoV2: {8},
		} {
			if n == 0 {
				assert.EqualValues(t, rmInvalidParamStruct, c.control(c.client, command, nil), "%#x", command)
			} else if !slices.Contains(right, n) {
				assert.EqualValues(t, rmInvalidParamStruct, c.control(c.client, command, make([]uint32, n)), "%#x with %d", command, n)
			}
		}
	}

	for id, instance := range map[uint32]uint32{firstID: 0, secondID: 1} {
		info := idInfo{GPU: id, Name: 0x1234}
		require.Zero(t, c.control(c.client, ctrlIDInfo, &info))
		in := 1 - instance // only the first instance has a device
		assert.Equal(t, idInfo{GPU: id, Flags: in, Device: instance, Name: 0x1234, Board: id, Instance: instance, NUMA: 0xffffffff}, info)
		v2 := idInfoV2{GPU: id, SLI: 5}
		require.Zero(t, c.control(c.client, ctrlIDInfoV2, &v2))
		assert.Equal(t, idInfoV2{GPU: id, Flags: in, Device: instance, Board: id, Instance: instance, NUMA: 0xffffffff}, v2)
	}
	assert.EqualValues(t, rmInvalidArgument, c.control(c.client, ctrlIDInfo, &idInfo{GPU: 0x99}))
	assert.EqualValues(t, rmInvalidArgument, c.control(c.client, ctrlIDInfoV2, &idInfoV2{GPU: invalidGPU}))

	attach := append([]uint32{secondID, firstID}, invalidIDs(31)...)
	assert.Zero(t, c.control(c.client, ctrlAttachIDs, attach))
	assert.Zero(t, c.control(c.client, ctrlDetachIDs, attach[:32]))
	attach[1] = 0x99
	assert.EqualValues(t, rmInvalidArgument, c.control(c.client, ctrlAttachIDs, attach))
	assert.EqualValues(t, 0x99, attach[32])
	assert.EqualValues(t, rmInvalidArgument, c.control(c.client, ctrlDetachIDs, attach[:32]))
	assert.Zero(t, c.control(c.client, ctrlAttachIDs, append([]uint32{0xffff}, attach[1:]...)), "all of them")

	ids := make([]uint32, 32)
	assert.EqualValues(t, rmNotSupported, c.control(c.device, ctrlAttachedIDs, ids), "of a device")
	assert.EqualValues(t, rmNotFound, c.control(0xdead, ctrlAttachedIDs, ids))
	assert.EqualValues(t, rmNotSupported, c.control(c.client, 0x2ff, ids))
	assert.Zero(t, c.control(c.client, 0, nil), "the command that does nothing")
	for _, params := range []uint64{0, 1, uint64(readOnly(t))} {
		call := nvos54{Client: c.client, Object: c.client, Command: ctrlAttachedIDs, Params: params, ParamsSize: 128}
		require.NoError(t, rmIoctl(c.ctl, escControl, &call))
		assert.EqualValues(t, map[bool]uint32{true: rmInvalidArgument, false: rmInvalidAddress}[params == 0], call.Status)
	}
	call := nvos54{Client: c.client, Object: c.client, Command: ctrlAttachedIDs, Flags: 4, Params: at(&ids[0]), ParamsSize: 128}
	require.NoError(t, rmIoctl(c.ctl, escControl, &call))
	assert.EqualValues(t, rmNotSupported, call.Status, "serialised")
}

// TestNvidiaQueries: the queries that libcuda makes before it gives up.
func TestNvidiaQueries(t *testing.T) {
	load(t, "fakegpu", "nvidia=1", someGPUs, "driver_version=550.163.01")
	c := newClient(t, 0)
	const version, versionV2, features, groups, policy, classList, caps = 0x101, 0x13e, 0x1f0, 0xa04, 0xd04, 0x800292, 0x801402
	var texts [3][80]byte
	p := struct {
		Size, _           uint32
		Pointers          [3]uint64
		Change, Officials uint32
	}{Pointers: [3]uint64{at(&texts[0]), at(&texts[1])}}
	require.Zero(t, c.control(c.client, version, &p))
	require.EqualValues(t, 64, p.Size, "how long they are")
	p.Pointers[2] = at(&texts[2])
	require.Zero(t, c.control(c.client, version, &p))
	assert.Equal(t, []string{"550.163.01", "550.163.01", "nvmlfab"}, []string{text(texts[0][:]), text(texts[1][:]), text(texts[2][:])})
	p.Size, texts[0] = 4, [80]byte{10: 'x'}
	require.Zero(t, c.control(c.client, version, &p))
	assert.Equal(t, [80]byte{'5', '5', '0', '.', 10: 'x'}, texts[0], "no more than there is room for")
	p.Pointers[1] = uint64(readOnly(t))
	assert.EqualValues(t, rmInvalidAddress, c.control(c.client, version, &p))

	for _, size := range []int{776, 1032} {
		v2 := make([]byte, size)
		require.Zero(t, c.control(c.client, versionV2, v2))
		assert.Equal(t, "550.163.01", text(v2))
		assert.Equal(t, "nvmlfab", text(v2[size-8-256:]))
	}
	for command, size := range map[uint32]int{features: 4, groups: 2244} {
		zero := make([]byte, size)
		zero[0] = 7
		require.Zero(t, c.control(c.client, command, zero))
		assert.Equal(t, make([]byte, size), zero)
	}
	assert.Zero(t, c.control(c.client, policy, make([]uint32, 3)))
	assert.Zero(t, c.control(c.device, caps, make([]byte, 3)))
	assert.EqualValues(t, rmNotSupported, c.control(c.client, classList, make([]uint32, 175)), "of a client")
	for _, room := range []int{160, 174, 100, 200} {
		list := make([]uint32, 1+room)
		require.Zero(t, c.control(c.device, classList, list))
		classes := list[1 : 1+list[0]]
		assert.Subset(t, classes, []uint32{classDevice, classSubdevice, classLocal, classVirtual, classGroup})
		for _, class := range classes {
			assert.NotEqual(t, uint32(0xc0), class&0xff, "%#x computes", class)
		}
	}
	assert.EqualValues(t, rmInvalidParamStruct, c.control(c.device, classList, make([]uint32, 10)))
}

func TestNvidiaTimeslice(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 0)
	var group, second uint32
	require.Zero(t, c.alloc(c.device, &group, classGroup, &groupParams{Engine: 1}))
	require.Zero(t, c.alloc(c.device, &second, classGroup, &groupParams{Engine: 1}))
	get := func(group uint32) (us uint64) {
		require.Zero(t, c.control(group, ctrlGetTimeslice, &us))
		return us
	}
	assert.EqualValues(t, defaultSliceUS, get(group))
	for _, us := range []uint64{1, 1001, 1 << 40, ^uint64(0)} {
		require.Zero(t, c.control(group, ctrlSetTimeslice, &us))
		assert.Equal(t, us, get(group))
	}
	zero := uint64(0)
	assert.EqualValues(t, rmInvalidArgument, c.control(group, ctrlSetTimeslice, &zero))
	assert.Equal(t, ^uint64(0), get(group), "as before")
	assert.EqualValues(t, defaultSliceUS, get(second))
	assert.EqualValues(t, rmInvalidParamStruct, c.control(group, ctrlSetTimeslice, &[1]uint32{1}))
	assert.EqualValues(t, rmNotSupported, c.control(c.device, ctrlSetTimeslice, &zero))
}

// ---- Races ---------------------------------------------------------------------------------------------------------

// TestNvidiaSlowMemory: a process whose page faults are slow does not keep others from the driver.
func TestNvidiaSlowMemory(t *testing.T) {
	loadNvidia(t)
	c, other := newClient(t, 0), newClient(t, 1)
	var group uint32
	require.Zero(t, c.alloc(c.device, &group, classGroup, &groupParams{}))
	var texts [80]byte
	for name, call := range map[string]func(slow uint64) error{
		"parameters of an object": func(slow uint64) error {
			return rmIoctl(c.ctl, escAlloc, &nvos21{Root: c.client, Parent: c.device, Class: classGroup, Params: slow})
		},
		"number of a client": func(slow uint64) error {
			return rmIoctl(c.ctl, escAlloc, &nvos21{Class: classRoot, Params: slow})
		},
		"parameters of a control": func(slow uint64) error {
			return rmIoctl(c.ctl, escControl, &nvos54{Client: c.client, Object: group, Command: ctrlGetTimeslice, Params: slow, ParamsSize: 8})
		},
		"texts of a control": func(slow uint64) error {
			p := struct {
				Size, _           uint32
				Pointers          [3]uint64
				Change, Officials uint32
			}{64, 0, [3]uint64{at(&texts), at(&texts), slow}, 0, 0}
			return rmIoctl(c.ctl, escControl, &nvos54{Client: c.client, Object: c.client, Command: 0x101, Params: at(&p), ParamsSize: sizeOf(p)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, wanted, release := slowPage(t)
			called, answered := make(chan error, 1), make(chan uint32, 1)
			go func() { called <- call(address) }()
			wanted()
			go func() {
				v := nvos00{Root: other.client, Object: 0x7777}
				rmIoctl(other.ctl, escFree, &v)
				answered <- v.Status
			}()
			select {
			case status := <-answered:
				assert.Zero(t, status)
			case <-time.After(hangs):
				assert.Fail(t, "another process waits for it")
			}
			release()
			require.NoError(t, <-called)
		})
	}
}

// TestRaceNvidia: threads that make, duplicate, map, free and close at the same time leave nothing allocated.
func TestRaceNvidia(t *testing.T) {
	loadNvidia(t)
	var ctls [4]int
	for i := range ctls {
		ctls[i] = node(t, "nvidiactl")
	}
	var threads sync.WaitGroup
	for n := range 8 {
		threads.Go(func() {
			for range 100 {
				fd := ctls[n%len(ctls)]
				c := &rmClient{t: t, ctl: fd}
				c.alloc(0, &c.client, classRoot, nil)
				c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: 1})
				memory, _ := c.memory(64 << 20)
				var dma uint32
				c.alloc(c.device, &dma, classVirtual, &memoryParams{Size: 64 << 20, Flags: flagVirtual})
				rmIoctl(fd, escMapDMA, &nvos46{Client: c.client, Device: c.device, DMA: dma, Memory: memory, Length: 1 << 20})
				dup := nvos55{Client: c.client, Parent: c.device, ClientSrc: c.client, ObjectSrc: memory}
				rmIoctl(fd, escDup, &dup)
				if n%2 == 0 {
					c.free(c.client)
				}
				own, err := unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0)
				if err == nil {
					d := &rmClient{t: t, ctl: own}
					d.alloc(0, &d.client, classRoot, nil)
					d.alloc(d.client, &d.device, classDevice, &deviceParams{ID: 1})
					d.memory(32 << 20)
					rmIoctl(own, escDup, &nvos55{Client: d.client, Parent: d.device, ClientSrc: c.client, ObjectSrc: memory})
					unix.Close(own)
				}
			}
		})
	}
	threads.Wait()
	for _, fd := range ctls {
		shut(t, fd)
	}
	require.True(t, full(t))
}
