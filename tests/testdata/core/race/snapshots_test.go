package race

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/engine/enginetest"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/generated/dispatch"
	"github.com/nvmlfab/nvmlfab/profiles"
)

const (
	snapshots = 1000
	readers   = 8
	gpus      = 2
)

// entry is a symbol at the call gate. The test that runs this package writes a table of entries.
type entry struct {
	name   string
	number uint32
	args   []arg
}

// arg describes one or two words of a call.
type arg struct {
	role     string // the generator's name for it
	at, size int    // positions of the value and of its length; -1: no length
	extent   int    // bytes of one element
	version  uint32
	bus      bool // the text is a bus id
}

// elements is the length of every array.
const elements = 64

// caller makes calls with memory of its own.
type caller struct {
	words  [8]uint64
	memory [][]byte
	texts  [][]byte
	hash   maphash.Hash
}

var seed = maphash.MakeSeed()

func (c *caller) room(n int) uint64 {
	b := make([]byte, n)
	c.memory = append(c.memory, b)
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}

func (c *caller) number(n uint64) uint64 {
	at := c.room(8)
	*(*uint64)(unsafe.Pointer(&c.memory[len(c.memory)-1][0])) = n
	return at
}

// call returns a digest of everything that the symbol answers about a GPU.
func (c *caller) call(s *engine.Snapshot, e *entry, gpu int, handle uintptr, uuid, bus string) uint64 {
	c.words, c.memory = [8]uint64{}, c.memory[:0]
	for _, a := range e.args {
		w := &c.words[a.at]
		switch a.role {
		case "handle":
			*w = uint64(handle)
		case "value":
			*w = uint64(gpu)
		case "text":
			text := uuid
			if a.bus {
				text = bus
			}
			*w = c.room(len(text) + 1)
			copy(c.memory[len(c.memory)-1], text)
		case "buffer":
			*w, c.words[a.size] = c.room(4096), 4096
		case "fixed":
			*w = c.room(a.extent)
		case "sized", "bytes":
			*w, c.words[a.size] = c.room(4096), c.number(4096)
		case "list":
			*w, c.words[a.size] = c.room(elements*a.extent), c.number(elements)
		case "also":
			*w = c.room(elements * a.extent)
		case "slice":
			*w, c.words[a.size] = c.room(elements*a.extent), elements
			for i := 0; a.extent >= 4 && i < elements; i++ { // these may be field numbers
				*(*uint32)(unsafe.Pointer(&c.memory[len(c.memory)-1][i*a.extent])) = uint32(1 + gpu*elements + i)
			}
		default:
			*w = c.room(max(a.extent, int(a.version&0xffffff), 8))
			if a.version != 0 {
				*(*uint32)(unsafe.Pointer(&c.memory[len(c.memory)-1][0])) = a.version
			}
		}
	}
	ret := dispatch.Call(e.number)(s, unsafe.Pointer(&c.words))
	c.hash.SetSeed(seed)
	c.hash.WriteByte(byte(ret))
	if ret == abi.SUCCESS || ret == abi.ERROR_INSUFFICIENT_SIZE {
		for _, b := range c.memory {
			c.hash.Write(b)
		}
	}
	runtime.KeepAlive(c.memory)
	return c.hash.Sum64()
}

// filler gives each value of a board a different number, derived from one number.
type filler struct {
	k int
	n int // values so far
}

func (f *filler) fill(v reflect.Value, tag reflect.StructTag) {
	f.n++
	n := uint64(f.k + f.n%7)
	switch v.Kind() {
	case reflect.Struct:
		t := v.Type()
		if value := v.FieldByName("Valid"); strings.HasPrefix(t.Name(), "Opt[") {
			value.SetBool(true)
			f.fill(v.FieldByName("Value"), tag)
			return
		}
		for i := range t.NumField() {
			f.fill(v.Field(i), t.Field(i).Tag)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.k%3, 1+f.k%3))
		for i := range v.Len() {
			f.fill(v.Index(i), tag)
		}
	case reflect.String:
		text := fmt.Sprint("value ", n)
		if enum := tag.Get("enum"); enum != "" {
			choices := strings.Split(enum, ",")
			text, _, _ = strings.Cut(choices[int(n)%len(choices)], "=")
		}
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(n%2 == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(n) / 2048)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n % (1 << min(v.Type().Bits()-1, 20))))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(n % (1 << min(v.Type().Bits(), 20)))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), tag)
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

