package gpufilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// image is memory with an ELF object at base.
type image struct {
	base  uint64
	bytes []byte
}

func (m image) read(addr uint64, b []byte) bool {
	if addr < m.base || addr-m.base > uint64(len(m.bytes)) || uint64(len(m.bytes))-(addr-m.base) < uint64(len(b)) {
		return false
	}
	copy(b, m.bytes[addr-m.base:])
	return true
}

// object reads the program headers as the dynamic linker does.
func (m image) object() object {
	o := object{name: "libfake.so", base: m.base}
	if len(m.bytes) < 64 {
		return o
	}
	offset, n := binary.LittleEndian.Uint64(m.bytes[32:]), binary.LittleEndian.Uint16(m.bytes[56:])
	for range min(n, 64) {
		var h programHeader
		if offset > uint64(len(m.bytes)) {
			break
		}
		if _, err := binary.Decode(m.bytes[offset:], binary.LittleEndian, &h); err != nil {
			break
		}
		o.headers = append(o.headers, h)
		offset += sizeofHeader
	}
	return o
}

const sizeofHeader = 56

// rela is an entry of a relocation table in a test.
type rela struct {
	offset uint64
	kind   uint32
	symbol string
}

// Offsets in the images that build makes. The second segment is writable.
const (
	dynamicAt = 0x200
	symbolsAt = 0x400
	stringsAt = 0x600
	jmpRelAt  = 0x800
	relaAt    = 0xa00
	writable  = 0x1000
	imageSize = 0x2000
)

// build makes an image of a loaded object, with absolute pointers in the dynamic section or with the file's pointers.
func build(base uint64, absolute bool, jmprel, relas []rela, change func(dynamic map[uint64]uint64)) image {
	b := make([]byte, imageSize)
	put := func(at int, words ...uint64) {
		for i, w := range words {
			binary.LittleEndian.PutUint64(b[at+8*i:], w)
		}
	}
	copy(b, "\x7fELF\x02\x01\x01")
	put(32, 64)
	b[56] = 3
	header := func(i int, kind, flags uint32, at, size uint64) {
		put(64+i*sizeofHeader, uint64(flags)<<32|uint64(kind), at, at, at, size, size, 0x1000)
	}
	header(0, ptLoad, 5, 0, writable)
	header(1, ptLoad, 6, writable, imageSize-writable)
	header(2, ptDynamic, 6, dynamicAt, symbolsAt-dynamicAt)

	names, symbols := "\x00", []string{""}
	index := func(symbol string) uint64 {
		for i, s := range symbols {
			if s == symbol {
				return uint64(i)
			}
		}
		put(symbolsAt+len(symbols)*sizeofSymbol, uint64(len(names)))
		names += symbol + "\x00"
		symbols = append(symbols, symbol)
		return uint64(len(symbols) - 1)
	}
	for i, r := range jmprel {
		put(jmpRelAt+i*sizeofRela, r.offset, index(r.symbol)<<32|uint64(r.kind), 0)
	}
	for i, r := range relas {
		put(relaAt+i*sizeofRela, r.offset, index(r.symbol)<<32|uint64(r.kind), 0)
	}
	copy(b[stringsAt:], names)
	dynamic := map[uint64]uint64{dtSymTab: symbolsAt, dtStrTab: stringsAt, dtStrSz: uint64(len(names)), dtSymEnt: sizeofSymbol,
		dtJmpRel: jmpRelAt, dtPltRelSz: uint64(len(jmprel) * sizeofRela), dtPltRel: dtRela,
		dtRela: relaAt, dtRelaSz: uint64(len(relas) * sizeofRela), dtRelaEnt: sizeofRela}
	if absolute {
		for _, tag := range []uint64{dtSymTab, dtStrTab, dtJmpRel, dtRela} {
			dynamic[tag] += base
		}
	}
	if change != nil {
		change(dynamic)
	}
	at := dynamicAt
	for _, tag := range slices.Sorted(maps.Keys(dynamic)) {
		put(at, tag, dynamic[tag])
		at += sizeofDynamic
	}
	return image{base, b}
}

// typical has slots of ioctl in both tables, among other entries.
func typical(machine relocations) (jmprel, relas []rela) {
	jmprel = []rela{
		{writable, machine.jumpSlot, "open"},
		{writable + 8, machine.jumpSlot, "ioctl"},
		{writable + 16, machine.jumpSlot, "ioctl2"},
		{writable + 24, machine.jumpSlot, "xioctl"},
		{writable + 32, 37, "ioctl"}, // IRELATIVE, on one of the machines
	}
	relas = []rela{
		{writable + 40, machine.globDat, "ioctl"},
		{writable + 48, machine.globDat, "free"},
		{writable + 56, 1, "ioctl"},               // an address in data
		{writable + 8, machine.globDat, "ioctl"},  // the same slot once more
		{writable + 65, machine.globDat, "ioctl"}, // not aligned
		{16, machine.globDat, "ioctl"},            // not writable
		{imageSize, machine.globDat, "ioctl"},     // outside
		{math.MaxUint64 - 7, machine.globDat, "ioctl"},
		{writable + 72, machine.globDat, ""}, // symbol 0
	}
	return jmprel, relas
}

