package container

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/machine"
	"golang.org/x/sys/unix"
)

// Files by which dynamic linkers find libraries.
const (
	cacheFile  = "etc/ld.so.cache"
	configFile = "etc/ld.so.conf"
	configs    = "etc/ld.so.conf.d"
	ours       = configs + "/00-nvmlfab.conf"
	compat     = configs + "/00-compat-nvmlfab.conf"
)

// UpdateCache lets the container's dynamic linker find the libraries in folders of the container, as ldconfig would: each gets a
// link of the name that programs look for, and an entry in the linker's cache. No program of the container's or this machine's is
// started for it. An ldconfig that runs in the container later finds the folders too.
func (c *Container) UpdateCache(folders ...string) error {
	var all []string
	if text, err := c.read(compat); err == nil { // EnableCompat's go first
		all = strings.Fields(string(text))
	}
	for _, folder := range folders {
		if folder = path.Join("/", folder); !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	}
	folders = all
	cache, err := c.read(cacheFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := map[string]bool{}
	for _, l := range machine.Cached(cache) {
		known[l.Path] = true
	}
	var found []machine.Library
	for _, folder := range folders {
		libraries, err := c.libraries(folder, known)
		if err != nil {
			return err
		}
		for _, l := range libraries {
			if !slices.ContainsFunc(found, func(other machine.Library) bool { return other.Name == l.Name }) {
				found = append(found, l)
			}
		}
	}
	if len(found) > 0 {
		text := machine.AddToCache(cache, found)
		if text == nil {
			text = machine.AddToCache(nil, found) // the linker could not read the other one either
		}
		if err := c.write(cacheFile, 0o644, text); err != nil {
			return err
		}
	}
	if err := c.configure(folders); err != nil {
		return err
	}
	return c.configureMusl(folders)
}

// libraries are the libraries for this machine's programs in a folder of the container, by the names that programs look for, under
// which the folder then has them. It leaves out those that a cache knows. A folder that does not exist has none.
func (c *Container) libraries(folder string, known map[string]bool) ([]machine.Library, error) {
	dir, err := c.open(folder, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dir), folder)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	best, had := map[string]string{}, map[string]string{} // files by the name that programs look for, and those that the cache knows
	links := map[string]bool{}
	for _, e := range entries {
		switch name := e.Name(); {
		case e.Type()&fs.ModeSymlink != 0:
			links[name] = true
			if target, err := readlink(dir, name); err == nil && known[path.Join(folder, name)] {
				best[name], had[name] = target, target
			}
		case known[path.Join(folder, name)]:
			best[name], had[name] = name, name
		}
	}
	served := map[string]bool{}
	for _, file := range had {
		served[file] = true
	}
	present := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		present[name] = true
		if !e.Type().IsRegular() || !strings.HasPrefix(name, "lib") || !strings.Contains(name, ".so") || served[name] {
			continue
		}
		if soname := soname(dir, name); soname != "" && (best[soname] == "" || machine.CompareLibraries(best[soname], name) < 0) {
			best[soname] = name
		}
	}
	var list []machine.Library
	for soname, name := range best {
		if had[soname] == name {
			continue
		}
		if soname != name && (links[soname] || !present[soname]) {
			if err := relink(dir, soname, name); err != nil {
				return nil, &fs.PathError{Op: "link", Path: path.Join(c.Root, folder, soname), Err: err}
			}
		}
		list = append(list, machine.Library{Name: soname, Path: path.Join(folder, soname)})
	}
	slices.SortFunc(list, func(a, b machine.Library) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// elfMachine is this machine's.
var elfMachine = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]

// soname is the name that programs look for a library by; empty if the file is none for this machine's programs.
func soname(dir int, name string) string {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	library, err := elf.NewFile(f)
	if err != nil || library.Class != elf.ELFCLASS64 || library.Machine != elfMachine || library.Type != elf.ET_DYN {
		return ""
	}
	names, err := library.DynString(elf.DT_SONAME)
	if err != nil || len(names) == 0 || strings.Contains(names[0], "/") {
		return ""
	}
	return names[0]
}

