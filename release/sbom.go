package main

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// goModule is a Go module that is in a binary of the release.
type goModule struct {
	Path, Version string
}

// modules are the modules that were built into the release's Go binaries, by path, and for each binary their paths.
func (b *bundle) modules() (map[string]goModule, map[string][]string, error) {
	all, in := map[string]goModule{}, map[string][]string{}
	for _, f := range b.files {
		if f.link != "" || !bytes.HasPrefix(f.content, []byte("\x7fELF")) {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader(f.content))
		if err != nil {
			continue // not a Go program
		}
		add := func(m goModule) {
			all[m.Path] = m
			in[f.path] = append(in[f.path], m.Path)
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), "-X:") // without the experiments
		add(goModule{Path: "std", Version: version})
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = &debug.Module{Path: d.Path, Version: d.Replace.Version}
			}
			add(goModule{Path: d.Path, Version: d.Version})
		}
	}
	if len(in) < 4 {
		return nil, nil, fmt.Errorf("only %d programs say which modules they were built from", len(in))
	}
	return all, in, nil
}

// source is the folder with a module's source.
func (m goModule) source() (string, error) {
	if m.Path == "std" {
		out, err := output("go", "env", "GOROOT")
		return strings.TrimSpace(out), err
	}
	out, err := output("go", "list", "-m", "-f", "{{.Dir}}", m.Path)
	return strings.TrimSpace(out), err
}

// addLicences adds the licences of the modules, and the software bill of materials that names the modules.
func (b *bundle) addLicences(f flags) error {
	all, in, err := b.modules()
	if err != nil {
		return err
	}
	licences := map[string]string{}
	for path, m := range all {
		dir, err := m.source()
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("%s has no source here: %w", path, err)
		}
		name := path
		if path == "std" {
			name = "go"
		}
		for _, e := range entries {
			upper := strings.ToUpper(e.Name())
			if e.IsDir() || !strings.HasPrefix(upper, "LICENSE") && !strings.HasPrefix(upper, "COPYING") && !strings.HasPrefix(upper, "NOTICE") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			if id := licence(string(text)); id != "" && !strings.HasPrefix(upper, "NOTICE") {
				licences[path] = id
			}
			if err := b.add(file{path: "licenses/" + name + "/" + e.Name(), mode: 0o644, content: text}); err != nil {
				return err
			}
		}
		if licences[path] == "" {
			return fmt.Errorf("%s: no licence that is known here in %s", path, dir)
		}
	}
	text, err := b.sbom(all, in, licences)
	return errors.Join(err, b.add(file{path: "sbom.spdx.json", mode: 0o644, content: text}))
}

