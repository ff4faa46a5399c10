// Image writes the agent's image for containers, as a tarball in the layout of the OCI. It needs no daemon, and the same files give
// the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	dist := flag.String("dist", "../dist", "the `folder` with what make builds")
	version := flag.String("version", "devel", "the image's `tag`")
	output := flag.String("output", "", "the `file` to write")
	flag.Parse()
	if err := write(*dist, *version, *output); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// entry is a file, a folder or a link of a tarball.
type entry struct {
	name    string
	mode    fs.FileMode
	content []byte
	link    string
}

// collect are the files of the image.
func collect(dist string) (list []entry, err error) {
	for name, from := range map[string]string{
		"usr/bin/nvmlfab-agent": "kubernetes/nvmlfab-agent", "usr/bin/nvmlfab": "bin/nvmlfab", "usr/bin/nvmlfab-hook": "bin/nvmlfab-hook",
	} {
		text, err := os.ReadFile(filepath.Join(dist, from))
		if err != nil {
			return nil, err
		}
		list = append(list, entry{name: name, mode: 0o755, content: text})
	}
	for _, folder := range []string{"lib", "nvml"} {
		top := filepath.Join(dist, folder)
		err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			e := entry{name: path.Join("usr", folder, filepath.ToSlash(strings.TrimPrefix(file, top))), mode: 0o644}
			switch {
			case d.Type()&fs.ModeSymlink != 0:
				e.mode = fs.ModeSymlink | 0o777
				e.link, err = os.Readlink(file)
			case d.Type().IsRegular():
				var info fs.FileInfo
				if info, err = d.Info(); err != nil {
					return err
				}
				if info.Mode()&0o111 != 0 {
					e.mode = 0o755
				}
				e.content, err = os.ReadFile(file)
			default:
				err = errors.New("neither a file nor a link")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			list = append(list, e)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	list = append(list, entry{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777})
	return list, nil
}

// folders adds the folders of entries, and sorts all of them.
func folders(list []entry) []entry {
	there := map[string]bool{}
	for _, e := range list {
		there[e.name] = true
	}
	for _, e := range slices.Clone(list) {
		for dir := path.Dir(e.name); dir != "." && !there[dir]; dir = path.Dir(dir) {
			there[dir] = true
			list = append(list, entry{name: dir, mode: fs.ModeDir | 0o755})
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return list
}

func tarball(w io.Writer, list []entry) error {
	out := tar.NewWriter(w)
	for _, e := range folders(list) {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		switch {
		case e.mode.IsDir():
			h.Name, h.Typeflag = h.Name+"/", tar.TypeDir
		case e.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(e.content); err != nil {
			return err
		}
	}
	return out.Close()
}

// write writes the image.
func write(dist, version, output string) error {
	if output == "" {
		return errors.New("which file? Give --output")
	}
	list, err := collect(dist)
	if err != nil {
		return err
	}
	var plain, layer bytes.Buffer
	if err := tarball(&plain, list); err != nil {
		return err
	}
	packed := gzip.NewWriter(&layer)
	if _, err := packed.Write(plain.Bytes()); err != nil {
		return err
	}
	if err := packed.Close(); err != nil {
		return err
	}
	type object = map[string]any
	var blobs []entry
	blob := func(kind string, content []byte) object {
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs = append(blobs, entry{name: "blobs/sha256/" + sum, mode: 0o644, content: content})
		return object{"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + sum, "size": len(content)}
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{
			"Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "Entrypoint": []string{"/usr/bin/nvmlfab-agent"},
			"Labels": object{"org.opencontainers.image.title": "nvmlfab-agent", "org.opencontainers.image.version": version},
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("config.v1+json", config), "layers": []object{blob("layer.v1.tar+gzip", layer.Bytes())},
	})
	if err != nil {
		return err
	}
	named := blob("manifest.v1+json", manifest)
	// containerd takes the whole name from the first annotation, other tools the tag from the second.
	named["annotations"] = object{"io.containerd.image.name": "docker.io/library/nvmlfab-agent:" + version, "org.opencontainers.image.ref.name": version}
	named["platform"] = object{"architecture": runtime.GOARCH, "os": "linux"}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{named}})
	if err != nil {
		return err
	}
	blobs = append(blobs, entry{name: "index.json", mode: 0o644, content: index},
		entry{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	var all bytes.Buffer
	if err := tarball(&all, blobs); err != nil {
		return err
	}
	return os.WriteFile(output, all.Bytes(), 0o644)
}
