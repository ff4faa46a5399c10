package machine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// The dynamic linker's cache says where libraries are that are in none of its folders. Its format is that of glibc 2.2 and
// later: a header, entries sorted by name, last first, and the texts they point to. Offsets count from the start of the file.

const cacheMagic = "glibc-ld.so.cache1.1"

type cacheHeader struct {
	Magic      [len(cacheMagic)]byte
	Count      uint32
	Strings    uint32 // their length
	Flags      uint8
	_          [3]uint8
	Extensions uint32
	_          [3]uint32
}

type cacheEntry struct {
	Flags, Name, Path, OS uint32
	Capabilities          uint64
}

// cacheELF is the flag of a library of the 64-bit C library of amd64.
const cacheELF = 0x0303

// cacheELFArm is that of arm64.
const cacheELFArm = 0x0a03

// addLibraries returns a cache in which the names lead to a folder; nil if the cache is of another kind.
func addLibraries(cache []byte, dir string, names ...string) []byte {
	order := binary.LittleEndian
	var header cacheHeader
	size, entrySize := binary.Size(header), binary.Size(cacheEntry{})
	if at := bytes.Index(cache, []byte(cacheMagic)); at != 0 { // an old one in front: rare by now
		return nil
	}
	if _, err := binary.Decode(cache, order, &header); err != nil || len(cache) < size+int(header.Count)*entrySize {
		return nil
	}
	type library struct {
		cacheEntry
		name, path string
	}
	text := func(at uint32) string {
		if int(at) >= len(cache) {
			return ""
		}
		s, _, _ := bytes.Cut(cache[at:], []byte{0})
		return string(s)
	}
	var list []library
	for _, name := range names {
		list = append(list, library{cacheEntry{Flags: cacheELF}, name, filepath.Join(dir, name)})
	}
	for i := range int(header.Count) {
		at := cache[size+i*entrySize:]
		e := cacheEntry{order.Uint32(at), order.Uint32(at[4:]), order.Uint32(at[8:]), order.Uint32(at[12:]), order.Uint64(at[16:])}
		if e.Capabilities != 0 {
			return nil // of processors that only some libraries are for, listed after the texts
		}
		if name := text(e.Name); !slices.Contains(names, name) {
			list = append(list, library{e, name, text(e.Path)})
		}
	}
	slices.SortStableFunc(list, func(a, b library) int {
		return cmp.Or(-compareNames(a.name, b.name), cmp.Compare(b.Flags, a.Flags))
	})
	var entries, texts bytes.Buffer
	start := uint32(size + len(list)*entrySize)
	for _, l := range list {
		l.Name = start + uint32(texts.Len())
		texts.WriteString(l.name + "\x00")
		l.Path = start + uint32(texts.Len())
		texts.WriteString(l.path + "\x00")
		entries.Write(order.AppendUint64(order.AppendUint32(order.AppendUint32(order.AppendUint32(order.AppendUint32(nil,
			l.Flags), l.Name), l.Path), l.OS), l.Capabilities))
	}
	header.Count, header.Strings, header.Extensions = uint32(len(list)), uint32(texts.Len()), 0
	var out bytes.Buffer
	binary.Write(&out, order, header)
	out.Write(entries.Bytes())
	out.Write(texts.Bytes())
	return out.Bytes()
}

// CachedLibrary is the path that the dynamic linker's cache has for a library of this machine's 64-bit programs; empty if it has
// none, or cannot be read.
func CachedLibrary(name string) string {
	cache, err := os.ReadFile(cachePath)
	if err != nil {
		return ""
	}
	return cached(cache, name)
}

func cached(cache []byte, name string) string {
	order := binary.LittleEndian
	start := bytes.Index(cache, []byte(cacheMagic))
	var header cacheHeader
	if start < 0 {
		return ""
	}
	cache = cache[start:]
	if _, err := binary.Decode(cache, order, &header); err != nil {
		return ""
	}
	text := func(at uint32) string {
		if int64(at) >= int64(len(cache)) {
			return ""
		}
		s, _, _ := bytes.Cut(cache[at:], []byte{0})
		return string(s)
	}
	flags := map[string]uint32{"amd64": cacheELF, "arm64": cacheELFArm}[runtime.GOARCH]
	for i := range int64(header.Count) {
		var e cacheEntry
		at := int64(binary.Size(header)) + i*int64(binary.Size(e))
		if at > int64(len(cache)) {
			return ""
		}
		if _, err := binary.Decode(cache[at:], order, &e); err != nil {
			return ""
		}
		if e.Flags == flags && e.Capabilities == 0 && text(e.Name) == name {
			return text(e.Path)
		}
	}
	return ""
}

// compareNames compares as the dynamic linker does: runs of digits by their value, and a digit after anything else.
func compareNames(a, b string) int {
	digit := func(s string) bool { return s != "" && '0' <= s[0] && s[0] <= '9' }
	for a != "" {
		switch {
		case digit(a) && digit(b):
			var m, n int
			for ; digit(a); a = a[1:] {
				m = 10*m + int(a[0]-'0')
			}
			for ; digit(b); b = b[1:] {
				n = 10*n + int(b[0]-'0')
			}
			if m != n {
				return cmp.Compare(m, n)
			}
			continue
		case digit(a):
			return 1
		case digit(b):
			return -1
		case b == "" || a[0] != b[0]:
			return cmp.Compare(a, b)
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(a, b)
}

// libraryCache is the machine's cache with nvmlfab's libraries; nil if there is none, or none to be read.
func libraryCache(libraries string) []byte {
	cache, err := os.ReadFile(cachePath)
	if err != nil {
		return nil
	}
	return addLibraries(cache, libraries, "libnvidia-ml.so.1", "libnvidia-ml.so", "libcuda.so.1", "libcuda.so")
}

const cachePath = "/etc/ld.so.cache"