// board is a board whose values all differ from those of the boards with other numbers. The readings of GPU 0 are
// constant, and those of GPU 1 change. The GPUs keep the addresses that they were enumerated with.
func board(k int, enumerated [gpus]profiles.BusID) *profiles.Board {
	b := &profiles.Board{}
	f := filler{k: k}
	f.fill(reflect.ValueOf(&b.NVLink).Elem(), "")
	f.fill(reflect.ValueOf(&b.Topology).Elem(), "")
	f.fill(reflect.ValueOf(&b.MIG).Elem(), "")
	b.System.NVMLVersion = profiles.Some(fmt.Sprint("13.", k)) // the driver's version decides which functions there are
	b.System.CUDAVersionMajor, b.System.CUDAVersionMinor = profiles.Some(uint32(1+k%900)), profiles.Some(uint32(k%100))
	f.fill(reflect.ValueOf(&b.System.VGPU).Elem(), "")
	f.fill(reflect.ValueOf(&b.Units).Elem(), "")
	for i := range b.Units {
		b.Units[i].Devices = []uint32{uint32(k % gpus)}
	}
	b.NVLink.LinksPerGPU = profiles.Some(uint32(1 + k%5))
	b.Devices = make([]profiles.Device, gpus)
	for i := range b.Devices {
		d := &b.Devices[i]
		f.fill(reflect.ValueOf(d).Elem(), "")
		d.Failure = profiles.Failure{}
		powerProfiles := &d.WorkloadPowerProfiles // their numbers are places in a mask, which a profile cannot exceed
		for j := range powerProfiles.Requested {
			powerProfiles.Requested[j] %= 255
		}
		for j := range powerProfiles.Supported {
			p := &powerProfiles.Supported[j]
			p.ID %= 255
			for c := range p.Conflicts {
				p.Conflicts[c] %= 255
			}
		}
		if i == 0 {
			d.DynamicMetrics = profiles.DynamicMetrics{}
		}
		d.PDI = profiles.Some(uint64(k))
		asVGPUHost(d)
		bridge := &b.Topology.RootComplexes[0] // near a CPU and a node for which masks have room
		bridge.Devices = append(bridge.Devices, enumerated[i])
		bridge.CPUAffinity, bridge.NUMANode = profiles.CPUSet{uint32(k % 64)}, profiles.Some(int32(k%64))

	}
	return b
}

// asVGPUHost lets a GPU run vGPUs, one of whose types and one of which have the number that [caller.call] asks
// GPU 1 for.
func asVGPUHost(d *profiles.Device) {
	d.Virtualization.Mode = profiles.Some("host_vgpu")
	for j := range d.VGPU.Types {
		d.VGPU.Types[j].ID = uint32(1 + j)
	}
	for j := range d.VGPU.Instances {
		d.VGPU.Instances[j].ID, d.VGPU.Instances[j].Type = uint32(1+j), d.VGPU.Types[0].Name
	}
}

// begin starts a node of two GPUs and makes their handles.
func begin(t *testing.T) (*engine.Engine, [gpus]uintptr) {
	e := engine.New(enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, "extends: h100\ncount: 2\n")))
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	var handles [gpus]uintptr
	for i, d := range e.Snapshot().Devices {
		handles[i], _ = d.Handle()
	}
	return e, handles
}

