package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// writeOutput writes a command's output to a file, or to stdout if the path is "-" or empty. A file is replaced as a
// whole. If the path is a link, its target is replaced; a device, pipe or terminal is written to.
func writeOutput(path string, data []byte) error {
	if path == "" || path == "-" {
		_, err := os.Stdout.Write(data)
		return err
	}
	info, err := os.Stat(path)
	if err == nil {
		if out, err := os.Stdout.Stat(); err == nil && os.SameFile(info, out) {
			return writeOutput("-", data) // whoever opened stdout expects the text in this file
		}
		if !info.Mode().IsRegular() {
			return writeInto(path, data)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if path, err = target(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(dir), renameio.WithExistingPermissions())
}

func writeInto(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// target follows the links of a path, whether or not the final file exists.
func target(path string) (string, error) {
	for range 40 { // the kernel's limit
		next, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link; writing will report any other problem
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(path), next)
		}
		path = next
	}
	return "", fmt.Errorf("%s: too many links", path)
}
