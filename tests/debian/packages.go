package debian

import (
	"os"
	"path/filepath"
)

// entry is one thing to fetch: packages of one suite, unpacked together.
type entry struct {
	suite      string
	components string   // of the suite's archive
	version    string   // upstream version of the first package; its Debian revision may change
	packages   []string // the first package is the one wanted, the others are needed to run it
}

// adapter is for entries that need more than a download and unpacking.
type adapter struct {
	resolve func(apt string) ([]string, error) // returns the packages, in place of the entry's
	finish  func(tree, final string) error     // changes tree before it is renamed to final
}

var adapters = map[string]adapter{
	"linux-source": {nil, finishSource},
	"fish":         {nil, finishFish},
	"nvml-wrapper": {nil, finishNVMLWrapper},
}

// finishFish lets fish find its functions, which it looks for beside itself if there is an etc too.
func finishFish(tree, _ string) error { return os.Symlink("../etc", filepath.Join(tree, "usr", "etc")) }

const (
	nonFree = "contrib non-free"
	tools   = "main contrib"
)

// entries holds everything that tests can fetch, apart from kernels, which kernel.go adds. Only sid has drivers older
// than 470.
var entries = map[string]entry{
	"nvidia-smi-340": {"sid", nonFree, "340.108", []string{"nvidia-legacy-340xx-smi"}},
	"nvidia-smi-390": {"sid", nonFree, "390.157", []string{"nvidia-legacy-390xx-smi"}},
	"nvidia-smi-418": {"sid", nonFree, "418.226.00", []string{"nvidia-tesla-418-smi"}},
	"nvidia-smi-450": {"sid", nonFree, "450.248.02", []string{"nvidia-tesla-450-smi"}},
	"nvidia-smi-460": {"sid", nonFree, "460.106.00", []string{"nvidia-tesla-460-smi"}},
	"nvidia-smi-470": {"bookworm", nonFree, "470.256.02", []string{"nvidia-tesla-470-smi"}},
	"nvidia-smi-535": {"bookworm", nonFree, "535.261.03", []string{"nvidia-smi"}},
	"nvidia-smi-550": {"trixie", nonFree, "550.163.01", []string{"nvidia-smi"}},
	"nvidia-smi-555": {"experimental", nonFree, "555.58.02", []string{"nvidia-smi"}},

	"libnvidia-ml-340": {"sid", nonFree, "340.108", []string{"libnvidia-legacy-340xx-ml1"}},
	"libnvidia-ml-390": {"sid", nonFree, "390.157", []string{"libnvidia-legacy-390xx-ml1"}},
	"libnvidia-ml-418": {"sid", nonFree, "418.226.00", []string{"libnvidia-tesla-418-ml1"}},
	"libnvidia-ml-450": {"sid", nonFree, "450.248.02", []string{"libnvidia-tesla-450-ml1"}},
	"libnvidia-ml-460": {"sid", nonFree, "460.106.00", []string{"libnvidia-tesla-460-ml1"}},
	"libnvidia-ml-470": {"bookworm", nonFree, "470.256.02", []string{"libnvidia-tesla-470-ml1"}},
	"libnvidia-ml-535": {"bookworm", nonFree, "535.261.03", []string{"libnvidia-ml1"}},
	"libnvidia-ml-550": {"trixie", nonFree, "550.163.01", []string{"libnvidia-ml1"}},
	"libnvidia-ml-555": {"experimental", nonFree, "555.58.02", []string{"libnvidia-ml1"}},

	"libcuda-535":          {"bookworm", nonFree, "535.261.03", []string{"libcuda1"}},
	"libcuda-550":          {"trixie", nonFree, "550.163.01", []string{"libcuda1"}},
	"libnvidia-encode-535": {"bookworm", nonFree, "535.261.03", []string{"libnvidia-encode1"}},
	"libnvidia-encode-550": {"trixie", nonFree, "550.163.01", []string{"libnvidia-encode1"}},
	"libnvcuvid-535":       {"bookworm", nonFree, "535.261.03", []string{"libnvcuvid1"}},
	"libnvcuvid-550":       {"trixie", nonFree, "550.163.01", []string{"libnvcuvid1"}},

	"libc-2.31": {"bullseye", tools, "2.31", []string{"libc6"}},

	// The libc of other systems, to build for it and to run what was built.
	"musl":       {"bookworm", tools, "1.2.3", []string{"musl", "musl-dev"}},
	"musl-arm64": {"bookworm", tools, "1.2.3", []string{"musl", "musl-dev"}},

	// For arm64, which qemu-user runs.
	"nvidia-smi-550-arm64": {"trixie", nonFree, "550.163.01", []string{"nvidia-smi"}},
	"python3-arm64": {"bookworm", tools, "3.11", []string{"python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libexpat1",
		"zlib1g", "libssl3", "libffi8"}},

	"groff": {"bookworm", tools, "1.22.4", []string{"groff-base", "libuchardet0"}},

	"rpm": {"bookworm", tools, "4.18.0", []string{"rpm", "librpm9", "librpmio9", "librpmbuild9", "librpmsign9", "rpm-common", "rpm2cpio", "cpio", "libpopt0", "liblua5.3-0",
		"libsqlite3-0", "libgcrypt20", "libgpg-error0", "libelf1", "libdw1", "libdbus-1-3", "libarchive13", "libxml2", "libnettle8", "libicu72", "libzstd1", "libbz2-1.0", "liblzma5",
		"libacl1", "libcap2", "libmagic1", "zlib1g", "libfsverity0", "debugedit", "libsystemd0"}},

	"linux-source": {"bookworm", tools, "6.1", []string{"linux-source-6.1"}},

	"cmake": {"bookworm", tools, "3.25.1", []string{"cmake", "cmake-data", "libarchive13", "libjsoncpp25", "librhash0", "libuv1", "libcurl4", "libexpat1"}},
	"dkms":  {"bookworm", tools, "3.0.10", []string{"dkms"}},

	"infiniband-diags": {"bookworm", tools, "44.0", []string{"infiniband-diags", "libibumad3", "libibmad5", "libibnetdisc5"}},
	"ibverbs":          {"bookworm", tools, "44.0", []string{"ibverbs-utils", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200"}},
	"iproute2": {"bookworm", tools, "6.1.0", []string{"iproute2", "libbpf1", "libbsd0", "libcap2", "libdb5.3", "libelf1", "libmd0",
		"libmnl0", "libselinux1", "libtirpc3", "libxtables12"}},
	"ucx": {"bookworm", tools, "1.13.1", []string{"ucx-utils", "libucx0", "librdmacm1", "libnuma1"}},
	"ibsim": {"bookworm", tools, "0.10", []string{"ibsim-utils", "libumad2sim0", "libibumad3", "libibmad5", "opensm",
		"libopensm9", "libosmcomp5", "libosmvendor5", "libwrap0", "libnsl2"}},

	"pynvml-11": {"bookworm", nonFree, "11.525.112", []string{"python3-pynvml"}},
	"pynvml-12": {"trixie", nonFree, "12.550.89", []string{"python3-pynvml"}},
	"udev":      {"bookworm", tools, "252", []string{"udev"}},
	"nvtop":     {"bookworm", tools, "3.0.1", []string{"nvtop", "libncursesw6", "libtinfo6"}},
	"nvitop":    {"trixie", nonFree, "1.5.0", []string{"nvitop"}},
	"runc":      {"bookworm", tools, "1.1.5", []string{"runc", "libseccomp2"}},
	"btop":      {"trixie", tools, "1.3.2", []string{"btop", "libc6", "libgcc-s1", "libstdc++6"}},
	"hwloc-2.9": {"bookworm", tools, "2.9.0", []string{"hwloc-nox", "libhwloc15", "libhwloc-contrib-plugins", "libudev1", "libtinfo6"}},
	"hwloc-2.12": {"trixie", tools, "2.12.0", []string{"hwloc-nox", "libhwloc15", "libhwloc-contrib-plugins", "libc6", "libudev1",
		"libcap2", "libtinfo6"}},
	"slurmd": {"sid", tools, "26.05", []string{"slurmd", "slurm-wlm-basic-plugins", "slurm-wlm-nvml-plugin", "libc6", "libaudit1", "libcap-ng0",
		"libhwloc15", "libjson-c5", "liblz4-1", "libmunge2", "libnuma1", "libpam0g", "libudev1", "libcap2", "libyaml-0-2"}},
	"nvml-wrapper": {"bookworm", tools, "0.9.0", []string{"librust-nvml-wrapper-dev", "librust-nvml-wrapper-sys-dev", "librust-bitflags-dev",
		"librust-cfg-if-dev", "librust-darling-core-dev", "librust-darling-dev", "librust-darling-macro-dev", "librust-fnv-dev",
		"librust-ident-case-dev", "librust-libloading-dev", "librust-proc-macro2-dev", "librust-quote-dev", "librust-static-assertions-dev",
		"librust-syn-dev", "librust-thiserror-dev", "librust-thiserror-impl-dev", "librust-unicode-ident-dev", "librust-wrapcenum-derive-dev",
		"libstd-rust-1.63", "libstd-rust-dev", "rustc"}},
	"zsh":  {"bookworm", tools, "5.9", []string{"zsh", "zsh-common"}},
	"fish": {"bookworm", tools, "3.6.0", []string{"fish", "fish-common", "libpcre2-32-0"}},
	"gpustat": {"bookworm", tools, "1.0.0", []string{"gpustat", "python3-blessed", "python3-pkg-resources",
		"python3-psutil", "python3-pynvml", "python3-six", "python3-wcwidth"}},
}
