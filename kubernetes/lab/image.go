package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Image is a container image of one layer, which starts empty.
type Image struct {
	// Name is the whole reference, such as example.org/name:tag.
	Name       string
	Entrypoint []string
	Env        []string
	files      map[string]entry // by path without a leading slash
}

// entry is what one path of an image has: the content of a file of this machine, a link, or a text.
type entry struct {
	from, link string
	text       []byte
	mode       int64
	folder     bool
}

// NewImage returns an image with the folders that programs expect.
func NewImage(name string, entrypoint ...string) *Image {
	m := &Image{Name: name, Entrypoint: entrypoint, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, files: map[string]entry{}}
	for _, dir := range []string{"tmp", "proc", "sys", "dev", "run", "var/run", "etc"} {
		m.put(dir, entry{folder: true, mode: 0o755})
	}
	m.put("tmp", entry{folder: true, mode: 0o1777})
	return m
}

func (m *Image) put(name string, e entry) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := m.files[dir]; !ok {
			m.files[dir] = entry{folder: true, mode: 0o755}
		}
	}
	m.files[name] = e
}

// Add puts a file of this machine at a path.
func (m *Image) Add(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	m.put(to, entry{from: from, mode: int64(info.Mode().Perm())})
	return nil
}

// Text puts a file with a text at a path.
func (m *Image) Text(to, text string) { m.put(to, entry{text: []byte(text), mode: 0o644}) }

// Link puts a symbolic link at a path.
func (m *Image) Link(to, target string) { m.put(to, entry{link: target, mode: 0o777}) }

// Program puts a program of this machine at a path, with its interpreter and the libraries that it is linked with, which are
// looked for in more folders first and then where this machine's linker looks.
func (m *Image) Program(to, from string, more ...string) error {
	if err := m.Add(to, from); err != nil {
		return err
	}
	return m.Needs(from, more...)
}

// Needs adds what an ELF file of this machine is linked with, for a file that the image gets from elsewhere.
func (m *Image) Needs(name string, more ...string) error {
	f, err := elf.Open(name)
	if errors.As(err, new(*elf.FormatError)) {
		return nil // a script
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		interpreter := string(bytes.TrimRight(text, "\x00"))
		if err := m.Add(interpreter, interpreter); err != nil {
			return err
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, library := range libraries {
		to := path.Join(libraryDir, library)
		if _, ok := m.files[to]; ok {
			continue
		}
		from, err := findLibrary(library, more)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := m.Add(to, from); err != nil {
			return err
		}
		if err := m.Needs(from, more...); err != nil {
			return err
		}
	}
	return nil
}

// libraryDir is where the dynamic linker of Debian looks without a cache.
var libraryDir = "usr/lib/" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"

// findLibrary returns the path of a library in the folders, or where the machine's linker finds it.
func findLibrary(name string, more []string) (string, error) {
	for _, dir := range append(more[:len(more):len(more)], "/"+libraryDir, "/lib/"+path.Base(libraryDir), "/usr/lib64", "/lib64", "/usr/lib", "/lib") {
		if p := filepath.Join(dir, name); exists(p) {
			return p, nil
		}
	}
	out, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil {
		return "", fmt.Errorf("ldconfig: %w", err)
	}
	if found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + ` .*=> (\S+)$`).FindSubmatch(out); found != nil {
		return string(found[1]), nil
	}
	return "", fmt.Errorf("library %q is not on this machine", name)
}

// Tree puts a folder of this machine with all below it at a path.
func (m *Image) Tree(to, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := path.Join(to, rel)
		switch {
		case d.IsDir():
			m.put(name, entry{folder: true, mode: int64(info.Mode().Perm())})
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			m.Link(name, target)
		case d.Type().IsRegular():
			return m.Add(name, p)
		}
		return nil
	})
}

// Write writes the image to a file as an OCI archive, which ctr and other tools import.
func (m *Image) Write(file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	layer, err := os.CreateTemp(filepath.Dir(file), "layer-*")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	sum := sha256.New()
	size, err := m.layer(io.MultiWriter(layer, sum))
	if err != nil {
		return fmt.Errorf("image %q: %w", m.Name, err)
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest := fmt.Sprintf("sha256:%x", sum.Sum(nil))

	type object = map[string]any
	var blobs [][]byte
	blob := func(mediaType string, value any) object {
		text, e := json.Marshal(value)
		err = errors.Join(err, e)
		blobs = append(blobs, text)
		return object{"mediaType": mediaType, "digest": fmt.Sprintf("sha256:%x", sha256.Sum256(text)), "size": len(text)}
	}
	config := blob("application/vnd.oci.image.config.v1+json", object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": m.Entrypoint, "Env": m.Env, "WorkingDir": "/"},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest}},
	})
	manifest := blob("application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []object{{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": size}},
	})
	manifest["annotations"] = map[string]string{"io.containerd.image.name": m.Name, "org.opencontainers.image.ref.name": m.Name}
	index, e := json.Marshal(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{manifest}})
	if err = errors.Join(err, e); err != nil {
		return err
	}

	w := tar.NewWriter(out)
	write := func(name string, size int64, content io.Reader) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(w, content)
		return err
	}
	text := func(name string, text []byte) error { return write(name, int64(len(text)), bytes.NewReader(text)) }
	errs := []error{text("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), text("index.json", index)}
	for _, b := range blobs {
		errs = append(errs, text(fmt.Sprintf("blobs/sha256/%x", sha256.Sum256(b)), b))
	}
	errs = append(errs, write("blobs/sha256/"+strings.TrimPrefix(digest, "sha256:"), size, layer), w.Close())
	return errors.Join(errs...)
}

// layer writes the files as a tar and returns its size.
func (m *Image) layer(to io.Writer) (int64, error) {
	count := &counter{to: to}
	w := tar.NewWriter(count)
	var names []string
	for name := range m.files {
		names = append(names, name)
	}
	slices.Sort(names) // a folder comes before what is in it
	for _, name := range names {
		e := m.files[name]
		h := &tar.Header{Name: name, Mode: e.mode, Typeflag: tar.TypeReg, Size: int64(len(e.text)), Format: tar.FormatPAX}
		content := io.Reader(bytes.NewReader(e.text))
		switch {
		case e.folder:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		case e.from != "":
			f, err := os.Open(e.from)
			if err != nil {
				return 0, err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return 0, err
			}
			h.Size, content = info.Size(), f
		}
		if err := w.WriteHeader(h); err != nil {
			return 0, err
		}
		if _, err := io.Copy(w, content); err != nil {
			return 0, err
		}
	}
	err := w.Close()
	return count.n, err
}

type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
