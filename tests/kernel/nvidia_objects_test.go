//go:build guest

package kernel

import (
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ---- Clients and objects -------------------------------------------------------------------------------------------

func TestNvidiaClients(t *testing.T) {
	loadNvidia(t)
	c, other := newClient(t, 0), newClient(t, 0)
	assert.NotEqual(t, c.client, other.client)

	// A client's number is in hRoot; 0 has the driver choose. The number comes back in the parameters, too.
	named := nvos21{Root: 0xabcd0001, Object: 0x5555, Class: 0}
	number := uint32(7)
	named.Params = at(&number)
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &named))
	assert.Zero(t, named.Status)
	assert.EqualValues(t, 0xabcd0001, named.Object)
	assert.EqualValues(t, 0xabcd0001, number)
	named.Class = 1 // whatever the class of a client, the program gets the one there is
	require.NoError(t, rmIoctl(other.ctl, escAlloc, &named))
	assert.EqualValues(t, rmDuplicateName, named.Status)
	bad := nvos21{Class: classRoot, Params: uint64(readOnly(t))}
	require.NoError(t, rmIoctl(c.ctl, escAlloc, &bad))
	assert.EqualValues(t, rmInvalidAddress, bad.Status)

	// Nobody uses another file's client.
	intruder := &rmClient{t: t, ctl: other.ctl, client: c.client}
	var object uint32
	assert.EqualValues(t, rmInvalidClient, intruder.alloc(c.device, &object, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmInvalidClient, intruder.free(c.device))
	assert.EqualValues(t, rmInvalidClient, intruder.control(c.client, ctrlAttachedIDs, make([]uint32, 32)))
	dup := nvos55{Client: c.client, Parent: c.device, ClientSrc: other.client, ObjectSrc: other.device}
	require.NoError(t, rmIoctl(other.ctl, escDup, &dup))
	assert.EqualValues(t, rmInvalidClient, dup.Status)
	assert.EqualValues(t, rmInvalidClient, heap(t, other.ctl, &nvos32{Root: c.client, Parent: c.device, Function: 2, Size: 4096}))

	// One that is not there.
	nobody := &rmClient{t: t, ctl: c.ctl, client: 0x1234}
	assert.EqualValues(t, rmInvalidObjectHandle, nobody.alloc(c.device, &object, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmInvalidObjectHandle, nobody.free(c.device))
	assert.EqualValues(t, rmInvalidClient, nobody.control(c.client, ctrlAttachedIDs, make([]uint32, 32)))

	// A freed client and what was below it are gone.
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
	must(memory, 0x79, &[6]uint32{}) // an event is below anything
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

	// Chosen handles.
	handle := uint32(0x1000)
	assert.Zero(t, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))
	assert.EqualValues(t, rmDuplicateName, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))
	handle = c.client
	assert.EqualValues(t, rmInvalidObjectHandle, c.alloc(c.device, &handle, classLocal, &memoryParams{Size: 4096}))

	// Parameters at bad addresses; what is said of their size does not count.
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

	// Freed with what is below it, and what is not there is freed as well.
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
		in := 1 - instance // only the first has a device
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

// TestNvidiaQueries: what libcuda asks before it turns away.
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

// ---- Memory --------------------------------------------------------------------------------------------------------

// full says whether all memory of the second GPU, of 1 GiB, is free, by taking it.
func full(t *testing.T) bool {
	t.Helper()
	c := newClient(t, 1)
	_, status := c.memory(gib)
	require.Contains(t, []uint32{rmOK, rmNoMemory}, status)
	shut(t, c.ctl)
	return status == rmOK
}