func TestSlots(t *testing.T) {
	for name, machine := range machines {
		for _, base := range []uint64{0x7f0000000000, 0x10000, 0} {
			for _, absolute := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s at %#x, absolute %v", name, base, absolute), func(t *testing.T) {
					jmprel, relas := typical(machine)
					m := build(base, absolute, jmprel, relas, nil)
					o := m.object()
					found, err := o.slots(m, machine, "ioctl")
					require.NoError(t, err)
					assert.Equal(t, []uint64{base + writable + 8, base + writable + 40}, found)

					found, err = o.slots(m, machine, "open")
					require.NoError(t, err)
					assert.Equal(t, []uint64{base + writable}, found)
					for _, missing := range []string{"close", "ioct", "", strings.Repeat("x", 100)} {
						found, err = o.slots(m, machine, missing)
						require.NoError(t, err)
						assert.Empty(t, found)
					}
				})
			}
		}
	}
}

func TestSlotsOfTheOtherMachine(t *testing.T) {
	jmprel, relas := typical(machines["arm64"])
	m := build(0, true, jmprel[:2], relas[:1], nil)
	o := m.object()
	found, err := o.slots(m, machines["amd64"], "ioctl")
	assert.NoError(t, err)
	assert.Empty(t, found)
}

func TestSlotsOfBrokenObjects(t *testing.T) {
	const base = 0x7f0000000000
	machine := machines["amd64"]
	for name, change := range map[string]func(d map[uint64]uint64){
		"symbols outside":      func(d map[uint64]uint64) { d[dtSymTab] = 0x600000000000 },
		"names outside":        func(d map[uint64]uint64) { d[dtStrTab] = imageSize },
		"table outside":        func(d map[uint64]uint64) { d[dtJmpRel] = base - 8 },
		"table too long":       func(d map[uint64]uint64) { d[dtRelaSz] = math.MaxUint64 },
		"other symbols":        func(d map[uint64]uint64) { d[dtSymEnt] = 16 },
		"other table entries":  func(d map[uint64]uint64) { d[dtRelaEnt] = 16 },
		"table around the end": func(d map[uint64]uint64) { d[dtRela], d[dtRelaSz] = base+imageSize-24, 48 },
	} {
		t.Run(name, func(t *testing.T) {
			jmprel, relas := typical(machine)
			m := build(base, true, jmprel, relas, change)
			o := m.object()
			_, err := o.slots(m, machine, "ioctl")
			assert.ErrorIs(t, err, errBroken)
			assert.ErrorContains(t, err, "libfake.so")
		})
	}
	for name, change := range map[string]func(d map[uint64]uint64){
		"no symbols":       func(d map[uint64]uint64) { delete(d, dtSymTab) },
		"no tables":        func(d map[uint64]uint64) { delete(d, dtJmpRel); delete(d, dtRela) },
		"empty tables":     func(d map[uint64]uint64) { d[dtPltRelSz], d[dtRelaSz] = 0, 23 },
		"names cut short":  func(d map[uint64]uint64) { d[dtStrSz] = 6 },
		"a foreign PLTREL": func(d map[uint64]uint64) { d[dtPltRel] = 17; delete(d, dtRela) },
	} {
		t.Run(name, func(t *testing.T) {
			jmprel, relas := typical(machine)
			m := build(base, true, jmprel, relas, change)
			o := m.object()
			found, err := o.slots(m, machine, "ioctl")
			assert.NoError(t, err)
			assert.Empty(t, found)
		})
	}
	o := object{base: base}
	found, err := o.slots(image{}, machine, "ioctl")
	assert.NoError(t, err)
	assert.Empty(t, found)
}

// TestOwnImports reads the imports of the test process.
func TestOwnImports(t *testing.T) {
	objects, _ := loaded()
	require.NotEmpty(t, objects)
	address, ok := BoundImport("", "ioctl")
	require.True(t, ok, "the test is linked with hook.c, which calls ioctl")
	assert.NotZero(t, address)
	_, ok = BoundImport("", "no_such_function")
	assert.False(t, ok)
	_, ok = BoundImport("no such object", "ioctl")
	assert.False(t, ok)
}

func FuzzSlots(f *testing.F) {
	for _, machine := range machines {
		for _, absolute := range []bool{true, false} {
			jmprel, relas := typical(machine)
			f.Add(uint64(0x7f0000000000), build(0x7f0000000000, absolute, jmprel, relas, nil).bytes)
			f.Add(uint64(0x800), build(0x800, absolute, jmprel, relas, nil).bytes)
		}
	}
	f.Add(uint64(math.MaxUint64-0xfff), build(math.MaxUint64-0xfff, true, nil, nil, nil).bytes)
	f.Fuzz(func(t *testing.T, base uint64, text []byte) {
		m := image{base, bytes.Clone(text)}
		o := m.object()
		for _, machine := range machines {
			found, err := o.slots(m, machine, "ioctl")
			if err != nil && found != nil {
				t.Error("slots and an error")
			}
			for i, slot := range found {
				if slot%8 != 0 || !o.contains(slot, pfW) || i > 0 && found[i-1] >= slot {
					t.Errorf("slot %#x", slot)
				}
			}
		}
	})
}
