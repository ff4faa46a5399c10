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

const (
	cacheMagic        = "glibc-ld.so.cache1.1"
	cacheLittleEndian = 2
)

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

// cacheELF are the flags of a library of this machine's 64-bit C library.
var cacheELF = map[string]uint32{"amd64": 0x0303, "arm64": 0x0a03}[runtime.GOARCH]

// Library is one that the dynamic linker's cache has.
type Library struct{ Name, Path string }

// addLibraries returns a cache in which the names lead to a folder; nil if the cache is of another kind.
func addLibraries(cache []byte, dir string, names ...string) []byte {
	if len(cache) == 0 {
		return nil
	}
	var list []Library
	for _, name := range names {
		list = append(list, Library{name, filepath.Join(dir, name)})
	}
	return AddToCache(cache, list)
}

// cached is an entry of a cache with its texts.
type cached struct {
	cacheEntry
	Library
	variant string // the kind of processor that it is for, if the cache names that
}

// Entries for certain processors have, instead of bits, the number of a name in a list at the cache's end.
const (
	cacheNamed     = 1 << 62
	cacheEnd       = 0xeaa42174 // of the part at the end
	cacheNamesKind = 1          // of the list in it
)

// readCache returns what a cache has, in its order.
func readCache(cache []byte) (list []cached, ok bool) {
	order := binary.LittleEndian
	var header cacheHeader
	start, entrySize := binary.Size(header), binary.Size(cacheEntry{})
	if !bytes.HasPrefix(cache, []byte(cacheMagic)) { // an old one in front: rare by now
		return nil, false
	}
	if _, err := binary.Decode(cache, order, &header); err != nil || len(cache)-start < int(header.Count)*entrySize {
		return nil, false
	}
	text := func(at uint32) string {
		if int64(at) >= int64(len(cache)) {
			return ""
		}
		s, _, _ := bytes.Cut(cache[at:], []byte{0})
		return string(s)
	}
	word := func(at uint32) uint32 {
		if int64(at)+4 > int64(len(cache)) {
			return 0
		}
		return order.Uint32(cache[at:])
	}
	var names []string
	if at := header.Extensions; at != 0 && word(at) == cacheEnd {
		for i := range min(word(at+4), 16) {
			if part := at + 8 + 16*i; word(part) == cacheNamesKind {
				for k := range min(word(part+12)/4, 1024) {
					names = append(names, text(word(word(part+8)+4*k)))
				}
			}
		}
	}
	for i := range int(header.Count) {
		at := cache[start+i*entrySize:]
		e := cached{cacheEntry: cacheEntry{order.Uint32(at), order.Uint32(at[4:]), order.Uint32(at[8:]), order.Uint32(at[12:]), order.Uint64(at[16:])}}
		e.Library = Library{text(e.cacheEntry.Name), text(e.cacheEntry.Path)}
		if e.Capabilities&cacheNamed != 0 {
			k := uint32(e.Capabilities)
			if k >= uint32(len(names)) {
				return nil, false
			}
			e.variant = names[k]
		}
		list = append(list, e)
	}
	return list, true
}

// AddToCache returns a cache in which the libraries are found, and none of the same names that it had before for this machine's
// 64-bit programs; nil if the cache is of another kind. An empty one becomes a cache with nothing else in it.
func AddToCache(cache []byte, libraries []Library) []byte {
	var had, list []cached
	if len(cache) > 0 {
		var ok bool
		if had, ok = readCache(cache); !ok {
			return nil
		}
	}
	known := map[string]bool{}
	for _, l := range libraries {
		known[l.Name] = true
		list = append(list, cached{cacheEntry: cacheEntry{Flags: cacheELF}, Library: l})
	}
	for _, e := range had {
		if e.Flags != cacheELF || !known[e.Library.Name] {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b cached) int {
		return cmp.Or(-CompareLibraries(a.Library.Name, b.Library.Name), cmp.Compare(b.Flags, a.Flags))
	})
	order := binary.LittleEndian
	header := cacheHeader{Count: uint32(len(list)), Flags: cacheLittleEndian}
	copy(header.Magic[:], cacheMagic)
	start := uint32(binary.Size(header) + len(list)*binary.Size(cacheEntry{}))
	var entries, texts bytes.Buffer
	add := func(text string) uint32 {
		at := start + uint32(texts.Len())
		texts.WriteString(text + "\x00")
		return at
	}
	var variants []string
	for _, l := range list {
		if l.variant != "" {
			if !slices.Contains(variants, l.variant) {
				variants = append(variants, l.variant)
			}
			l.Capabilities = l.Capabilities&^(1<<32-1) | uint64(slices.Index(variants, l.variant))
		}
		name, path := add(l.Library.Name), add(l.Library.Path)
		entries.Write(order.AppendUint64(order.AppendUint32(order.AppendUint32(order.AppendUint32(order.AppendUint32(nil,
			l.Flags), name), path), l.OS), l.Capabilities))
	}
	var end []byte
	if len(variants) > 0 {
		var at []byte
		for _, name := range variants {
			at = order.AppendUint32(at, add(name))
		}
		texts.Write(make([]byte, -(int(start)+texts.Len())&3))
		header.Extensions = start + uint32(texts.Len())
		for _, word := range []uint32{cacheEnd, 1, cacheNamesKind, 0, header.Extensions + 24, uint32(len(at))} {
			end = order.AppendUint32(end, word)
		}
		end = append(end, at...)
	}
	header.Strings = uint32(texts.Len())
	var out bytes.Buffer
	binary.Write(&out, order, header)
	out.Write(entries.Bytes())
	out.Write(texts.Bytes())
	out.Write(end)
	return out.Bytes()
}

// Cached is what a cache has, in its order; empty if it is of another kind.
func Cached(cache []byte) (list []Library) {
	entries, _ := readCache(cache)
	for _, e := range entries {
		list = append(list, e.Library)
	}
	return list
}

// CachedLibrary is the path that the dynamic linker's cache has for a library of this machine's 64-bit programs; empty if it has
// none, or cannot be read.
func CachedLibrary(name string) string {
	cache, err := os.ReadFile(cachePath)
	if err != nil {
		return ""
	}
	if start := bytes.Index(cache, []byte(cacheMagic)); start > 0 { // the old one in front
		cache = cache[start:]
	}
	list, _ := readCache(cache)
	for _, e := range list {
		if e.Flags == cacheELF && e.Capabilities == 0 && e.Library.Name == name {
			return e.Library.Path
		}
	}
	return ""
}

// CompareLibraries compares names of libraries as the dynamic linker does: runs of digits by their value, and a digit after anything else.
func CompareLibraries(a, b string) int {
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
