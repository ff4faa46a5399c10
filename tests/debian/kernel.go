package debian

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kernel is Debian's kernel for virtual machines, with what is needed to build modules for it.
type Kernel struct {
	Release string // as uname -r says
	Headers string // for building modules: make -C HEADERS M=FOLDER
	Image   string // the kernel as an uncompressed ELF file, which qemu starts faster
}

// series are the kernels that Debian serves, oldest first, and where. Debian keeps one or two kernels in a backports
// suite and removes the older ones: then the line here has to go. The tools for building modules are programs of the
// suite, and run with its own libraries where those are named here, since this machine's libc may be older.
var series = []struct {
	number, suite string
	libraries     []string
}{
	{"6.1", "bookworm", nil},
	{"6.12", "bookworm-backports", nil},
	{"7.2", "trixie-backports", trixieLibraries},
	{"7.3", "trixie-backports", trixieLibraries},
}

var trixieLibraries = []string{"libc6", "libelf1t64", "zlib1g", "libzstd1"}

// DefaultKernel is the series that is meant if nobody names one.
const DefaultKernel = "6.1"

// Kernels lists the series that FetchKernel accepts, oldest first.
func Kernels() []string {
	var numbers []string
	for _, s := range series {
		numbers = append(numbers, s.number)
	}
	return numbers
}

func kernelEntry(number string) string { return "linux-cloud-" + number }

func init() {
	for _, s := range series {
		// The first package stands for the kernel; kernelPackages chooses those that are fetched.
		entries[kernelEntry(s.number)] = entry{s.suite, tools, s.number, nil}
		adapters[kernelEntry(s.number)] = adapter{
			func(apt string) ([]string, error) {
				packages, err := kernelPackages(apt, s.number)
				return append(packages, s.libraries...), err
			}, finishKernel,
		}
	}
}

// FetchKernel returns the newest of Debian's cloud kernels of a series, for example "6.12". It fetches the kernel first
// if necessary.
func FetchKernel(number string) (Kernel, error) {
	if !slices.Contains(Kernels(), number) {
		return Kernel{}, fmt.Errorf("no kernel %q: known are %s", number, strings.Join(Kernels(), ", "))
	}
	dir, err := Fetch(kernelEntry(number))
	if err != nil {
		return Kernel{}, err
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinux-*"))
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("%s/boot has %d kernels in place of one: remove that folder to fetch it anew", dir, len(images))
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinux-")
	return Kernel{release, filepath.Join(dir, "usr", "src", "linux-headers-"+release), images[0]}, nil
}

// kernelPackages are the packages of the newest kernel of a series, whose names contain its version. Debian removes the
// headers of a kernel earlier than the kernel, so the headers decide which one is the newest.
func kernelPackages(apt, number string) ([]string, error) {
	pattern := "^linux-headers-" + regexp.QuoteMeta(number) + `\.[0-9].*-cloud-amd64$`
	out, err := exec.Command("apt-cache", "-c", apt, "search", "--names-only", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache search %s: %w", pattern, err)
	}
	version := newest(string(out))
	if version == "" {
		return nil, fmt.Errorf("there are no headers of a cloud kernel %s: if Debian has moved on, change tests/debian/kernel.go", number)
	}
	cloud := version + "-cloud-amd64"
	want := []string{"linux-headers-" + cloud, "linux-headers-" + version + "-common"}
	// The tools for building modules have the kernel's version in their name, or only its series. Since 7.0 the image is
	// a package of its own, which linux-image depends on.
	for _, either := range [][]string{{"linux-kbuild-" + version, "linux-kbuild-" + number}, {"linux-binary-" + cloud, "linux-image-" + cloud}} {
		i := slices.IndexFunc(either, func(name string) bool {
			out, err := exec.Command("apt-cache", "-c", apt, "show", name).Output()
			return err == nil && len(out) > 0
		})
		if i < 0 {
			return nil, fmt.Errorf("there is neither %s", strings.Join(either, " nor "))
		}
		want = append(want, either[i])
	}
	return want, nil
}

var headersLine = regexp.MustCompile(`(?m)^linux-headers-(\S+)-cloud-amd64 `)

// newest returns the greatest version in apt's list of headers, and "" if there is none.
func newest(list string) string {
	var versions []string
	for _, m := range headersLine.FindAllStringSubmatch(list, -1) {
		versions = append(versions, m[1])
	}
	if len(versions) == 0 {
		return ""
	}
	return slices.MaxFunc(versions, func(a, b string) int { return slices.Compare(numbersIn(a), numbersIn(b)) })
}

func numbersIn(version string) []int {
	var numbers []int
	for _, digits := range regexp.MustCompile(`\d+`).FindAllString(version, -1) {
		n, _ := strconv.Atoi(digits) // digits alone
		numbers = append(numbers, n)
	}
	return numbers
}

// finishKernel makes the unpacked headers usable and decompresses the kernel. final is the later name of tree.
func finishKernel(tree, final string) error {
	makefiles, _ := filepath.Glob(filepath.Join(tree, "usr/src/linux-headers-*-amd64/Makefile"))
	for _, path := range makefiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, before := range []string{"include ", "KBUILD_OUTPUT="} {
			text = bytes.Replace(text, []byte(before+"/usr/src/"), []byte(before+final+"/usr/src/"), 1)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	compressed, _ := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	release := ""
	if len(compressed) == 1 {
		release = strings.TrimPrefix(filepath.Base(compressed[0]), "vmlinuz-")
	} else if compressed, _ = filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/vmlinuz")); len(compressed) == 1 { // since 7.0
		release = filepath.Base(filepath.Dir(compressed[0]))
	}
	if len(makefiles) != 1 || len(compressed) != 1 {
		return fmt.Errorf("the packages have %d makefiles and %d kernels in place of one of each", len(makefiles), len(compressed))
	}
	if err := useLibraries(tree, final); err != nil {
		return err
	}
	bzImage, err := os.ReadFile(compressed[0])
	if err != nil {
		return err
	}
	image, err := decompressKernel(bzImage)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(compressed[0]), err)
	}
	boot := filepath.Join(tree, "boot")
	return errors.Join(os.MkdirAll(boot, 0o755), os.WriteFile(filepath.Join(boot, "vmlinux-"+release), image, 0o644), os.Remove(compressed[0]),
		os.RemoveAll(filepath.Join(tree, "lib/modules")))
}

