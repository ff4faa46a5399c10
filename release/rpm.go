package main

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// rpmArch are the names of machines in RPM.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// rpmVersion is a version as RPM allows it, without a minus.
func rpmVersion(version string) string {
	version = strings.ReplaceAll(preRelease(strings.TrimPrefix(version, "v")), "-", ".")
	return regexp.MustCompile(`[^A-Za-z0-9.+~^]`).ReplaceAllString(version, ".")
}

// The types of what a header of an RPM package holds.
const (
	rpmInt16   = 3
	rpmInt32   = 4
	rpmString  = 6
	rpmBytes   = 7
	rpmStrings = 8
	rpmI18N    = 9
)

// rpmEntry is one entry of a header.
type rpmEntry struct {
	tag, kind, count int
	data             []byte
}

// rpmHeader collects entries.
type rpmHeader struct{ entries []rpmEntry }

func (h *rpmHeader) string(tag int, value string) {
	h.entries = append(h.entries, rpmEntry{tag, rpmString, 1, []byte(value + "\x00")})
}

func (h *rpmHeader) translated(tag int, value string) {
	h.entries = append(h.entries, rpmEntry{tag, rpmI18N, 1, []byte(value + "\x00")})
}

func (h *rpmHeader) strings(tag int, values ...string) {
	h.entries = append(h.entries, rpmEntry{tag, rpmStrings, len(values), []byte(strings.Join(values, "\x00") + "\x00")})
}

func (h *rpmHeader) bytes(tag int, value []byte) {
	h.entries = append(h.entries, rpmEntry{tag, rpmBytes, len(value), value})
}

func (h *rpmHeader) int32(tag int, values ...uint32) {
	var data []byte
	for _, v := range values {
		data = binary.BigEndian.AppendUint32(data, v)
	}
	h.entries = append(h.entries, rpmEntry{tag, rpmInt32, len(values), data})
}

func (h *rpmHeader) int16(tag int, values ...uint16) {
	var data []byte
	for _, v := range values {
		data = binary.BigEndian.AppendUint16(data, v)
	}
	h.entries = append(h.entries, rpmEntry{tag, rpmInt16, len(values), data})
}

// encode is the header as it lies in the file. region is the tag that says that all of it belongs together.
func (h *rpmHeader) encode(region int) []byte {
	entries := slices.SortedFunc(slices.Values(h.entries), func(a, b rpmEntry) int { return a.tag - b.tag })
	var index, data []byte
	add := func(index []byte, tag, kind, offset, count int) []byte {
		for _, n := range []int{tag, kind, offset, count} {
			index = binary.BigEndian.AppendUint32(index, uint32(int32(n)))
		}
		return index
	}
	for _, e := range entries {
		align := map[int]int{rpmInt16: 2, rpmInt32: 4}[e.kind]
		for align > 0 && len(data)%align != 0 {
			data = append(data, 0)
		}
		index = add(index, e.tag, e.kind, len(data), e.count)
		data = append(data, e.data...)
	}
	all := len(entries) + 1
	index = append(add(nil, region, rpmBytes, len(data), 16), index...)
	data = add(data, region, rpmBytes, -16*all, 16)
	out := []byte("\x8e\xad\xe8\x01\x00\x00\x00\x00")
	out = binary.BigEndian.AppendUint32(out, uint32(all))
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	return append(append(out, index...), data...)
}

