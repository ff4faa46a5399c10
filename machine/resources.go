package machine

import (
	"math/bits"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// bar is a range of addresses that a function answers to, or that a bridge passes on.
type bar struct {
	index       int // of the first register
	base, size  uint64
	wide, ahead bool // 64 bit; prefetchable
}

func (b bar) end() uint64 { return b.base + b.size - 1 }

// bars are a function's ranges.
type bars []bar

// The flags of a range in the file resource, as Linux numbers them. The low bits are those of the register.
const (
	flagMemory = 0x200
	flagAhead  = 0x2000
	flagAlign  = 0x40000
	flagWide   = 0x100000
)

func (b bar) flags() uint64 {
	flags := uint64(flagMemory | flagAlign)
	if b.wide {
		flags |= flagWide
	}
	if b.ahead {
		flags |= flagAhead
	}
	if b.window() {
		return flags&^flagAlign | uint64(b.register())
	}
	return flags | uint64(b.register())
}

func (b bar) window() bool { return b.index >= windowLow }

// register are the low bits of the register.
func (b bar) register() (low uint32) {
	if b.window() && b.wide {
		return 1
	}
	if b.wide {
		low |= 4
	}
	if b.ahead {
		low |= 8
	}
	return low
}

// space gives out addresses: those from 32 TiB on for prefetchable ranges, those below 4 GiB for others.
type space struct{ low, high uint64 }

const (
	lowStart  = 0x80000000
	lowEnd    = 0xe0000000
	highStart = 0x200000000000
	megabyte  = 1 << 20
)

func (s *space) take(b *bar) {
	next := &s.low
	if b.ahead {
		next = &s.high
	}
	b.base = (*next + b.size - 1) &^ (b.size - 1)
	if *next = b.base + b.size; s.low >= lowEnd { // more GPUs than real machines have addresses for
		s.low = lowStart
	}
}

// allocate gives every function its ranges and interrupt. A bridge has those of the functions below it, and a GPU has
// the interrupt that the profile gives it.
func allocate(roots []*root) {
	s := space{lowStart, highStart}
	irq := 64
	for _, r := range roots {
		r.each(func(f *function) {
			f.irq = irq
			irq++
			if f.gpu != nil {
				f.irq = int(f.gpu.IRQ.Or(uint32(f.irq)))
			}
			if f.kind.bridge() {
				return
			}
			f.bars = ranges(f)
			for i := range f.bars {
				s.take(&f.bars[i])
			}
		})
		for _, f := range r.below {
			f.enclose()
		}
	}
}

// ranges are a device's, without addresses. The sizes of registers and of the third range are those of real boards; the
// second is as large as NVML's BAR1.
func ranges(f *function) bars {
	switch f.kind {
	case nvswitch:
		return bars{{index: 0, size: 32 * megabyte, wide: true}}
	case hca:
		return bars{{index: 0, size: 32 * megabyte, wide: true, ahead: true}}
	}
	memory := uint64(256 * megabyte)
	if total := f.gpu.BAR1Memory.TotalBytes.Or(0); total > megabyte {
		memory = 1 << bits.Len64(total-1)
	}
	if since(f.gpu, "hopper") {
		return bars{
			{index: 0, size: 16 * megabyte, wide: true, ahead: true},
			{index: 2, size: memory, wide: true, ahead: true},
			{index: 4, size: 32 * megabyte, wide: true, ahead: true},
		}
	}
	return bars{
		{index: 0, size: 16 * megabyte},
		{index: 1, size: memory, wide: true, ahead: true},
		{index: 3, size: 32 * megabyte, wide: true, ahead: true},
	}
}

// architectures are the chips' generations, oldest first.
var architectures = []string{"kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell"}

// since says whether a GPU is of that generation or a younger one.
func since(d *profiles.Device, architecture string) bool {
	rank := func(name string) int {
		for i, a := range architectures {
			if a == name {
				return i
			}
		}
		return -1
	}
	return rank(d.Architecture.Or("")) >= rank(architecture)
}

// The windows of a bridge, as places among its ranges.
const (
	windowLow  = 14
	windowHigh = 15
)

// enclose gives a bridge the windows that cover what is below it.
func (f *function) enclose() {
	for _, child := range f.below {
		child.enclose()
	}
	if !f.kind.bridge() {
		return
	}
	for index, ahead := range map[int]bool{windowLow: false, windowHigh: true} {
		var low, high uint64
		for _, child := range f.below {
			for _, b := range child.bars {
				if b.ahead != ahead {
					continue
				}
				if high == 0 || b.base < low {
					low = b.base
				}
				high = max(high, b.end())
			}
		}
		if high != 0 {
			low &^= megabyte - 1
			f.bars = append(f.bars, bar{index: index, base: low, size: (high | (megabyte - 1)) - low + 1, wide: ahead, ahead: ahead})
		}
	}
}
