//go:build cgo

package gpufilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// memory is an address space that can be read. Tests use bytes in place of the process's memory.
type memory interface {
	// read fills b from addr on and reports whether all of it could be read.
	read(addr uint64, b []byte) bool
}

// object is a loaded ELF object, as dl_iterate_phdr describes it.
type object struct {
	name    string // its path; empty for the program
	base    uint64 // is added to the addresses in the object
	headers []programHeader
}

// programHeader is an Elf64_Phdr.
type programHeader struct {
	Type, Flags                                uint32
	Offset, Vaddr, Paddr, Filesz, Memsz, Align uint64
}

// From elf.h.
const (
	ptLoad    = 1
	ptDynamic = 2
	pfW       = 2

	dtNull     = 0
	dtPltRelSz = 2
	dtStrTab   = 5
	dtSymTab   = 6
	dtRela     = 7
	dtRelaSz   = 8
	dtRelaEnt  = 9
	dtStrSz    = 10
	dtSymEnt   = 11
	dtPltRel   = 20
	dtJmpRel   = 23

	sizeofDynamic = 16
	sizeofRela    = 24
	sizeofSymbol  = 24
)

// relocations are the relocation types for which the dynamic linker writes a function's address into a slot.
type relocations struct{ jumpSlot, globDat uint32 }

// machines has the relocation types of each architecture, by Go's name for it.
var machines = map[string]relocations{
	"amd64": {jumpSlot: 7, globDat: 6},
	"arm64": {jumpSlot: 1026, globDat: 1025},
}

var errBroken = errors.New("its dynamic section makes no sense")

// slots returns the addresses of the slots through which o calls symbol, in ascending order. It searches both
// relocation tables: a function that is called through the PLT has a jump slot in one; a function that is called
// without it (-fno-plt), or whose address is taken, has an entry in the other.
func (o *object) slots(m memory, machine relocations, symbol string) ([]uint64, error) {
	d, err := o.dynamic(m)
	if err != nil {
		return nil, err
	}
	if d[dtSymTab] == 0 || d[dtStrTab] == 0 {
		return nil, nil // imports nothing
	}
	symbols, ok1 := o.pointer(d[dtSymTab])
	names, ok2 := o.pointer(d[dtStrTab])
	if !ok1 || !ok2 || d[dtSymEnt] != 0 && d[dtSymEnt] != sizeofSymbol {
		return nil, fmt.Errorf("%s: %w", o.name, errBroken)
	}
	is := func(index uint32) bool {
		var entry, name [sizeofSymbol]byte
		at, ok := add(symbols, uint64(index)*sizeofSymbol)
		if !ok || len(symbol) >= len(name) || !m.read(at, entry[:]) {
			return false
		}
		offset, length := uint64(binary.LittleEndian.Uint32(entry[:])), uint64(len(symbol)+1)
		if size := d[dtStrSz]; size != 0 && (size < length || offset > size-length) {
			return false
		}
		at, ok = add(names, offset)
		return ok && m.read(at, name[:length]) && string(name[:length]) == symbol+"\x00"
	}

	var found []uint64
	tables := []struct{ at, size uint64 }{{d[dtJmpRel], d[dtPltRelSz]}, {d[dtRela], d[dtRelaSz]}}
	if d[dtPltRel] != 0 && d[dtPltRel] != dtRela {
		tables = tables[1:] // on these architectures all tables have addends
	}
	if d[dtRelaEnt] != 0 && d[dtRelaEnt] != sizeofRela {
		return nil, fmt.Errorf("%s: %w", o.name, errBroken)
	}
	for _, table := range tables {
		if table.at == 0 || table.size == 0 {
			continue
		}
		at, ok := o.pointer(table.at)
		if !ok {
			return nil, fmt.Errorf("%s: %w", o.name, errBroken)
		}
		err := eachRela(m, at, table.size, func(offset, info uint64) {
			kind, index := uint32(info), uint32(info>>32)
			if kind != machine.jumpSlot && kind != machine.globDat || index == 0 {
				return
			}
			slot, ok := add(o.base, offset)
			if ok && slot%8 == 0 && o.writable(slot) && is(index) {
				found = append(found, slot)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// dynamic returns the entries of the dynamic section that the filter needs.
func (o *object) dynamic(m memory) (map[uint64]uint64, error) {
	found := map[uint64]uint64{}
	for _, h := range o.headers {
		if h.Type != ptDynamic {
			continue
		}
		at, ok := add(o.base, h.Vaddr)
		var entry [sizeofDynamic]byte
		for left := h.Memsz; ok && left >= sizeofDynamic; left -= sizeofDynamic {
			if !m.read(at, entry[:]) {
				return nil, fmt.Errorf("%s: %w", o.name, errBroken)
			}
			tag := binary.LittleEndian.Uint64(entry[:])
			if tag == dtNull {
				break
			}
			if tag <= dtJmpRel {
				found[tag] = binary.LittleEndian.Uint64(entry[8:])
			}
			at, ok = add(at, sizeofDynamic)
		}
		break
	}
	return found, nil
}

// eachRela calls visit for each entry of a table of Elf64_Rela.
func eachRela(m memory, at, size uint64, visit func(offset, info uint64)) error {
	var chunk [170 * sizeofRela]byte // about a page
	for size >= sizeofRela {
		n := min(size-size%sizeofRela, uint64(len(chunk)))
		if !m.read(at, chunk[:n]) {
			return errBroken
		}
		for b := chunk[:n]; len(b) > 0; b = b[sizeofRela:] {
			visit(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
		}
		next, ok := add(at, n)
		if !ok {
			return errBroken
		}
		at, size = next, size-n
	}
	return nil
}

// pointer converts an address in the dynamic section. glibc has added the base to it already; musl leaves the file's
// value.
func (o *object) pointer(value uint64) (uint64, bool) {
	moved, ok := add(o.base, value)
	relative := ok && o.contains(moved, 0)
	if o.contains(value, 0) && (value >= o.base || !relative) {
		return value, true
	}
	return moved, relative
}

// contains reports whether addr is in a segment that has all of the flags.
func (o *object) contains(addr uint64, flags uint32) bool {
	for _, h := range o.headers {
		start, ok := add(o.base, h.Vaddr)
		if h.Type == ptLoad && h.Flags&flags == flags && ok && addr >= start && addr-start < h.Memsz {
			return true
		}
	}
	return false
}

// writable reports whether the dynamic linker could have written a slot at addr.
func (o *object) writable(addr uint64) bool {
	return addr <= math.MaxUint64-7 && o.contains(addr, pfW) && o.contains(addr+7, pfW)
}

// add returns a sum, and false if it wraps around.
func add(a, b uint64) (uint64, bool) { return a + b, a+b >= a }
