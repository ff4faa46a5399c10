//go:build guest

package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// full reports whether all memory of the second GPU, 1 GiB, is free. It tries to allocate all of it.
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

	// Sizes are returned as whole pages.
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

	// All ways to free the memory.
	for name, end := range map[string]func(c *rmClient, memory uint32){
		"object": func(c *rmClient, memory uint32) { c.free(memory) },
		"device": func(c *rmClient, memory uint32) { c.free(c.device) },
		"client": func(c *rmClient, memory uint32) { c.free(c.client) },
		"close":  func(c *rmClient, memory uint32) { shut(t, c.ctl) },
		"heap": func(c *rmClient, memory uint32) {
			call := nvos32{Root: c.client, Parent: c.device, Function: 3, Memory: memory, Type: 1} // its flags
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
	for _, source := range []uint32{0x50, 0x51} {
		dup := nvos55{Client: c.client, Parent: c.device, ClientSrc: c.client, ObjectSrc: source}
		require.NoError(t, rmIoctl(c.ctl, escDup, &dup))
		assert.Zero(t, dup.Status, "a duplicate of %#x", source)
	}
	assert.EqualValues(t, rmInvalidLimit, alloc(classSystem, ^uint64(0), 0x52))
	assert.EqualValues(t, rmInvalidClass, alloc(classLocal, 4095, 0x52))
	assert.True(t, full(t), "none of it is the GPU's")
	assert.Equal(t, unix.EINVAL, rmIoctl(c.ctl, escAllocMemory, &nvos02{Root: c.client}), "through nvidiactl")
}

// TestNvidiaDup: a duplicate shares the memory, which counts once until the last duplicate is freed.
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

	// A client of another process, which holds memory for as long as it runs.
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
	assert.EqualValues(t, rmInvalidOffset, status, "after the range")
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

	// Freeing either object ends its mappings.
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
