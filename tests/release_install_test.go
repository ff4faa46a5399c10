package tests

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gb200s are the GPUs of the profile gb200, as nvidia-smi -L prints them.
const gb200s = 4

// tree lists the files below a folder, with the targets of links.
func tree(t *testing.T, dir string) string {
	t.Helper()
	return run(t, nil, "find", dir, "-printf", "%P %y %l\n").succeeds(t).stdout
}

// TestReleaseInstall: install.sh installs the release into a folder with a space in its name, a second time over the first, and
// leaves nothing when it is removed.
func TestReleaseInstall(t *testing.T) {
	bundle := unpacked(t)
	install := func(args ...string) outcome {
		return runIn(t, t.TempDir(), nil, "env", append([]string{"-i", "PATH=/usr/bin:/bin", "sh", filepath.Join(bundle, "install.sh")}, args...)...)
	}
	dir := t.TempDir()
	prefix := filepath.Join(dir, "a prefix", "of mine")
	smi := fetched(t, "nvidia-smi-550", "nvidia-smi")
	for range 2 {
		install("--prefix", prefix).succeeds(t)
		program := filepath.Join(prefix, "bin", "nvmlfab")
		out := runIn(t, t.TempDir(), nil, "env", "-i", program, "run", "--profile", "gb200", "--", smi, "-L").succeeds(t)
		assert.Len(t, out.lines(), gb200s)
		assert.Contains(t, runIn(t, dir, nil, "env", "-i", program, "version").succeeds(t).stdout, "nvmlfab 0.0.0-test\n")
	}
	assert.FileExists(t, filepath.Join(prefix, "share/man/man1/nvmlfab-run.1"))
	assert.NoFileExists(t, filepath.Join(prefix, "lib/libnvidia-ml.so.1"))
	assert.NoFileExists(t, filepath.Join(prefix, "bin/nvidia-imex"), "NVIDIA's is of that name")
	assert.NotContains(t, tree(t, prefix), ".nvmlfab-")

	install("--library", "--prefix", prefix+"/./").succeeds(t)
	out := run(t, []string{"LD_LIBRARY_PATH=" + filepath.Join(prefix, "lib")}, smi, "-L").succeeds(t)
	assert.Len(t, out.lines(), 8)
	install("--prefix="+prefix, "--uninstall").succeeds(t)
	assert.Empty(t, leftIn(t, dir))

	// What was there before stays.
	for _, file := range []string{"lib/libother.so", "share/man/man1/other.1", "bin/other"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(prefix, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(prefix, file), nil, 0o644))
	}
	// So do links of the user's own that lead into the installation, whether or not they are where install.sh puts links.
	require.NoError(t, os.Symlink(filepath.Join(prefix, "lib/nvmlfab/bin/nvidia-imex"), filepath.Join(prefix, "bin/nvidia-imex")))
	require.NoError(t, os.Symlink(filepath.Join(prefix, "lib/nvmlfab/lib/libnvidia-ml.so.1"), filepath.Join(prefix, "lib/libnvidia-ml.so")))
	before := tree(t, prefix)
	install("--prefix", prefix).succeeds(t)
	install("--prefix", prefix, "--uninstall").succeeds(t)
	assert.Equal(t, before, tree(t, prefix))
	again := install("--prefix", prefix, "--uninstall")
	assert.Equal(t, 1, again.code)
	assert.Equal(t, "nvmlfab: nvmlfab is not installed in "+prefix+"\n", again.stderr)
}

// smallRelease is a folder with what install.sh looks for, and little in the files.
func smallRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var sums strings.Builder
	for _, name := range []string{"bin/nvmlfab", "bin/vgpuctl", "bin/mock-ib", "lib/libnvidia-ml.so.1", "man/man1/nvmlfab.1", "man/man1/vgpuctl.1",
		"completions/nvmlfab.bash", "completions/_nvmlfab", "completions/nvmlfab.fish", "README.md", "manifest.json", "install.sh"} {
		text := []byte("  \"platform\": \"linux/" + runtime.GOARCH + "\"\n")
		if name == "install.sh" {
			var err error
			text, err = os.ReadFile(filepath.Join(root, "release", name))
			require.NoError(t, err)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644))
	return dir
}