func TestNvidiaMemory(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 1)
	half, status := c.memory(gib / 2)
	require.Zero(t, status)
	_, status = c.memory(gib / 2)
	require.Zero(t, status)
	_, status = c.memory(1)
	assert.EqualValues(t, rmNoMemory, status)
	_, status = newClient(t, 1).memory(1)
	assert.EqualValues(t, rmNoMemory, status, "of another client")
	_, status = newClient(t, 0).memory(gib)
	assert.Zero(t, status, "of another GPU")
	require.Zero(t, c.free(half))
	_, status = c.memory(gib / 2)
	assert.Zero(t, status)
	var object uint32
	assert.Zero(t, c.alloc(c.device, &object, classSystem, &memoryParams{Size: 100 * gib, Attr: attrPCI}), "of the host")
	object = 0
	assert.Zero(t, c.alloc(c.device, &object, classVirtual, &memoryParams{Size: 100 * gib, Flags: flagVirtual}), "addresses")

	// Sizes come back in whole pages.
	free := newClient(t, 0)
	for _, q := range []struct {
		size uint64
		attr uint32
		want uint64
	}{
		{1, 0, 4096}, {65535, 0, 65536}, {65537, 0, 131072}, {65537, 1 << 23, 69632}, {1, 2 << 23, 65536}, {1, 3 << 23, 2 << 20},
	} {
		p, object := memoryParams{Size: q.size, Attr: q.attr}, uint32(0)
		require.Zero(t, free.alloc(free.device, &object, classLocal, &p))
		assert.Equal(t, q.want, p.Size)
		assert.Equal(t, q.want-1, p.Limit)
	}

	// All ways to give it back.
	for name, end := range map[string]func(c *rmClient, memory uint32){
		"object": func(c *rmClient, memory uint32) { c.free(memory) },
		"device": func(c *rmClient, memory uint32) { c.free(c.device) },
		"client": func(c *rmClient, memory uint32) { c.free(c.client) },
		"close":  func(c *rmClient, memory uint32) { shut(t, c.ctl) },
		"heap": func(c *rmClient, memory uint32) {
			call := nvos32{Root: c.client, Parent: c.device, Function: 3, Memory: memory, Type: 1} // its flags are where Type is
			require.Zero(t, heap(t, c.ctl, &call))
		},
	} {
		require.Zero(t, c.free(c.device))
		require.Zero(t, c.alloc(c.client, &c.device, classDevice, &deviceParams{ID: 1}))
		require.True(t, full(t))
		d := newClient(t, 1)
		memory, status := d.memory(gib)
		require.Zero(t, status)
		require.False(t, full(t))
		end(d, memory)
		assert.True(t, full(t), name)
	}
}

func TestNvidiaHeap(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 1)
	call := nvos32{Root: c.client, Parent: c.device, Function: 2, Memory: 0x33, Size: gib}
	require.Zero(t, heap(t, c.ctl, &call))
	assert.NotEqual(t, uint32(0x33), call.Memory, "a handle that was not provided")
	assert.EqualValues(t, gib-1, call.Limit)
	assert.False(t, full(t))
	again := nvos32{Root: c.client, Parent: c.device, Function: 2, Size: 1}
	assert.EqualValues(t, rmNoMemory, heap(t, c.ctl, &again))
	host := nvos32{Root: c.client, Parent: c.device, Function: 2, Memory: 0x34, Flags: flagHandle, Attr: attrPCI, Size: 8 * gib}
	assert.Zero(t, heap(t, c.ctl, &host))
	assert.EqualValues(t, 0x34, host.Memory)
	assert.EqualValues(t, rmDuplicateName, heap(t, c.ctl, &host))
	address := nvos32{Root: c.client, Parent: c.device, Function: 2, Flags: flagVirtual, Size: 8 * gib}
	assert.Zero(t, heap(t, c.ctl, &address))
	assert.NotZero(t, address.Offset)
	free := nvos32{Root: c.client, Parent: c.device, Function: 3, Memory: call.Memory}
	assert.EqualValues(t, rmInvalidArgument, heap(t, c.ctl, &free), "without the flag that says there is a handle")
	assert.False(t, full(t))
	free.Type = 1
	assert.Zero(t, heap(t, c.ctl, &free))
	assert.True(t, full(t))
	for _, function := range []uint32{0, 1, 4, 5, 99} {
		assert.EqualValues(t, rmNotSupported, heap(t, c.ctl, &nvos32{Root: c.client, Parent: c.device, Function: function}))
	}
}

