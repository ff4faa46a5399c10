package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
)

// descriptor names a part of an image by its hash.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// writeImage writes an image for containers, as a tarball in the layout of the OCI. It holds the release and nothing else: no
// shell and no libc.
func (b *bundle) writeImage(path string) error {
	files, err := b.installed()
	if err != nil {
		return err
	}
	var plain, layer bytes.Buffer
	if err := writeTar(&plain, "", withFolders(append(files, file{path: "tmp", mode: folder | 0o1777}))); err != nil {
		return err
	}
	if err := compressed(&layer, func(w io.Writer) error { _, err := w.Write(plain.Bytes()); return err }); err != nil {
		return err
	}
	var blobs []file
	blob := func(mediaType string, content []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs = append(blobs, file{path: "blobs/sha256/" + sum, mode: 0o644, content: content})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
	}
	marshal := func(value any) []byte {
		text, e := json.Marshal(value)
		err = e
		return text
	}
	type object = map[string]any
	config := marshal(object{
		"created": "1970-01-01T00:00:00Z", "architecture": b.arch, "os": "linux",
		"config": object{
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, "Entrypoint": []string{"/usr/bin/nvmlfab"}, "Cmd": []string{"--help"},
			"Labels": object{"org.opencontainers.image.title": "nvmlfab", "org.opencontainers.image.version": b.version, "org.opencontainers.image.licenses": "Apache-2.0 AND GPL-2.0-only"},
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}},
		"history": []object{{"created": "1970-01-01T00:00:00Z", "created_by": "make release"}},
	})
	if err != nil {
		return err
	}
	manifest := marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": blob("application/vnd.oci.image.config.v1+json", config),
		"layers": []descriptor{blob("application/vnd.oci.image.layer.v1.tar+gzip", layer.Bytes())},
	})
	if err != nil {
		return err
	}
	named := blob("application/vnd.oci.image.manifest.v1+json", manifest)
	named.Annotations = map[string]string{"org.opencontainers.image.ref.name": b.version}
	named.Platform = &platform{b.arch, "linux"}
	index := marshal(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{named}})
	if err != nil {
		return err
	}
	blobs = append(blobs, file{path: "index.json", mode: 0o644, content: index},
		file{path: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return toFile(path, func(w io.Writer) error { return writeTar(w, "", withFolders(blobs)) })
}
