package debian

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Kernel is Debian's kernel for virtual machines, with what is needed to build modules for it.
type Kernel struct {
	Release string // as uname -r says
	Headers string // for building modules: make -C HEADERS M=FOLDER
	Image   string // the kernel as an uncompressed ELF file, which qemu starts faster
}

// kernelMeta is the package that depends on the present kernel package.
const kernelMeta = "linux-image-cloud-amd64"

// FetchKernel returns Debian's cloud kernel. It fetches the kernel first if necessary.
func FetchKernel() (Kernel, error) {
	dir, err := Fetch("linux-cloud")
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

// kernelPackages are the present kernel's packages, whose names contain its version.
func kernelPackages(apt string) ([]string, error) {
	out, err := exec.Command("apt-cache", "-c", apt, "depends", kernelMeta).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache depends %s: %w", kernelMeta, err)
	}
	image := regexp.MustCompile(`Depends: (linux-image-((\d+\.\d+)\S*)-cloud-amd64)`).FindSubmatch(out)
	if image == nil {
		return nil, fmt.Errorf("%s depends on no kernel", kernelMeta)
	}
	number, series := string(image[2]), string(image[3])
	return []string{string(image[1]), "linux-headers-" + number + "-cloud-amd64", "linux-headers-" + number + "-common", "linux-kbuild-" + series}, nil
}

// finishKernel makes the unpacked headers usable and decompresses the kernel. final is the later name of tree.
func finishKernel(tree, final string) error {
	makefiles, _ := filepath.Glob(filepath.Join(tree, "usr/src/linux-headers-*-amd64/Makefile"))
	for _, path := range makefiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text = bytes.Replace(text, []byte("include /usr/src/"), []byte("include "+final+"/usr/src/"), 1)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	compressed, _ := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if len(makefiles) != 1 || len(compressed) != 1 {
		return fmt.Errorf("the packages have %d makefiles and %d kernels in place of one of each", len(makefiles), len(compressed))
	}
	bzImage, err := os.ReadFile(compressed[0])
	if err != nil {
		return err
	}
	image, err := decompressKernel(bzImage)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(compressed[0]), err)
	}
	name := strings.Replace(compressed[0], "vmlinuz-", "vmlinux-", 1)
	return errors.Join(os.WriteFile(name, image, 0o644), os.Remove(compressed[0]), os.RemoveAll(filepath.Join(tree, "lib/modules")))
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
