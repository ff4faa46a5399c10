package main

import (
	"bytes"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/host"
)

// newSpace is the front's memory with its first regions.
func newSpace(t *testing.T, n int) *space {
	t.Helper()
	s := &space{start: 1}
	s.generation.Store(1)
	s.next.Store(1)
	for i := range n {
		memory, err := syscall.Mmap(-1, 0, firstSize<<i*int(slotSize), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, syscall.Munmap(memory)) })
		s.region[i] = unsafe.Pointer(&memory[0])
	}
	return s
}

func take(t *testing.T, h *handles, key host.Key) uintptr {
	t.Helper()
	handle, err := h.Take(1, key)
	require.NoError(t, err)
	return handle
}

// TestHandlesOverRegions: handles of several regions are distinct, and addresses between them are not handles.
func TestHandlesOverRegions(t *testing.T) {
	h := &handles{space: newSpace(t, 2)}
	const n = firstSize + 1000
	taken := make([]uintptr, n)
	for i := range taken {
		taken[i] = take(t, h, host.Key{Kind: host.EventSet, Device: uint32(i), Serial: uint64(i) << 33})
	}
	for i, handle := range taken {
		key, ok := h.Key(1, handle)
		require.True(t, ok)
		require.Equal(t, host.Key{Kind: host.EventSet, Device: uint32(i), Serial: uint64(i) << 33}, key)
	}
	for _, foreign := range []uintptr{0, 1, taken[0] + 8, taken[0] - 64, taken[n-1] + 64, ^uintptr(0), uintptr(h.space.region[0])} {
		_, ok := h.Key(1, foreign)
		assert.False(t, ok, "%#x", foreign)
	}
	i := 0
	h.All(1, func(handle uintptr, key host.Key) {
		require.Equal(t, taken[i], handle)
		i++
	})
	assert.Equal(t, n, i)
}

// TestGenerationsOfHandles: an ended generation has no handles and gets no new ones, whatever the next one does.
func TestGenerationsOfHandles(t *testing.T) {
	h := &handles{space: newSpace(t, 1)}
	old := take(t, h, host.Key{Kind: host.Device})
	h.space.generation.Add(1)
	_, err := h.Take(1, host.Key{Kind: host.EventSet})
	assert.ErrorIs(t, err, host.ErrEnded)
	fresh, err := h.Take(2, host.Key{Kind: host.Device})
	require.NoError(t, err)
	assert.NotEqual(t, old, fresh)
	_, ok := h.Key(2, old)
	assert.False(t, ok)
	_, ok = h.Key(1, fresh)
	assert.False(t, ok)
	assert.False(t, h.Release(2, old))
}

// TestRecords: another core on the same memory, as after a fork, finds all keys and records except released ones.
func TestRecords(t *testing.T) {
	h := &handles{space: newSpace(t, 1)}
	set := take(t, h, host.Key{Kind: host.EventSet, Serial: 7})
	long := bytes.Repeat([]byte("registered "), 10_000)
	require.NoError(t, h.SetRecord(1, set, []byte("short")))
	require.NoError(t, h.SetRecord(1, set, long))
	require.NoError(t, h.Keep([]byte("the board")))

	h = &handles{space: h.space}
	key, ok := h.Key(1, set)
	assert.True(t, ok)
	assert.Equal(t, host.Key{Kind: host.EventSet, Serial: 7}, key)
	record, ok := h.Record(1, set)
	assert.True(t, ok)
	assert.Equal(t, long, record)
	assert.Equal(t, "the board", string(h.Kept()))
	require.NoError(t, h.Keep(nil))
	assert.Empty(t, h.Kept())

	assert.True(t, h.Release(1, set))
	assert.False(t, h.Release(1, set))
	_, ok = h.Record(1, set)
	assert.False(t, ok)
	assert.ErrorIs(t, h.SetRecord(1, set, long), host.ErrEnded)
}

// TestReleasedPages: memory is given back by whole pages, and only if no slot of the page is in use.
func TestReleasedPages(t *testing.T) {
	h := &handles{space: newSpace(t, 1)}
	const perPage = page / int(slotSize)
	var taken []uintptr
	for range 3*perPage - 1 { // slot 0 is never taken
		taken = append(taken, take(t, h, host.Key{Kind: host.EventSet}))
	}
	kept := taken[perPage] // in the second page
	for _, handle := range taken {
		if handle != kept {
			require.True(t, h.Release(1, handle))
		}
	}
	third := (*slot)(unsafe.Pointer(uintptr(h.space.region[0]) + 2*page))
	second := (*slot)(unsafe.Pointer(uintptr(h.space.region[0]) + page))
	assert.Zero(t, third.kind.Load(), "given back")
	assert.Equal(t, freed, second.kind.Load(), "still there")
	_, ok := h.Key(1, kept)
	assert.True(t, ok)
	assert.NotContains(t, taken, take(t, h, host.Key{Kind: host.EventSet}))
}

// TestHandlesAtOnce: threads that take and release handles at the same time never get the same one.
func TestHandlesAtOnce(t *testing.T) {
	h := &handles{space: newSpace(t, 1)}
	var wg sync.WaitGroup
	for thread := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				want := host.Key{Kind: host.GpmSample, Device: uint32(thread), Serial: uint64(i)}
				handle, err := h.Take(1, want)
				if !assert.NoError(t, err) {
					return
				}
				key, ok := h.Key(1, handle)
				assert.True(t, ok)
				assert.Equal(t, want, key)
				assert.NoError(t, h.SetRecord(1, handle, []byte{byte(i)}))
				assert.True(t, h.Release(1, handle))
			}
		})
	}
	wg.Wait()
}
