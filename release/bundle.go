package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of the release, or a symbolic link if it has a target.
type file struct {
	path    string // in the release, without a slash at the beginning
	mode    int64
	content []byte
	link    string
}

// bundle is a release for one machine: its files, sorted by path.
type bundle struct {
	version, arch string
	files         []file
}

func (b *bundle) name() string { return "nvmlfab-" + b.version + "-linux-" + b.arch }

// add adds a file. One that is there already is a mistake of the caller.
func (b *bundle) add(f file) error {
	at, found := slices.BinarySearchFunc(b.files, f.path, func(f file, path string) int { return strings.Compare(f.path, path) })
	if found {
		return fmt.Errorf("%s comes twice", f.path)
	}
	b.files = slices.Insert(b.files, at, f)
	return nil
}

// addFile adds a file of this machine, executable or not.
func (b *bundle) addFile(name, from string, mode int64) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return b.add(file{path: name, mode: mode, content: content})
}

// addSums adds the file SHA256SUMS, with the hashes of all the others, for sha256sum -c.
func (b *bundle) addSums() error {
	var sums bytes.Buffer
	for _, f := range b.files {
		if f.link == "" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.content), f.path)
		}
	}
	return b.add(file{path: "SHA256SUMS", mode: 0o644, content: sums.Bytes()})
}

// withFolders are the files, and before them the folders that they are in. Those that every machine has are left out if a
// package says so.
func withFolders(files []file, shared ...string) []file {
	seen := map[string]bool{".": true}
	for _, s := range shared {
		seen[s] = true
	}
	var all []file
	for _, f := range files {
		var folders []string
		for dir := path.Dir(f.path); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			folders = append(folders, dir)
		}
		for _, dir := range slices.Backward(folders) {
			all = append(all, file{path: dir, mode: folder | 0o755})
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return all
}

// folder is the bit of a mode that says that a file is a folder.
const folder = 0o40000

// writeTar writes files as a tarball. All belong to root and have the time 0.
func writeTar(w io.Writer, prefix string, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: prefix + f.path, Mode: f.mode & 0o7777, ModTime: time.Unix(0, 0), Format: tar.FormatGNU, Typeflag: tar.TypeReg, Size: int64(len(f.content))}
		switch {
		case f.mode&folder != 0:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}

// compressed writes through gzip.
func compressed(w io.Writer, write func(io.Writer) error) error {
	z, err := gzip.NewWriterLevel(w, 7)
	if err != nil {
		return err
	}
	return errors.Join(write(z), z.Close())
}

// toFile creates a file and writes it.
func toFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (b *bundle) writeTarball(path string) error {
	return toFile(path, func(w io.Writer) error {
		return compressed(w, func(w io.Writer) error {
			root := b.name() + "/"
			return writeTar(w, "", append([]file{{path: b.name(), mode: folder | 0o755}}, under(root, withFolders(b.files))...))
		})
	})
}

// under are the files in a folder.
func under(prefix string, files []file) []file {
	files = slices.Clone(files)
	for i := range files {
		files[i].path = prefix + files[i].path
	}
	return files
}

// shared are the folders of a system that belong to no package of ours.
var shared = strings.Fields(`usr usr/bin usr/lib usr/include usr/src usr/share usr/share/man usr/share/man/man1 usr/share/doc
	usr/share/bash-completion usr/share/bash-completion/completions usr/share/zsh usr/share/zsh/vendor-completions
	usr/share/fish usr/share/fish/vendor_completions.d`)

// home is where the release lies in a system that it is installed in.
const home = "usr/lib/nvmlfab"

// places say where a package puts what is not for its own folder: the last beginning of a path applies. DKMS stands for the version
// of the kernel modules.
var places = []struct{ from, to string }{
	{"man/", "usr/share/man/"},
	{"completions/nvmlfab.bash", "usr/share/bash-completion/completions/nvmlfab"},
	{"completions/_nvmlfab", "usr/share/zsh/vendor-completions/_nvmlfab"},
	{"completions/nvmlfab.fish", "usr/share/fish/vendor_completions.d/nvmlfab.fish"},
	{"include/", "usr/include/"},
	{"kernel/", "usr/src/nvmlfab-DKMS/"},
	{"docs/", "usr/share/doc/nvmlfab/docs/"},
	{"licenses/", "usr/share/doc/nvmlfab/licenses/"},
	{"README.md", "usr/share/doc/nvmlfab/README.md"},
	{"CHANGELOG.md", "usr/share/doc/nvmlfab/CHANGELOG.md"},
	{"CONTRIBUTING.md", "usr/share/doc/nvmlfab/CONTRIBUTING.md"},
	{"SECURITY.md", "usr/share/doc/nvmlfab/SECURITY.md"},
	{"CODE_OF_CONDUCT.md", "usr/share/doc/nvmlfab/CODE_OF_CONDUCT.md"},
	{"LICENSE", "usr/share/doc/nvmlfab/copyright"},
}

// commands are the programs that a package links into /usr/bin.
var commands = []string{"nvmlfab", "vgpuctl", "mock-ib"}

// others are the programs that it does not link, and what each does: the one would be in the place of NVIDIA's, and the other is of
// use only in a staged folder, where nvmlfab stage puts it.
var others = map[string]string{
	"nvidia-imex":  "starts NVIDIA's IMEX daemon on a machine without GPUs",
	"nvmlfab-hook": "shows a container the GPUs of a staged machine",
}

// installed are the files as a package installs them. The libraries stay in the release's own folder, where the dynamic linker
// finds them only if somebody says so; the driver's, if there is one, stay what they are.
func (b *bundle) installed() ([]file, error) {
	dkms, err := b.dkmsVersion()
	if err != nil {
		return nil, err
	}
	system := bundle{version: b.version, arch: b.arch}
	for _, f := range b.files {
		if f.path == "install.sh" || f.path == "SHA256SUMS" {
			continue // the package has hashes of its own, and is removed by what installed it
		}
		to := home + "/" + f.path
		for _, p := range places {
			if rest, ok := strings.CutPrefix(f.path, p.from); ok && (rest == "" || strings.HasSuffix(p.from, "/")) {
				to = strings.Replace(p.to, "DKMS", dkms, 1) + rest
			}
		}
		f.path = to
		if err := system.add(f); err != nil {
			return nil, err
		}
	}
	for _, c := range commands {
		if err := system.add(file{path: "usr/bin/" + c, link: "../lib/nvmlfab/bin/" + c}); err != nil {
			return nil, err
		}
	}
	return system.files, nil
}