func TestNvidiaAllocMemory(t *testing.T) {
	loadNvidia(t)
	c, gpu := newClient(t, 1), node(t, "nvidia3")
	require.NoError(t, rmIoctl(gpu, escRegisterFD, &[1]int32{int32(c.ctl)}))
	alloc := func(class uint32, limit uint64, object uint32) uint32 {
		call := nvos02{Root: c.client, Parent: c.device, Object: object, Class: class, Limit: limit}
		require.NoError(t, rmIoctl(gpu, escAllocMemory, &call))
		return call.Status
	}
	assert.Zero(t, alloc(classSystem, 8*gib, 0x50))
	assert.Zero(t, alloc(0x71, 4095, 0x51))
	assert.EqualValues(t, rmDuplicateName, alloc(classSystem, 4095, 0x50))
	assert.EqualValues(t, rmInvalidLimit, alloc(classSystem, ^uint64(0), 0x52))
	assert.EqualValues(t, rmInvalidClass, alloc(classLocal, 4095, 0x52))
	assert.True(t, full(t), "none of it is the GPU's")
	assert.Equal(t, unix.EINVAL, rmIoctl(c.ctl, escAllocMemory, &nvos02{Root: c.client}), "through nvidiactl")
}

// TestNvidiaDup: a duplicate shares the memory, which counts once and until the last is gone.
func TestNvidiaDup(t *testing.T) {
	loadNvidia(t)
	a, b := newClient(t, 1), newClient(t, 1)
	memory, status := a.memory(gib)
	require.Zero(t, status)
	dup := func(to *rmClient, parent, object uint32, from *rmClient, source uint32) (uint32, uint32) {
		t.Helper()
		call := nvos55{Client: to.client, Parent: parent, Object: object, ClientSrc: from.client, ObjectSrc: source}
		require.NoError(t, rmIoctl(to.ctl, escDup, &call))
		return call.Object, call.Status
	}
	first, status := dup(a, a.device, 0, a, memory)
	require.Zero(t, status)
	second, status := dup(b, b.device, 0x700, a, first)
	require.Zero(t, status)
	assert.EqualValues(t, 0x700, second)
	require.Zero(t, a.free(memory))
	assert.False(t, full(t))
	shut(t, a.ctl)
	assert.False(t, full(t))
	require.Zero(t, b.free(second))
	assert.True(t, full(t))

	a = newClient(t, 1)
	memory, status = a.memory(4096)
	require.Zero(t, status)
	var address uint32
	require.Zero(t, a.alloc(a.device, &address, classVirtual, &memoryParams{Size: 4096, Flags: flagVirtual}))
	for name, q := range map[string]struct {
		parent, object uint32
		source         uint32
		want           uint32
	}{
		"unknown object":    {b.device, 0, 0xdead, rmNotFound},
		"unknown parent":    {0xdead, 0, memory, rmNotFound},
		"below a client":    {b.client, 0, memory, rmInvalidParent},
		"a device":          {b.client, 0, a.device, rmInvalidArgument},
		"a client":          {b.client, 0, a.client, rmInvalidArgument},
		"a range":           {b.device, 0, address, rmInvalidArgument},
		"a handle that is":  {b.device, b.device, memory, rmDuplicateName},
		"the client's name": {b.device, b.client, memory, rmInvalidObjectHandle},
	} {
		_, status := dup(b, q.parent, q.object, a, q.source)
		assert.Equal(t, q.want, status, name)
	}
	_, status = dup(b, b.device, 0, &rmClient{client: 0xdead}, memory)
	assert.EqualValues(t, rmInvalidObjectHandle, status)

	// Another process's: this one holds memory for as long as it runs.
	stranger := startHolding(t)
	_, status = dup(b, b.device, 0, &rmClient{client: stranger.client}, stranger.memory)
	assert.EqualValues(t, rmNoPermission, status)
}