// licence is the SPDX identifier of a licence's text; empty if it is none of those that occur.
func licence(text string) string {
	for _, known := range []struct{ sign, id string }{
		{"Apache License\n", "Apache-2.0"},
		{"This project is covered by two different licenses: MIT and Apache", "MIT AND Apache-2.0"},
		{"Permission is hereby granted, free of charge", "MIT"},
		{"Neither the name of", "BSD-3-Clause"},
		{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
	} {
		if strings.Contains(text, known.sign) {
			return known.id
		}
	}
	return ""
}

// The parts of an SPDX document, version 2.3.
type (
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxPackage struct {
		ID            string                `json:"SPDXID"`
		Name          string                `json:"name"`
		Version       string                `json:"versionInfo"`
		Download      string                `json:"downloadLocation"`
		FilesAnalyzed bool                  `json:"filesAnalyzed"`
		Code          *spdxVerificationCode `json:"packageVerificationCode,omitempty"`
		Concluded     string                `json:"licenseConcluded"`
		Declared      string                `json:"licenseDeclared"`
		Copyright     string                `json:"copyrightText"`
		References    []spdxReference       `json:"externalRefs,omitempty"`
	}
	spdxVerificationCode struct {
		Value string `json:"packageVerificationCodeValue"`
	}
	spdxFile struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"fileName"`
		Checksums []spdxChecksum `json:"checksums"`
		Concluded string         `json:"licenseConcluded"`
		InFile    []string       `json:"licenseInfoInFiles"`
		Copyright string         `json:"copyrightText"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// sbom is the release as an SPDX document: its files, the Go modules in them, and which are in which. Its time is 0, so that it is
// the same whenever it is made.
func (b *bundle) sbom(all map[string]goModule, in map[string][]string, licences map[string]string) ([]byte, error) {
	const none = "NOASSERTION"
	document := struct {
		Version   string `json:"spdxVersion"`
		Licence   string `json:"dataLicense"`
		ID        string `json:"SPDXID"`
		Name      string `json:"name"`
		Namespace string `json:"documentNamespace"`
		Creation  struct {
			Created  string   `json:"created"`
			Creators []string `json:"creators"`
		} `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}{Version: "SPDX-2.3", Licence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: b.name()}
	document.Creation.Created = "1970-01-01T00:00:00Z"
	document.Creation.Creators = []string{"Tool: nvmlfab-release"}
	relate := func(element, kind, related string) {
		document.Relationships = append(document.Relationships, spdxRelationship{element, kind, related})
	}

	var hashes []string
	content := sha256.New()
	ids := map[string]string{}
	for i, f := range b.files {
		if f.link != "" {
			continue
		}
		ids[f.path] = fmt.Sprintf("SPDXRef-File-%d", i)
		one := sha1.Sum(f.content)
		sum := sha256.Sum256(f.content)
		hashes = append(hashes, hex.EncodeToString(one[:]))
		fmt.Fprintf(content, "%s %x\n", f.path, sum)
		licence := "Apache-2.0"
		switch {
		case strings.HasPrefix(f.path, "licenses/"):
			licence = none
		case strings.HasPrefix(f.path, "kernel/"), f.path == "include/nvmlfab/COPYING":
			licence = declared(f.content, "GPL-2.0-only")
		case strings.HasPrefix(f.path, "include/nvmlfab/"):
			licence = declared(f.content, licence)
		}
		document.Files = append(document.Files, spdxFile{ID: ids[f.path], Name: "./" + f.path, Concluded: licence, InFile: []string{licence}, Copyright: none,
			Checksums: []spdxChecksum{{"SHA1", hex.EncodeToString(one[:])}, {"SHA256", hex.EncodeToString(sum[:])}}})
	}
	slices.Sort(hashes)
	code := sha1.Sum([]byte(strings.Join(hashes, "")))
	document.Namespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", b.name(), content.Sum(nil)[:16])

	const product = "SPDXRef-Package-nvmlfab"
	document.Packages = append(document.Packages, spdxPackage{ID: product, Name: "nvmlfab", Version: b.version, Download: none, FilesAnalyzed: true,
		Code: &spdxVerificationCode{hex.EncodeToString(code[:])}, Concluded: "Apache-2.0 AND GPL-2.0-only", Declared: "Apache-2.0 AND GPL-2.0-only", Copyright: none})
	relate(document.ID, "DESCRIBES", product)
	for _, f := range document.Files {
		relate(product, "CONTAINS", f.ID)
	}
	moduleIDs := map[string]string{}
	for i, path := range slices.Sorted(maps.Keys(all)) {
		m := all[path]
		moduleIDs[path] = fmt.Sprintf("SPDXRef-Module-%d", i)
		p := spdxPackage{ID: moduleIDs[path], Name: path, Version: m.Version, Download: none, Concluded: licences[path], Declared: licences[path], Copyright: none,
			References: []spdxReference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + m.Version}}}
		document.Packages = append(document.Packages, p)
	}
	for _, path := range slices.Sorted(maps.Keys(in)) {
		for _, m := range in[path] {
			relate(ids[path], "STATIC_LINK", moduleIDs[m])
		}
	}
	text, err := json.MarshalIndent(document, "", " ")
	return append(text, '\n'), err
}

// declared is the licence that a source names in its first lines, else the one given.
func declared(content []byte, otherwise string) string {
	head := string(content[:min(400, len(content))])
	_, after, found := strings.Cut(head, "SPDX-License-Identifier:")
	if !found {
		return otherwise
	}
	line, _, _ := strings.Cut(after, "\n")
	return strings.Trim(strings.TrimSuffix(strings.TrimSpace(line), "*/"), " ()")
}
