package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// The lines that describe the product in packages.
const (
	summary     = "GPUs that are not there, for programs that use NVIDIA's NVML"
	description = "nvmlfab shows unmodified programs GPUs that do not exist: a libnvidia-ml.so.1 that answers from the profile of a GPU board, and " +
		"nvmlfab run, which shows a program the files and devices of such a machine too."
	maintainer = "nvmlfab <nvmlfab@localhost>"
)

// debianVersion is a version as Debian allows it: it begins with a digit.
func debianVersion(version string) string {
	version = preRelease(strings.TrimPrefix(version, "v"))
	if version == "" || version[0] < '0' || version[0] > '9' {
		version = "0~" + version
	}
	return regexp.MustCompile(`[^A-Za-z0-9.+~-]`).ReplaceAllString(version, ".")
}

// preRelease writes 1.0.0-rc1 as 1.0.0~rc1, which comes before 1.0.0 in both worlds.
func preRelease(version string) string {
	return regexp.MustCompile(`^([0-9.]+)-([A-Za-z])`).ReplaceAllString(version, "$1~$2")
}

// writeDeb writes a package for Debian and its derivatives.
func (b *bundle) writeDeb(path string) error {
	files, err := b.installed()
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	size := 0
	for _, f := range files {
		if f.link == "" {
			fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.content), f.path)
		}
		size += len(f.content)
	}
	control := fmt.Sprintf("Package: nvmlfab\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %d\nDepends: libc6 (>= 2.28)\n"+
		"Section: devel\nPriority: optional\nDescription: %s\n %s\n", debianVersion(b.version), b.arch, maintainer, (size+1023)/1024, summary, description)
	var head, data bytes.Buffer
	if err := compressed(&head, func(w io.Writer) error {
		return writeTar(w, "./", []file{{path: "control", mode: 0o644, content: []byte(control)}, {path: "md5sums", mode: 0o644, content: sums.Bytes()}})
	}); err != nil {
		return err
	}
	// dpkg keeps folders that other packages have too, so these can all be named.
	if err := compressed(&data, func(w io.Writer) error { return writeTar(w, "./", withFolders(files)) }); err != nil {
		return err
	}
	return toFile(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
			return err
		}
		for _, member := range []struct {
			name    string
			content []byte
		}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", head.Bytes()}, {"data.tar.gz", data.Bytes()}} {
			padding := "\n"[:len(member.content)%2]
			if _, err := fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s%s", member.name, 0, 0, 0, "100644", len(member.content), member.content, padding); err != nil {
				return err
			}
		}
		return nil
	})
}
