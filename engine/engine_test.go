package engine_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

func TestDefaultBoard(t *testing.T) {
	node := enginetest.Start(t, "")
	want, err := profiles.Shipped(profiles.Default)
	require.NoError(t, err)
	require.Len(t, node.Devices, len(want.Devices))
	assert.Equal(t, 580, node.Branch)
	for i, d := range node.Devices {
		assert.Equal(t, want.Devices[i].UUID, d.UUID)
		assert.Same(t, node, d.Node())
		assert.Same(t, d, node.DeviceAt(uint32(i)))
		assert.Same(t, d, node.DeviceByUUID(string(d.UUID)))
		assert.Same(t, d, node.DeviceByBusID(d.PCI.BusID.Value))
		assert.Same(t, d, engine.Object(d.Handle()))
	}
	assert.Nil(t, node.DeviceAt(uint32(len(node.Devices))))
	assert.Nil(t, node.DeviceAt(^uint32(0)))
	assert.Nil(t, node.DeviceByUUID("GPU-00000000-0000-0000-0000-000000000000"))
}

func TestConfiguration(t *testing.T) {
	path := enginetest.Write(t, "extends: h100\ncount: 3\n")
	t.Cleanup(engine.Stop)

	enginetest.Use("NVMLFAB_PROFILE", "h100")
	require.NoError(t, engine.Start())
	assert.Len(t, engine.Current().Devices, 8)

	enginetest.Use("NVMLFAB_PROFILE", "h100", "MOCK_NVML_CONFIG", path)
	require.NoError(t, engine.Start())
	assert.Len(t, engine.Current().Devices, 3, "a file wins over a board's name")
}

func TestConfigurationErrors(t *testing.T) {
	bad := enginetest.Write(t, "extends: h100\nno_such_key: 1\n")
	for name, c := range map[string]struct {
		env  []string
		want []string
	}{
		"unknown board": {[]string{"NVMLFAB_PROFILE", "nope"}, []string{"NVMLFAB_PROFILE", "nope"}},
		"missing file":  {[]string{"MOCK_NVML_CONFIG", "/no/such/file"}, []string{"/no/such/file"}},
		"unknown key":   {[]string{"MOCK_NVML_CONFIG", bad}, []string{bad + ":2: ", "no_such_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			enginetest.Use(c.env...)
			err := engine.Start()
			require.Error(t, err)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Empty(t, engine.Current().Devices, "no other GPUs take their place")
		})
	}
}

func TestForeignHandles(t *testing.T) {
	d := enginetest.Start(t, "").Devices[0]
	for _, foreign := range []uintptr{0, 1, d.Handle() + 8, d.Handle() - 8, d.Handle() + 1, enginetest.Base - enginetest.Stride,
		enginetest.Base + 1000*enginetest.Stride, ^uintptr(0)} {
		assert.Nil(t, engine.Object(foreign), "%#x", foreign)
	}
}

// TestStaleHandles: a handle is not valid after the generation that made it, and is never used again.
func TestStaleHandles(t *testing.T) {
	h := enginetest.Use()
	seen := map[uintptr]bool{}
	for range 20 {
		require.NoError(t, engine.Start())
		set := engine.NewEventSet()
		handles := []uintptr{set.Handle()}
		for _, d := range engine.Current().Devices {
			handles = append(handles, d.Handle())
		}
		for _, a := range handles {
			assert.False(t, seen[a], "%#x is used again", a)
			assert.NotNil(t, engine.Object(a))
		}
		for a := range seen {
			assert.Nil(t, engine.Object(a), "%#x is stale", a)
		}
		for _, a := range handles {
			seen[a] = true
		}
		engine.Stop()
		h.NextGeneration()
		assert.Nil(t, engine.Object(handles[0]))
		assert.Empty(t, engine.Current().Devices)
	}
}

func TestEventSets(t *testing.T) {
	enginetest.Start(t, "")
	var sets []*engine.EventSet
	for range 100 {
		set := engine.NewEventSet()
		assert.Same(t, set, engine.Object(set.Handle()))
		sets = append(sets, set)
	}
	for _, set := range sets {
		set.Free()
		assert.Nil(t, engine.Object(set.Handle()))
		assert.NotEqual(t, set.Handle(), engine.NewEventSet().Handle())
	}
}