func TestNvidiaMapping(t *testing.T) {
	loadNvidia(t)
	c := newClient(t, 0)
	reserve := func(size uint64) (object uint32, start uint64) {
		p := memoryParams{Size: size, Flags: flagVirtual}
		require.Zero(t, c.alloc(c.device, &object, classVirtual, &p))
		return object, p.Offset
	}
	mapAt := func(dma, memory uint32, offset, length uint64, flags uint32, address uint64) (uint64, uint32) {
		call := nvos46{Client: c.client, Device: c.device, DMA: dma, Memory: memory, Offset: offset, Length: length, Flags: flags, Address: address}
		require.NoError(t, rmIoctl(c.ctl, escMapDMA, &call))
		return call.Address, call.Status
	}
	unmap := func(dma, memory uint32, address, size uint64) uint32 {
		call := nvos47{Client: c.client, Device: c.device, DMA: dma, Memory: memory, Address: address, Size: size}
		require.NoError(t, rmIoctl(c.ctl, escUnmapDMA, &call))
		return call.Status
	}
	const page = 65536
	dma, start := reserve(4 * page)
	_, other := reserve(4 * page)
	assert.GreaterOrEqual(t, other, start+4*page, "ranges do not overlap")
	memory, status := c.memory(2 * page)
	require.Zero(t, status)

	first, status := mapAt(dma, memory, 0, 2*page, 0, 0)
	assert.Zero(t, status)
	assert.Equal(t, start, first)
	second, status := mapAt(dma, memory, page, page, 0, 0)
	assert.Zero(t, status)
	assert.Equal(t, start+2*page, second)
	_, status = mapAt(dma, memory, 0, 2*page, 0, 0)
	assert.EqualValues(t, rmNoMemory, status, "no room for two")
	_, status = mapAt(dma, memory, 0, page, flagDMAFixed, start+page)
	assert.EqualValues(t, rmInvalidArgument, status, "over another")
	_, status = mapAt(dma, memory, 0, page, flagDMAFixed, start+4*page)
	assert.EqualValues(t, rmInvalidOffset, status, "behind the range")
	_, status = mapAt(dma, memory, 0, page, flagDMAFixed, start-page)
	assert.EqualValues(t, rmInvalidOffset, status, "before the range")
	third, status := mapAt(dma, memory, 0, page, flagDMAFixed, start+3*page)
	assert.Zero(t, status)
	assert.Equal(t, start+3*page, third)
	for _, q := range [][2]uint64{{0, 0}, {0, 2*page + 1}, {page, page + 1}, {2*page + 1, 1}, {^uint64(0), 2}} {
		_, status = mapAt(dma, memory, q[0], q[1], 0, 0)
		assert.EqualValues(t, rmInvalidLimit, status, "%v", q)
	}
	for _, q := range []struct{ dma, memory, want uint32 }{
		{0xdead, memory, rmNotFound}, {dma, 0xdead, rmNotFound}, {memory, memory, rmInvalidObjectHandle}, {dma, dma, rmInvalidObjectHandle},
	} {
		_, status = mapAt(q.dma, q.memory, 0, page, 0, 0)
		assert.Equal(t, q.want, status, "%x %x", q.dma, q.memory)
	}

	assert.EqualValues(t, rmNotFound, unmap(dma, memory, start+page, 0))
	assert.EqualValues(t, rmNotFound, unmap(dma, dma, second, 0))
	assert.EqualValues(t, rmNotSupported, unmap(dma, memory, first, page), "a part")
	assert.Zero(t, unmap(dma, memory, first, 2*page))
	assert.EqualValues(t, rmNotFound, unmap(dma, memory, first, 0), "twice")
	again, status := mapAt(dma, memory, 0, 2*page, 0, 0)
	assert.Zero(t, status)
	assert.Equal(t, first, again)

	// Whatever goes takes its mappings along.
	require.Zero(t, c.free(memory))
	memory, status = c.memory(4 * page)
	require.Zero(t, status)
	first, status = mapAt(dma, memory, 0, 4*page, 0, 0)
	assert.Zero(t, status)
	assert.Equal(t, start, first)
	require.Zero(t, c.free(dma))
	assert.EqualValues(t, rmNotFound, unmap(dma, memory, first, 0))
	shorter := struct {
		Client, Device, DMA, Memory, Flags, _ uint32
		Address                               uint64
		Status, _                             uint32
	}{Client: c.client, Device: c.device, DMA: dma, Memory: memory}
	require.NoError(t, rmIoctl(c.ctl, escUnmapDMA, &shorter))
	assert.EqualValues(t, rmNotFound, shorter.Status)
}

// ---- Races ---------------------------------------------------------------------------------------------------------

// TestRaceNvidia: threads that make, duplicate, map, free and close at once leave nothing behind.
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
