// Command relr packs the relative relocations of a shared library into a table like that of DT_RELR. The library applies it
// by itself: it must be linked with -z norelro, and with an initialization function (-init) that does so, as that of the core is
// (library/core/relocate.c). It packs 500 KB into 8, which every process that loads the library would read. The size of the
// file stays the same.
package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
)

// The tags of the table's address and size. Dynamic linkers ignore them; they are those of Android for such a table.
const (
	tagTable = 0x6fffe000
	tagSize  = 0x6fffe001
)

// The sizes of an Elf64_Rela, an Elf64_Dyn and an address.
const (
	relaSize = 24
	dynSize  = 16
	word     = 8
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "nvmlfab: usage: relr FILE")
		os.Exit(2)
	}
	if err := pack(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "nvmlfab: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// pack packs the relocations of a file.
func pack(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := packed(text); err != nil {
		return err
	}
	return os.WriteFile(path, text, info.Mode().Perm())
}

// relative is the type of relative relocations for each machine.
var relative = map[elf.Machine]uint32{
	elf.EM_X86_64:  uint32(elf.R_X86_64_RELATIVE),
	elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE),
}

// packed changes the bytes of a library.
func packed(text []byte) error {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return err
	}
	kind, known := relative[f.Machine]
	switch {
	case !known || f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian:
		return fmt.Errorf("no library that can be packed: %s, %s", f.Machine, f.Class)
	case slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_RELRO }):
		return errors.New("its data will be read-only when it is initialized: link it with -z norelro")
	}
	rela, dynamic := f.Section(".rela.dyn"), f.Section(".dynamic")
	if rela == nil || dynamic == nil {
		return errors.New("it has no relocations")
	}
	relocations := text[rela.Offset:][:rela.Size]
	var addresses []uint64
	for r := relocations; len(r) > 0; r = r[relaSize:] {
		at, addend := binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(r[16:])
		if binary.LittleEndian.Uint32(r[8:]) != kind {
			break // the linker puts the relative ones first
		}
		offset, ok := place(f, at)
		if !ok || at%word != 0 {
			return fmt.Errorf("the relocation at %#x is not one of an aligned word in the file", at)
		}
		binary.LittleEndian.PutUint64(text[offset:], addend)
		addresses = append(addresses, at)
	}
	table := encode(addresses)
	done := uint64(len(addresses)) * relaSize
	if len(addresses) == 0 || uint64(len(table)) > done {
		return errors.New("it has no relocations that can be packed")
	}
	clear(relocations[:done])
	copy(relocations, table)
	if err := tag(text[dynamic.Offset:][:dynamic.Size], rela.Addr, done, uint64(len(table))); err != nil {
		return err
	}
	return shrink(text, f, ".rela.dyn", done)
}

// place is the offset in the file of the word at an address.
func place(f *elf.File, address uint64) (uint64, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address+word <= p.Vaddr+p.Filesz {
			return p.Off + address - p.Vaddr, true
		}
	}
	return 0, false
}

// encode is the table of addresses: an even number is an address, and an odd one has a bit for each of the next 63 words.
func encode(addresses []uint64) (table []byte) {
	slices.Sort(addresses)
	for len(addresses) > 0 {
		table = binary.LittleEndian.AppendUint64(table, addresses[0])
		next := addresses[0] + word
		addresses = addresses[1:]
		for {
			bits := uint64(0)
			for len(addresses) > 0 && addresses[0] < next+63*word {
				bits |= 2 << ((addresses[0] - next) / word)
				addresses = addresses[1:]
			}
			if bits == 0 {
				break
			}
			table = binary.LittleEndian.AppendUint64(table, bits|1)
			next += 63 * word
		}
	}
	return table
}

// tag takes done bytes from the relocations of the dynamic linker, which start at an address, and names the table that is there
// now.
func tag(dynamic []byte, address, done, size uint64) error {
	spare := 0
	for d := dynamic; len(d) >= dynSize; d = d[dynSize:] {
		set := func(tag, value uint64) {
			binary.LittleEndian.PutUint64(d, tag)
			binary.LittleEndian.PutUint64(d[8:], value)
		}
		value := binary.LittleEndian.Uint64(d[8:])
		switch tag := binary.LittleEndian.Uint64(d); {
		case tag == uint64(elf.DT_RELA):
			set(tag, value+done)
		case tag == uint64(elf.DT_RELASZ):
			set(tag, value-done)
		case tag == uint64(elf.DT_RELACOUNT):
			set(tagTable, address)
		case tag == uint64(elf.DT_NULL):
			if spare++; spare == 1 {
				set(tagSize, size)
			}
		}
	}
	if spare < 2 { // one has to end the list
		return errors.New("its dynamic section has no room: link it with -z spare-dynamic-tags=1")
	}
	return nil
}

// shrink takes the first done bytes from a section in the table of sections, which tools such as readelf look at.
func shrink(text []byte, f *elf.File, name string, done uint64) error {
	const headers, size = 0x28, 0x40 // where an Elf64_Ehdr has the offset of the Elf64_Shdr, and their size
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Name == name })
	header := text[binary.LittleEndian.Uint64(text[headers:])+uint64(i)*size:]
	for at, change := range map[int]uint64{0x10: done, 0x18: done, 0x20: -done} { // address, offset, size
		binary.LittleEndian.PutUint64(header[at:], binary.LittleEndian.Uint64(header[at:])+change)
	}
	return nil
}