// TestLateFree: freeing loses a race with nvmlShutdown and the next nvmlInit.
func TestLateFree(t *testing.T) {
	h := enginetest.Use()
	t.Cleanup(engine.Stop)
	require.NoError(t, engine.Start())
	set := engine.NewEventSet()
	engine.Stop()
	h.NextGeneration()
	require.NoError(t, engine.Start())
	set.Free()
	assert.Nil(t, engine.Object(set.Handle()))
	assert.Same(t, engine.Current().Devices[0], engine.Object(engine.Current().Devices[0].Handle()))
}

func TestOutOfHandles(t *testing.T) {
	h := enginetest.Use()
	t.Cleanup(engine.Stop)
	h.Limit = 9
	require.NoError(t, engine.Start())
	assert.NotNil(t, engine.NewEventSet())
	assert.Nil(t, engine.NewEventSet())

	engine.Stop()
	h.NextGeneration()
	assert.ErrorContains(t, engine.Start(), "handles")
}

// TestRestore: in a forked child the handles mean what they meant in the parent.
func TestRestore(t *testing.T) {
	h := enginetest.Use()
	require.NoError(t, engine.Start())
	t.Cleanup(engine.Stop)
	node := engine.Current()
	freed, kept := engine.NewEventSet(), engine.NewEventSet()
	freed.Free()
	config := h.Kept()
	engine.Stop() // the child's core is another, which knows nothing yet
	h.Keep(config)

	require.Equal(t, abi.SUCCESS, engine.Restore())
	for i, d := range node.Devices {
		again, ok := engine.Object(d.Handle()).(*engine.Device)
		require.True(t, ok)
		assert.Equal(t, uint32(i), again.Index)
		assert.Equal(t, d.UUID, again.UUID)
	}
	assert.IsType(t, &engine.EventSet{}, engine.Object(kept.Handle()))
	assert.Nil(t, engine.Object(freed.Handle()))
	assert.NotEqual(t, kept.Handle(), engine.NewEventSet().Handle())
}

// TestRestoreTheSameBoard: a forked process has the GPUs of before the fork, whatever became of the environment and the file.
func TestRestoreTheSameBoard(t *testing.T) {
	path := enginetest.Write(t, "extends: t4\ncount: 2\n")
	h := enginetest.Use("MOCK_NVML_CONFIG", path)
	t.Cleanup(engine.Stop)
	require.NoError(t, engine.Start())
	config := h.Kept()
	engine.Stop()
	assert.Empty(t, h.Kept(), "a generation that ended leaves nothing")

	require.NoError(t, os.WriteFile(path, []byte("extends: h100\n"), 0o600))
	h.Env["MOCK_NVML_CONFIG"] = "/no/such/file"
	h.Keep(config)
	require.Equal(t, abi.SUCCESS, engine.Restore())
	require.Len(t, engine.Current().Devices, 2)
	assert.Equal(t, "Tesla T4", engine.Current().Devices[0].Name.Value)

	engine.Stop()
	h.Keep([]byte("gb200\x00"))
	assert.Equal(t, abi.ERROR_UNKNOWN, engine.Restore(), "other GPUs than the handles stand for")
}

// TestConcurrency: look-ups race with starts and stops and find a device of that handle or nothing.
func TestConcurrency(t *testing.T) {
	enginetest.Start(t, "")
	handle := engine.Current().Devices[3].Handle()
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				if d, ok := engine.Object(handle).(*engine.Device); ok {
					assert.Equal(t, handle, d.Handle())
				}
				for _, d := range engine.Current().Devices {
					assert.NotEmpty(t, d.UUID)
				}
				if set := engine.NewEventSet(); set != nil {
					set.Free()
				}
			}
		})
	}
	for range 50 {
		engine.Stop()
		assert.NoError(t, engine.Start())
	}
	done.Store(true)
	readers.Wait()
}
