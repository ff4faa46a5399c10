//go:build cgo

package gpufilter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// protection is a set of PROT_ bits.
type protection int

// From sys/mman.h.
const (
	protRead  protection = 1
	protWrite protection = 2
	protExec  protection = 4
)

// mapping is a line of /proc/self/maps.
type mapping struct {
	start, end uint64
	protection protection
}

// mappings are the mappings of a process, in ascending order.
type mappings []mapping

// parseMaps reads the text of /proc/self/maps. It ignores lines of another form.
func parseMaps(text string) mappings {
	var found mappings
	for line := range strings.Lines(text) {
		if m, ok := parseMapping(line); ok {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	return found
}

// parseMapping reads a line such as "7f0e4a000000-7f0e4a021000 rw-p 00000000 00:00 0".
func parseMapping(line string) (mapping, bool) {
	span, rest, _ := strings.Cut(line, " ")
	first, last, _ := strings.Cut(span, "-")
	start, err1 := strconv.ParseUint(first, 16, 64)
	end, err2 := strconv.ParseUint(last, 16, 64)
	if err1 != nil || err2 != nil || start >= end || len(rest) < 4 {
		return mapping{}, false
	}
	m := mapping{start: start, end: end}
	for i, c := range "rwx" {
		switch rest[i] {
		case byte(c):
			m.protection |= 1 << i
		case '-':
		default:
			return mapping{}, false
		}
	}
	return m, true
}

// at returns the protection of the page that contains addr.
func (m mappings) at(addr uint64) (protection, bool) {
	i, found := slices.BinarySearchFunc(m, addr, func(m mapping, addr uint64) int { return cmp.Compare(m.start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= m[i].end {
		return 0, false
	}
	return m[i].protection, true
}

// readable reports whether n bytes from addr on can be read.
func (m mappings) readable(addr, n uint64) bool {
	end, ok := add(addr, n)
	for ok && addr < end {
		i, found := slices.BinarySearchFunc(m, addr, func(m mapping, addr uint64) int { return cmp.Compare(m.start, addr) })
		if !found {
			i--
		}
		if i < 0 || addr >= m[i].end || m[i].protection&protRead == 0 {
			return false
		}
		addr = m[i].end
	}
	return ok
}