// TestReleaseInstallFails: whatever fails on the way, a first installation leaves nothing, and after one over an earlier one
// the earlier one is whole again, with its links.
func TestReleaseInstallFails(t *testing.T) {
	script := filepath.Join(smallRelease(t), "install.sh")
	// failing is a folder with a command that fails from its nth call on, or at that call alone.
	failing := func(name string, nth int, once bool) string {
		dir := t.TempDir()
		real, err := exec.LookPath(name)
		require.NoError(t, err)
		from := "-ge"
		if once {
			from = "-eq"
		}
		writeProgram(t, filepath.Join(dir, name), fmt.Appendf(nil, "#!/bin/sh\necho >>%[1]s/calls\n[ \"$(wc -l <%[1]s/calls)\" %[2]s %[3]d ] || exec %[4]s \"$@\"\necho no %[5]s >&2\nexit 1\n",
			dir, from, nth, real, name))
		return dir
	}
	install := func(path, prefix string, args ...string) outcome {
		return run(t, nil, "env", append([]string{"-i", "PATH=" + path + "/usr/bin:/bin", "sh", script, "--prefix", prefix}, args...)...)
	}
	const ours, told = "lib/nvmlfab/README.md", "the installation did not succeed; what was there before is there again\n"
	earlier := filepath.Join(t.TempDir(), "prefix")
	install("", earlier).succeeds(t)
	require.NoError(t, os.WriteFile(filepath.Join(earlier, ours), []byte("earlier\n"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(earlier, "bin/vgpuctl"))) // an installation makes it again
	list := filepath.Join(earlier, "lib/nvmlfab/.links")
	links, err := os.ReadFile(list)
	require.NoError(t, err)
	moved := strings.Replace(string(links), "bin/mock-ib bin/mock-ib", "bin/mock-ib bin/older", 1) // a file that has another name now
	require.NotEqual(t, string(links), moved)
	require.NoError(t, os.WriteFile(list, []byte(moved), 0o644))
	require.NoError(t, os.Remove(filepath.Join(earlier, "bin/mock-ib")))
	require.NoError(t, os.Symlink(filepath.Join(earlier, "lib/nvmlfab/bin/older"), filepath.Join(earlier, "bin/mock-ib")))
	before := tree(t, earlier)

	for _, c := range []struct {
		command      string
		first, later int // the call that fails in a first installation, and in one over an earlier one; 0 if none does
		once         bool
	}{
		{"cp", 1, 1, false},
		{"mkdir", 2, 1, false},
		{"mv", 1, 1, false},
		{"mv", 0, 2, true},
		{"ln", 1, 1, true},
		{"ln", 7, 2, true},
		{"ln", 7, 0, false},
		{"ln", 0, 1, false},
	} {
		if c.first > 0 {
			dir := t.TempDir()
			out := install(failing(c.command, c.first, c.once)+":", filepath.Join(dir, "a", "prefix"))
			assert.Equal(t, 1, out.code)
			assert.Equal(t, "no "+c.command+"\nnvmlfab: "+told, out.stderr, "%+v", c)
			assert.Empty(t, leftIn(t, dir), "%+v", c)
		}
		if c.later > 0 {
			out := install(failing(c.command, c.later, c.once)+":", earlier, "--library")
			assert.Equal(t, 1, out.code)
			assert.Equal(t, "no "+c.command+"\nnvmlfab: "+told, out.stderr, "%+v", c)
			require.Equal(t, before, tree(t, earlier), "%+v", c)
			text, err := os.ReadFile(filepath.Join(earlier, ours))
			require.NoError(t, err)
			require.Equal(t, "earlier\n", string(text), "%+v", c)
		}
	}

	install("", earlier, "--library").succeeds(t)
	assert.FileExists(t, filepath.Join(earlier, "bin/mock-ib"))
	assert.FileExists(t, filepath.Join(earlier, "bin/vgpuctl"))
	install("", earlier, "--uninstall").succeeds(t)
	assert.Empty(t, leftIn(t, filepath.Dir(earlier)))
}

// TestReleaseInstallRefuses: install.sh changes nothing if a file is in the way, the release is not whole, or the folder may not be
// written.
func TestReleaseInstallRefuses(t *testing.T) {
	bundle := unpacked(t)
	refuses := func(prefix, want string, command ...string) {
		t.Helper()
		before := ""
		if _, err := os.Stat(prefix); err == nil {
			before = tree(t, prefix)
		}
		out := run(t, nil, command[0], append(command[1:], "--prefix", prefix)...)
		assert.Equal(t, 1, out.code)
		assert.Contains(t, out.stderr, want)
		if before == "" {
			assert.NoFileExists(t, prefix)
		} else {
			assert.Equal(t, before, tree(t, prefix))
		}
	}
	script := filepath.Join(bundle, "install.sh")
	with := func(file string) string {
		prefix := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(prefix, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(prefix, file), []byte("x"), 0o755))
		return prefix
	}
	refuses(with("lib/libnvidia-ml.so.1"), "is a driver's library, and stays", "sh", script, "--library")
	refuses(with("lib/x86_64-linux-gnu/libnvidia-ml.so.550.163.01"), "is a driver's library, and stays", "sh", script, "--library")
	refuses(with("bin/nvmlfab"), "is there and not nvmlfab's", "sh", script)
	brackets := filepath.Join(t.TempDir(), "a[b]*\\n")
	require.NoError(t, os.MkdirAll(filepath.Join(brackets, "lib/x86_64-linux-gnu"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(brackets, "lib/nvmlfab/x"), filepath.Join(brackets, "lib/x86_64-linux-gnu/libnvidia-ml.so.1")))
	refuses(brackets, "is a driver's library, and stays", "sh", script, "--library")
	refuses(with("share/man/man1/vgpuctl.1"), "is there and not nvmlfab's", "sh", script)
	refuses(with("lib/nvmlfab/bin/nvmlfab"), "install.sh did not put it there", "sh", script)
	refuses(with("lib/nvmlfab/bin/nvmlfab"), "was not installed by install.sh", "sh", script, "--uninstall")
	refuses(filepath.Join(with("file"), "file"), "is no folder", "sh", script)
	refuses(filepath.Join(t.TempDir(), "a:b"), "takes no folder with :", "sh", script)
	refuses(filepath.Join(t.TempDir(), "p"), "there is no option --bogus", "sh", script, "--bogus")

	if os.Geteuid() == 0 {
		closed := sharedFolder(t)
		require.NoError(t, os.Chmod(closed, 0o755))
		readable := filepath.Join(sharedFolder(t), "release") // t.TempDir is root's alone
		run(t, nil, "cp", "-R", bundle, readable).succeeds(t)
		nobody, err := user.Lookup("nobody")
		require.NoError(t, err)
		refuses(closed, "no permission to write in "+closed, "setpriv", "--reuid", nobody.Uid, "--clear-groups", "sh", filepath.Join(readable, "install.sh"))
	}

	library := filepath.Join(bundle, "lib", "libmockfs.so")
	require.NoError(t, os.Truncate(library, 1000))
	refuses(filepath.Join(t.TempDir(), "p"), "is not a whole release", "sh", script)
	require.NoError(t, os.Remove(library))
	refuses(filepath.Join(t.TempDir(), "p"), "is not a whole release", "sh", script)
	require.NoError(t, os.Remove(filepath.Join(bundle, "SHA256SUMS")))
	refuses(filepath.Join(t.TempDir(), "p"), "SHA256SUMS is missing", "sh", script)

	// A tarball that did not come whole does not unpack.
	text, err := os.ReadFile(release(t, releaseTar))
	require.NoError(t, err)
	dir := t.TempDir()
	half := filepath.Join(dir, "half.tar.gz")
	require.NoError(t, os.WriteFile(half, text[:len(text)/2], 0o644))
	assert.NotZero(t, runIn(t, dir, nil, "tar", "xzf", half).code)
}

// chrooted runs a script in a mount namespace with a root of its own, in which it is $1, with this machine's /proc and /dev, and
// sys. The script has a function in_root, which runs a command in there in an empty environment.
func chrooted(t *testing.T, script string, args ...string) outcome {
	t.Helper()
	needsRoot(t)
	dir := t.TempDir()
	script = `set -eu
root=$1
mount -t tmpfs none "$root"
in_root() {
	mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/empty"
	mountpoint -q "$root/proc" || { mount --rbind /proc "$root/proc"; mount --rbind /sys "$root/sys"; mount --rbind /dev "$root/dev"; }
	env -i "$(command -v chroot)" "$root" "$@"
}
` + script
	return run(t, nil, "unshare", append([]string{"-m", "sh", "-c", script, "sh", dir}, args...)...)
}

// TestReleaseDeb: dpkg installs the package on a Debian, where nvmlfab runs nvidia-smi in an empty environment, and removes it
// without leaving anything.
func TestReleaseDeb(t *testing.T) {
	out := chrooted(t, `
deb=$2 smi=$3
mkdir -p "$root/usr" "$root/.upper" "$root/.work" "$root/etc" "$root/tmp" "$root/var/lib"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
mount -t overlay -o "lowerdir=/usr,upperdir=$root/.upper,workdir=$root/.work" none "$root/usr"
cp -a /var/lib/dpkg "$root/var/lib/dpkg"
cp "$smi" "$root/usr/bin/nvidia-smi"
find "$root/.upper" ! -type d | sort > "$root/before"
dpkg --root="$root" --no-triggers -i "$deb" >&2
in_root /usr/bin/nvmlfab version
in_root /usr/bin/nvmlfab run --profile gb200 -- nvidia-smi -L
in_root /usr/bin/dpkg --verify nvmlfab
dpkg --root="$root" --no-triggers -r nvmlfab >&2
find "$root/.upper" ! -type d | sort | diff "$root/before" - >&2
find "$root/.upper" -name '*nvmlfab*' >&2
umount "$root/usr"
`, release(t, releaseDeb), fetched(t, "nvidia-smi-550", "nvidia-smi")).succeeds(t)
	assert.Len(t, out.lines(), 2+gb200s, out.stdout)
	assert.True(t, strings.HasPrefix(out.stdout, "nvmlfab 0.0.0-test\nNVML 13.4.92: "), out.stdout)
	assert.Contains(t, out.stdout, "GPU 3: NVIDIA GB200")
	assert.NotContains(t, out.stderr, ".upper", "left by dpkg -r")
}

// libc are the files of a libc that nvidia-smi needs, unpacked for a root without one.
func libc(t *testing.T) string {
	return filepath.Dir(fetched(t, "libc-2.31", "ld-2.31.so"))
}

// rooted is the script that puts the libc $2 and the nvidia-smi $3 into a root.
const rooted = `
mkdir -p "$root/usr/lib" "$root/usr/bin" "$root/lib64" "$root/lib/x86_64-linux-gnu"
cp -a "$2/." "$root/lib/x86_64-linux-gnu/"
cp "$2/ld-2.31.so" "$root/lib64/ld-linux-x86-64.so.2"
cp "$3" "$root/usr/bin/nvidia-smi"
`

// TestReleaseRPM: RPM itself finds the package in order, and its files, unpacked, run nvidia-smi in an empty environment on
// Debian 11's libc.
func TestReleaseRPM(t *testing.T) {
	rpm := filepath.Dir(filepath.Dir(filepath.Dir(fetched(t, "rpm", "rpmkeys"))))
	env := []string{"LD_LIBRARY_PATH=" + filepath.Join(rpm, "usr/lib/x86_64-linux-gnu") + ":" + filepath.Join(rpm, "lib/x86_64-linux-gnu"),
		"RPM_CONFIGDIR=" + filepath.Join(rpm, "usr/lib/rpm"), "HOME=" + t.TempDir()}
	file := release(t, releaseRPM)
	query := func(args ...string) string {
		args = append([]string{"--dbpath", filepath.Join(t.TempDir(), "db")}, args...)
		return run(t, env, filepath.Join(rpm, "usr/bin/rpm"), append(args, file)...).succeeds(t).stdout
	}
	checked := run(t, env, filepath.Join(rpm, "usr/bin/rpmkeys"), "--dbpath", filepath.Join(t.TempDir(), "db"), "-K", "-v", "--nosignature", file).succeeds(t).stdout
	for _, what := range []string{"Header SHA256 digest: OK", "Header SHA1 digest: OK", "Payload SHA256 digest: OK", "MD5 digest: OK"} {
		assert.Contains(t, checked, what)
	}
	assert.Equal(t, "nvmlfab 0.0.0~test 1 x86_64", query("-qp", "--qf", "%{NAME} %{VERSION} %{RELEASE} %{ARCH}"))
	assert.Contains(t, query("-qp", "--requires"), "libc.so.6(GLIBC_2.28)(64bit)\n")
	assert.Contains(t, query("-qlp"), "/usr/share/man/man1/nvmlfab-run.1\n")

	archive := filepath.Join(t.TempDir(), "cpio")
	run(t, env, "sh", "-c", `"$1" "$2" > "$3"`, "sh", filepath.Join(rpm, "usr/bin/rpm2cpio"), file, archive).succeeds(t)
	out := chrooted(t, rooted+`
cpio=$4 archive=$5 files=$6
(cd "$root" && "$cpio" --quiet -idm < "$archive")
(cd "$root" && find usr/lib/nvmlfab usr/share/doc/nvmlfab -type f | sort | sed 's|^|/|') > "$root/unpacked"
printf '%s\n' "$files" | grep -E '^/usr/(lib/nvmlfab|share/doc/nvmlfab)/' | sort > "$root/listed"
comm -23 "$root/unpacked" "$root/listed" >&2
in_root /usr/bin/nvmlfab run --profile gb200 -- nvidia-smi -L
`, libc(t), fetched(t, "nvidia-smi-550", "nvidia-smi"), filepath.Join(rpm, "bin/cpio"), archive, query("-qlp")).succeeds(t)
	assert.Len(t, out.lines(), gb200s, out.stdout)
	assert.Empty(t, out.stderr)
}

// TestReleaseImage: the image has the layout of the OCI, and its root runs nvidia-smi, given a libc, in an empty environment.
func TestReleaseImage(t *testing.T) {
	dir := t.TempDir()
	runIn(t, dir, nil, "tar", "xf", release(t, releaseImage)).succeeds(t)
	layer, config := imageOf(t, dir)
	assert.Equal(t, []string{"/usr/bin/nvmlfab"}, config.Config.Entrypoint)
	assert.Equal(t, "amd64", config.Architecture)
	out := chrooted(t, rooted+`
tar -C "$root" -xzf "$4"
in_root /usr/bin/nvmlfab run --profile gb200 -- nvidia-smi -L
`, libc(t), fetched(t, "nvidia-smi-550", "nvidia-smi"), layer).succeeds(t)
	assert.Len(t, out.lines(), gb200s, out.stdout)
	assert.Empty(t, out.stderr)
}