// TestSnapshots: eight readers call every getter while a thousand snapshots with different values replace each other.
// Each call must answer as if only the snapshot that it started with existed.
func TestSnapshots(t *testing.T) {
	enginetest.At(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	e, handles := begin(t)
	var enumerated [gpus]profiles.BusID
	for i, d := range e.Snapshot().Devices {
		enumerated[i] = d.PCI.BusID.Value
	}
	boards := make([]*profiles.Board, snapshots)
	for k := range boards {
		boards[k] = board(k, enumerated)
	}
	uuid, bus := string(e.Snapshot().Devices[1].UUID), e.Snapshot().Devices[1].PCI.BusID.Value.String()

	// First all snapshots one after the other, without any concurrency.
	want := make([][]uint64, snapshots)
	differ := make([]int, len(table)*gpus)
	var c caller
	for k, b := range boards {
		if err := e.Publish(engine.Node{Board: b}); err != nil {
			t.Fatal(err)
		}
		for i := range table {
			for gpu := range gpus {
				want[k] = append(want[k], c.call(e.Snapshot(), &table[i], gpu, handles[gpu], uuid, bus))
			}
		}
		for at := range differ {
			if k > 0 && want[k][at] != want[k-1][at] {
				differ[at]++
			}
		}
	}
	changing := 0
	for _, n := range differ {
		if n > snapshots/4 {
			changing++
		}
	}
	t.Logf("%d calls, of which %d answer otherwise in most snapshots", len(differ), changing)
	if changing < len(differ)*3/5 {
		t.Errorf("only %d of %d calls tell the snapshots apart", changing, len(differ))
	}

	// Then all of them concurrently.
	e, again := begin(t)
	if again != handles {
		t.Fatal("other handles")
	}
	if err := e.Publish(engine.Node{Board: boards[0]}); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var made, ahead, moved atomic.Int64
	var wrong sync.Map // names of symbols
	var wg sync.WaitGroup
	for reader := range readers {
		wg.Go(func() {
			var c caller
			for at := reader; !done.Load(); at++ {
				for made.Load() > ahead.Load() && !done.Load() {
					runtime.Gosched() // leave the processors to the publisher
				}
				i, gpu := at/gpus%len(table), at%gpus
				s := e.Snapshot()
				got := c.call(s, &table[i], gpu, handles[gpu], uuid, bus)
				if k := s.Devices[0].PDI.Value; got != want[k][i*gpus+gpu] {
					if _, said := wrong.LoadOrStore(table[i].name, k); !said {
						t.Errorf("%s of GPU %d does not answer of snapshot %d alone", table[i].name, gpu, k)
					}
				}
				if e.Snapshot() != s {
					moved.Add(1)
				}
				made.Add(1)
			}
		})
	}
	for _, b := range boards[1:] {
		enough := made.Load() + 100
		for ahead.Store(enough + 400); made.Load() < enough; {
			runtime.Gosched()
		}
		if err := e.Publish(engine.Node{Board: b}); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d calls, during %d of which another snapshot came", made.Load(), moved.Load())
	if moved.Load() == 0 {
		t.Error("no call saw a snapshot go")
	}
}

// TestReaders: eight readers ask every getter about 64 GPUs that all differ, and get what one reader gets.
func TestReaders(t *testing.T) {
	const many = 64
	enginetest.At(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	e := engine.New(enginetest.New("MOCK_NVML_CONFIG", enginetest.Write(t, fmt.Sprintf("extends: h100\ncount: %d\n", many))))
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	s := e.Snapshot()
	var want [many][]uint64
	differ := 0
	var c caller
	handles := make([]uintptr, many)
	ask := func(c *caller, gpu, i int) uint64 {
		d := s.Devices[gpu]
		return c.call(s, &table[i], gpu, handles[gpu], string(d.UUID), d.PCI.BusID.Value.String())
	}
	for gpu, d := range s.Devices {
		handles[gpu], _ = d.Handle()
		if d.Index != uint32(gpu) || d.MinorNumber.Value != uint32(gpu) {
			t.Fatalf("GPU %d has index %d and minor number %d", gpu, d.Index, d.MinorNumber.Value)
		}
		for i := range table {
			want[gpu] = append(want[gpu], ask(&c, gpu, i))
			if gpu > 0 && want[gpu][i] != want[gpu-1][i] {
				differ++
			}
		}
	}
	if differ < (many-1)*10 { // index, UUID, bus id, serial, readings
		t.Errorf("only %d answers tell a GPU from the one before", differ)
	}
	var wg sync.WaitGroup
	for reader := range readers {
		wg.Go(func() {
			var c caller
			for n := range many {
				gpu := (n + reader*many/readers) % many
				for i := range table {
					if ask(&c, gpu, i) != want[gpu][i] {
						t.Errorf("%s of GPU %d answers otherwise beside other readers", table[i].name, gpu)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d readers, %d GPUs, %d functions, %d answers that tell GPUs apart", readers, many, len(table), differ)
}