// writeRPM writes a package for Fedora, RHEL, SUSE and others that use RPM 4.14 or later.
func (b *bundle) writeRPM(path string) error {
	files, err := b.installed()
	if err != nil {
		return err
	}
	all := withFolders(files, shared...)
	var payload bytes.Buffer
	plain := 0
	if err := compressed(&payload, func(w io.Writer) (err error) { plain, err = writeCPIO(w, all); return err }); err != nil {
		return err
	}
	main := b.rpmMain(all, payload.Bytes())
	one, whole := sha1.Sum(main), sha256.Sum256(main)
	both := md5.Sum(append(slices.Clone(main), payload.Bytes()...))

	var signature rpmHeader
	signature.string(269, hex.EncodeToString(one[:]))
	signature.string(273, hex.EncodeToString(whole[:]))
	signature.int32(1000, uint32(len(main)+payload.Len()))
	signature.bytes(1004, both[:])
	signature.int32(1007, uint32(plain))
	head := signature.encode(62)
	for len(head)%8 != 0 {
		head = append(head, 0)
	}

	lead := make([]byte, 96)
	copy(lead, "\xed\xab\xee\xdb\x03")
	lead[9] = map[string]byte{"amd64": 1, "arm64": 19}[b.arch]
	copy(lead[10:75], "nvmlfab-"+rpmVersion(b.version)+"-1")
	lead[77], lead[79] = 1, 5 // Linux, and a signature that is a header
	return toFile(path, func(w io.Writer) error {
		for _, part := range [][]byte{lead, head, main, payload.Bytes()} {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
	})
}

// rpmMain is the header that describes the package and its files.
func (b *bundle) rpmMain(files []file, payload []byte) []byte {
	const (
		equal = 0x08
		upTo  = 0x02 | equal
		rpm   = 1 << 24 // a feature of RPM itself
	)
	var h rpmHeader
	var sizes, times, flags, verify, devices, inodes, folders []uint32
	var modes, special []uint16
	var digests, links, users, languages, bases, dirs []string
	total := 0
	for i, f := range files {
		mode, digest, link := uint16(0o100000|f.mode), "", f.link
		size := len(f.content)
		switch {
		case f.mode&folder != 0:
			mode, size = uint16(f.mode), 4096
		case f.link != "":
			mode, size = 0o120777, len(f.link)
		default:
			digest = fmt.Sprintf("%x", sha256.Sum256(f.content))
		}
		total += size
		dir := "/" + path.Dir(f.path) + "/"
		at := slices.Index(dirs, dir)
		if at < 0 {
			at = len(dirs)
			dirs = append(dirs, dir)
		}
		flag := uint32(0)
		if strings.HasPrefix(f.path, "usr/share/doc/") || strings.HasPrefix(f.path, "usr/share/man/") {
			flag = 2 // documentation
		}
		sizes, times, flags, verify = append(sizes, uint32(size)), append(times, 0), append(flags, flag), append(verify, 0xffffffff)
		devices, inodes, folders = append(devices, 1), append(inodes, uint32(i+1)), append(folders, uint32(at))
		modes, special = append(modes, mode), append(special, 0)
		digests, links, users, languages, bases = append(digests, digest), append(links, link), append(users, "root"), append(languages, ""), append(bases, path.Base(f.path))
	}
	version := rpmVersion(b.version)
	h.strings(100, "C")
	h.string(1000, "nvmlfab")
	h.string(1001, version)
	h.string(1002, "1")
	h.translated(1004, summary)
	h.translated(1005, description)
	h.int32(1006, 0)
	h.string(1007, "localhost")
	h.int32(1009, uint32(total))
	h.string(1014, "Apache-2.0 AND GPL-2.0-only")
	h.translated(1016, "Development/Tools")
	h.string(1021, "linux")
	h.string(1022, rpmArch[b.arch])
	h.int32(1028, sizes...)
	h.int16(1030, modes...)
	h.int16(1033, special...)
	h.int32(1034, times...)
	h.strings(1035, digests...)
	h.strings(1036, links...)
	h.int32(1037, flags...)
	h.strings(1039, users...)
	h.strings(1040, users...)
	h.string(1044, "nvmlfab-"+version+"-1.src.rpm")
	h.int32(1045, verify...)
	h.strings(1047, "nvmlfab")
	h.int32(1048, 0, rpm|upTo, rpm|upTo, rpm|upTo)
	h.strings(1049, "libc.so.6(GLIBC_2.28)(64bit)", "rpmlib(CompressedFileNames)", "rpmlib(FileDigests)", "rpmlib(PayloadFilesHavePrefix)")
	h.strings(1050, "", "3.0.4-1", "4.6.0-1", "4.0-1")
	h.string(1064, "4.14.0")
	h.int32(1095, devices...)
	h.int32(1096, inodes...)
	h.strings(1097, languages...)
	h.int32(1112, equal)
	h.strings(1113, version+"-1")
	h.int32(1116, folders...)
	h.strings(1117, bases...)
	h.strings(1118, dirs...)
	h.string(1124, "cpio")
	h.string(1125, "gzip")
	h.string(1126, "7")
	h.int32(5011, 8) // SHA-256
	h.strings(5092, fmt.Sprintf("%x", sha256.Sum256(payload)))
	h.int32(5093, 8)
	return h.encode(63)
}

// writeCPIO writes files as an archive of cpio, in its format newc, and returns how long it is.
func writeCPIO(w io.Writer, files []file) (size int, err error) {
	entry := func(name string, inode, mode, links int, content []byte) error {
		var out bytes.Buffer
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		out.Write(make([]byte, -out.Len()&3))
		out.Write(content)
		out.Write(make([]byte, -out.Len()&3))
		size += out.Len()
		_, err := w.Write(out.Bytes())
		return err
	}
	for i, f := range files {
		mode, links, content := 0o100000|int(f.mode), 1, f.content
		switch {
		case f.mode&folder != 0:
			mode, links = int(f.mode), 2
		case f.link != "":
			mode, content = 0o120777, []byte(f.link)
		}
		if err := entry("./"+f.path, i+1, mode, links, content); err != nil {
			return size, err
		}
	}
	err = entry("TRAILER!!!", 0, 0, 1, nil)
	return size, err
}
