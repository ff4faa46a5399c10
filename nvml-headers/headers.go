// Package headers knows the versions of nvml.h and gets them from the Go module cache. The headers are NVIDIA's text,
// so they are fetched and checked but never committed.
package headers

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Module is the Go module whose releases carry the headers.
const Module = "github.com/NVIDIA/go-nvml"

// Internal declares, in C, the functions that libnvidia-ml.so exports and no nvml.h declares. It is read after every
// header.
//
//go:embed internal.h
var Internal []byte

// Slots declares, as C, the entries of nvidia-smi's table of unnamed functions. It is read once, after the newest header.
//
//go:embed slots.h
var Slots []byte

//go:embed versions.yaml
var versionsYAML []byte

// Version is one entry of versions.yaml.
type Version struct {
	NVML   string `yaml:"nvml"`
	Module string `yaml:"module"`
	SHA256 string `yaml:"sha256"`
	Driver int    `yaml:"driver"`

	// Number is the version as an integer, in the order of versions: 12004127 for 12.4.127.
	Number int `yaml:"-"`
}

// Versions lists every known version, oldest first.
func Versions() ([]Version, error) {
	var list []Version
	dec := yaml.NewDecoder(bytes.NewReader(versionsYAML))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil {
		return nil, fmt.Errorf("nvml-headers/versions.yaml: %w", err)
	}
	last := 0
	for i := range list {
		n, err := number(list[i].NVML)
		if err == nil && n <= last {
			err = fmt.Errorf("NVML %s stands after a younger version", list[i].NVML)
		}
		if err != nil {
			return nil, fmt.Errorf("nvml-headers/versions.yaml: %w", err)
		}
		list[i].Number, last = n, n
	}
	return list, nil
}

// number turns MAJOR.MINOR[.BUILD] into an integer.
func number(nvml string) (int, error) {
	parts := append(strings.Split(nvml, "."), "0")
	if len(parts) != 3 && len(parts) != 4 {
		return 0, fmt.Errorf("NVML version %q is not MAJOR.MINOR or MAJOR.MINOR.BUILD", nvml)
	}
	n := 0
	for _, part := range parts[:3] {
		k, err := strconv.Atoi(part)
		if err != nil || k < 0 || k > 999 {
			return 0, fmt.Errorf("NVML version %q: %q is not a number from 0 to 999", nvml, part)
		}
		n = n*1000 + k
	}
	return n, nil
}

// Find returns the version that prefix names: a whole version, or an unambiguous beginning of one up to a dot. An empty
// prefix names the newest version.
func Find(prefix string) (Version, error) {
	list, err := Versions()
	if err != nil {
		return Version{}, err
	}
	if prefix == "" {
		return list[len(list)-1], nil
	}
	var names, found []string
	var match Version
	for _, v := range list {
		names = append(names, v.NVML)
		if v.NVML == prefix {
			return v, nil
		}
		if strings.HasPrefix(v.NVML, strings.TrimSuffix(prefix, ".")+".") {
			found = append(found, v.NVML)
			match = v
		}
	}
	switch len(found) {
	case 1:
		return match, nil
	case 0:
		return Version{}, fmt.Errorf("no NVML version %q; there are %s", prefix, strings.Join(names, ", "))
	}
	return Version{}, fmt.Errorf("NVML version %q is ambiguous; name one of %s", prefix, strings.Join(found, ", "))
}

// Path returns the path of v's nvml.h in the module cache. It fetches the module if necessary.
func (v Version) Path() (string, error) {
	path, err := v.fetch()
	if err != nil {
		return "", fmt.Errorf("NVML %s: %w", v.NVML, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("NVML %s: %w", v.NVML, err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != v.SHA256 {
		return "", fmt.Errorf("NVML %s: %s has sha256 %x, versions.yaml wants %s; run `go clean -modcache` if the cache is damaged",
			v.NVML, path, sum, v.SHA256)
	}
	return path, nil
}

// fetch finds the header in the module cache, or downloads it with the go command.
func (v Version) fetch() (string, error) {
	dir, err := cached(v.Module)
	if err != nil || dir == "" {
		if dir, err = download(v.Module); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "pkg", "nvml", "nvml.h"), nil
}

// cached is the directory of a module in the cache, or "". It is faster than the go command, which would start for each
// version.
func cached(version string) (string, error) {
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		out, err := exec.Command("go", "env", "GOMODCACHE").Output()
		if err != nil {
			return "", fmt.Errorf("go env GOMODCACHE: %w", err)
		}
		cache = strings.TrimSpace(string(out))
	}
	dir := filepath.Join(cache, "github.com", "!n!v!i!d!i!a", "go-nvml@"+version)
	if _, err := os.Stat(filepath.Join(dir, "pkg", "nvml", "nvml.h")); err != nil {
		return "", nil
	}
	return dir, nil
}

func download(version string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", Module+"@"+version)
	cmd.Dir = os.TempDir() // outside any module, so that no go.sum changes
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	var result struct{ Dir, Error string }
	if err := json.Unmarshal(out, &result); err != nil || result.Error != "" || runErr != nil {
		why := slices.DeleteFunc([]string{result.Error, strings.TrimSpace(stderr.String())}, func(s string) bool { return s == "" })
		return "", fmt.Errorf("go mod download %s@%s: %s; it needs a module proxy or a filled module cache",
			Module, version, strings.Join(why, "; "))
	}
	return result.Dir, nil
}