const libraryFolder = "usr/lib/x86_64-linux-gnu"

// useLibraries puts a script in place of each tool for building modules, if a libc was fetched with them. The script
// starts the tool with that libc.
func useLibraries(tree, final string) error {
	loader := filepath.Join(libraryFolder, "ld-linux-x86-64.so.2")
	if !exists(filepath.Join(tree, loader)) {
		return nil
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --argv0 \"$0\" --library-path '%s' \"$0.program\" \"$@\"\n", filepath.Join(final, loader), filepath.Join(final, libraryFolder))
	tools, _ := filepath.Glob(filepath.Join(tree, "usr/lib/linux-kbuild-*"))
	if len(tools) != 1 {
		return fmt.Errorf("the packages have %d folders of tools in place of one", len(tools))
	}
	return filepath.WalkDir(tools[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := elf.Open(path)
		if err != nil {
			return nil // a script or a text
		}
		f.Close()
		return errors.Join(os.Rename(path, path+".program"), os.WriteFile(path, []byte(script), 0o755))
	})
}

// decompressKernel finds the kernel in a bzImage: it is a compressed ELF file.
func decompressKernel(bzImage []byte) ([]byte, error) {
	for _, kind := range []struct {
		magic string
		tool  []string
	}{
		{"\xfd7zXZ\x00", []string{"xz", "-dc", "--single-stream"}},
		{"\x02!L\x18", []string{"lz4", "-dc"}},
		{"(\xb5/\xfd", []string{"zstd", "-dc"}},
		{"\x1f\x8b\x08", []string{"gzip", "-dc"}},
	} {
		for rest, at := bzImage, 0; ; rest = rest[at+1:] {
			if at = bytes.Index(rest, []byte(kind.magic)); at < 0 {
				break
			}
			cmd := exec.Command(kind.tool[0], kind.tool[1:]...)
			cmd.Stdin, cmd.Stderr = bytes.NewReader(rest[at:]), io.Discard
			image, err := cmd.Output() // it complains about the bytes after the archive
			if errors.Is(err, exec.ErrNotFound) {
				return nil, fmt.Errorf("it is compressed with %s, which is missing: install it", kind.tool[0])
			}
			if bytes.HasPrefix(image, []byte("\x7fELF")) {
				return image, nil
			}
		}
	}
	return nil, errors.New("no kernel that xz, lz4, zstd or gzip would decompress is in it")
}

// finishSource unpacks the kernel's source without the C files that a kernel without hardware does not need, which are
// four fifths of it.
func finishSource(tree, _ string) error {
	tarballs, _ := filepath.Glob(filepath.Join(tree, "usr/src/linux-source-*.tar.xz"))
	if len(tarballs) != 1 {
		return fmt.Errorf("the package has %d archives in place of one", len(tarballs))
	}
	dir := filepath.Dir(tarballs[0])
	top := strings.TrimSuffix(filepath.Base(tarballs[0]), ".tar.xz")
	args := []string{"-xJf", tarballs[0], "--anchored", "--wildcards"}
	for _, unused := range []string{"arch/a", "arch/m", "arch/p", "arch/s", "Documentation", "drivers/clk", "drivers/crypto", "drivers/gpu", "drivers/iio",
		"drivers/infiniband", "drivers/m", "drivers/net", "drivers/pinctrl", "drivers/scsi", "drivers/staging", "drivers/usb", "drivers/video", "sound/", "tools/"} {
		for _, kind := range []string{"[chS]", "rst", "dts*"} {
			args = append(args, "--exclude="+top+"/"+unused+"*."+kind)
		}
	}
	return errors.Join(run(dir, "tar", args...), os.Remove(tarballs[0]))
}