// configure writes the folders into the configuration of ldconfig, and that itself if the container has none.
func (c *Container) configure(folders []string) error {
	if len(folders) == 0 {
		return nil
	}
	if err := c.write(ours, 0o644, lines(folders)); err != nil {
		return err
	}
	if _, err := c.read(configFile); errors.Is(err, fs.ErrNotExist) {
		return c.write(configFile, 0o644, []byte("include /"+configs+"/*.conf\n"))
	}
	return nil
}

func lines(list []string) []byte { return []byte(strings.Join(list, "\n") + "\n") }

// configureMusl adds the folders to those that the dynamic linker of musl searches, if it is the container's. It has no cache.
func (c *Container) configureMusl(folders []string) error {
	if _, err := c.read("etc/alpine-release"); err != nil {
		return nil
	}
	name := "etc/ld-musl-" + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".path"
	list := []string{"/lib", "/usr/local/lib", "/usr/lib"} // what it searches without such a file
	if text, err := c.read(name); err == nil {
		list = strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == ':' })
	}
	had := len(list)
	for _, folder := range folders {
		if !slices.Contains(list, folder) {
			list = append(list, folder)
		}
	}
	if len(list) == had {
		return nil
	}
	return c.write(name, 0o644, lines(list))
}

// CompatFolder is where images have the libraries of a newer driver.
const CompatFolder = "/usr/local/cuda/compat"

// EnableCompat lets UpdateCache put a folder's libraries of a newer driver before those of the machine's driver, if the folder has
// some that go with the machine's driver. The machine is known by its driver's version or by CUDA's; either may be empty.
func (c *Container) EnableCompat(folder, driver, cuda string) error {
	if driver == "" && cuda == "" {
		return nil
	}
	dir, err := c.open(folder, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil { // the image has none
		return nil
	}
	f := os.NewFile(uintptr(dir), folder)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		match, _ := path.Match("libcuda.so.*.*", e.Name())
		return !match || !e.Type().IsRegular()
	})
	if len(entries) != 1 { // none, or nobody can say which
		return nil
	}
	name := entries[0].Name()
	note, err := c.compatNote(path.Join(folder, name))
	if err != nil || !note.goesWith(version(strings.TrimPrefix(name, "libcuda.so.")), version(driver), version(cuda)) {
		return err
	}
	return c.write(compat, 0o644, lines([]string{path.Join("/", folder)}))
}

// note says in a libcuda which drivers and which CUDA it goes with.
type note struct {
	CUDA   string `json:"CUDA Version"`
	Driver []int
}

// compatNote reads the note of a libcuda; nil if it has none.
func (c *Container) compatNote(name string) (*note, error) {
	fd, err := c.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	library, err := elf.NewFile(f)
	if err != nil {
		return nil, nil
	}
	section := library.Section(".note.cuda.fwd_compatibility")
	if section == nil || section.Type != elf.SHT_NOTE {
		return nil, nil
	}
	data, err := section.Data()
	if err != nil || len(data) < 12 {
		return nil, err
	}
	// Three numbers, and two texts: the name, to whose end the section's alignment adds, and the description.
	order, align := library.ByteOrder, max(section.Addralign, 1)
	length, size := uint64(order.Uint32(data)), uint64(order.Uint32(data[4:]))
	at := 12 + (length+align-1)/align*align
	if at+size > uint64(len(data)) || strings.TrimRight(string(data[12:12+length]), "\x00") != "NVIDIA Corporation" {
		return nil, nil
	}
	var n note
	if json.Unmarshal([]byte(strings.Trim(string(data[at:at+size]), "\x00")), &n) != nil {
		return nil, nil
	}
	return &n, nil
}

// goesWith says whether libraries of a version take the place of those of the machine's driver. Without a note it is those of a
// later branch, and nobody knows for a machine that is known by CUDA's version.
func (n *note) goesWith(libraries, driver, cuda []int) bool {
	switch {
	case n == nil && cuda != nil:
		return false
	case n == nil:
		return libraries != nil && driver != nil && driver[0] < libraries[0]
	case libraries == nil || driver == nil:
		return cuda != nil && slices.Compare(version(n.CUDA), cuda) > 0
	}
	return slices.Contains(n.Driver, driver[0]) && slices.Compare(libraries, driver) > 0
}

// version is a version's numbers; nil if it has others than numbers.
func version(text string) (numbers []int) {
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		numbers = append(numbers, n)
	}
	return numbers
}
