// Package debian gets programs and libraries for tests from Debian's archive.
//
// It does not change the system: apt works in a directory of its own, and packages are unpacked but not installed.
// Unpacked packages stay in the user's cache, so the network is needed only once.
package debian

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Progress receives a line for each step that takes time.
var Progress io.Writer = os.Stderr

// Names lists the names that Fetch accepts.
func Names() []string { return slices.Sorted(maps.Keys(entries)) }

// Fetch returns the directory with the unpacked packages of that name. It fetches them first if necessary. Any number
// of processes may call it at the same time.
func Fetch(name string) (string, error) {
	e, ok := entries[name]
	if !ok {
		return "", fmt.Errorf("%q is not in the table; known are %s", name, strings.Join(Names(), ", "))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep packages in: %w; set XDG_CACHE_HOME", err)
	}
	root := filepath.Join(cache, "nvmlfab", "debian")
	dir := filepath.Join(root, name+"_"+e.version)
	if exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("no folder to keep packages in: %w; set XDG_CACHE_HOME to one that can be written", err)
	}
	unlock, err := lock(filepath.Join(root, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(dir) { // another process was faster
		return dir, nil
	}
	if err := e.unpack(root, dir, machine(name), adapters[name]); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return dir, nil
}

// File fetches the named packages and returns the path of the one file called base among them.
func File(name, base string) (string, error) {
	dir, err := Fetch(name)
	if err != nil {
		return "", err
	}
	found := ""
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() == base {
			found = path
			return filepath.SkipAll
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s has no file %s", dir, base)
	}
	return found, err
}

// machine is what Debian calls the machine that an entry is for: that of its name, or else this one.
func machine(name string) string {
	if strings.HasSuffix(name, "-arm64") {
		return "arm64"
	}
	return ""
}

// unpack downloads the packages and leaves them in dir, which appears whole or not at all.
func (e entry) unpack(root, dir, machine string, adapt adapter) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: fetching works on Debian and its derivatives only", tool)
		}
	}
	apt, err := e.apt(root, machine)
	if err != nil {
		return err
	}
	work := filepath.Join(root, "unpack") // this process holds the lock; an interrupted run may have left the folder
	defer os.RemoveAll(work)
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}

	fmt.Fprintf(Progress, "fetch: reading the package lists of Debian %s\n", e.suite)
	if err := run(work, "apt-get", "-c", apt, "-q", "update"); err != nil {
		return fmt.Errorf("the package lists of Debian %s did not come: %w; check the network, or set %s to a mirror in reach", e.suite, err, mirrorVariable)
	}
	want := slices.Clone(e.packages)
	if adapt.resolve != nil {
		if want, err = adapt.resolve(apt); err != nil {
			return err
		}
	} else {
		want[0] += "=" + e.version + "*"
	}
	fmt.Fprintf(Progress, "fetch: downloading %s\n", strings.Join(want, " "))
	if err := run(work, "apt-get", append([]string{"-c", apt, "-q", "download"}, want...)...); err != nil {
		return fmt.Errorf("no %s in Debian %s: %w; if it has moved on, change tests/debian/packages.go", strings.Join(want, " "), e.suite, err)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	for _, deb := range debs {
		if err := run(work, "dpkg-deb", "-x", deb, tree); err != nil {
			return err
		}
	}
	if adapt.finish != nil {
		if err := adapt.finish(tree, dir); err != nil {
			return err
		}
	}
	return os.Rename(tree, dir)
}

// apt makes a private apt directory for the suite and returns its configuration file. The file is passed to apt with
// -c, since apt reads that after the host's own files, but APT_CONFIG before them. The machine is empty if it is this one.
func (e entry) apt(root, machine string) (string, error) {
	mirror, err := mirror()
	if err != nil {
		return "", err
	}
	keyring := "/usr/share/keyrings/debian-archive-keyring.gpg"
	if !exists(keyring) {
		return "", fmt.Errorf("%s is missing: install debian-archive-keyring", keyring)
	}
	dir := filepath.Join(root, "apt", strings.ReplaceAll(strings.TrimSpace(e.suite+" "+e.components+" "+machine), " ", "-"))
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "parts"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	sources := ""
	// What a package of a backports suite needs is in the suite that it is for.
	for _, suite := range slices.Compact([]string{e.suite, strings.TrimSuffix(e.suite, "-backports")}) {
		sources += fmt.Sprintf("deb [signed-by=%s] %s %s %s\n", keyring, mirror, suite, e.components)
	}
	// Versions are pinned, so lists from a frozen mirror may be used after their date; hashes and signatures are still
	// checked. Downloads run as root, since the user to which apt would switch cannot enter root's cache.
	config := fmt.Sprintf(`Dir::State::Lists "%[1]s/lists";
Dir::State::Status "%[1]s/status";
Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "%[1]s/parts";
Dir::Cache "%[1]s/cache";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "3";
`, dir)
	if machine != "" {
		config += fmt.Sprintf("APT::Architecture %[1]q;\n#clear APT::Architectures;\nAPT::Architectures { %[1]q; };\n", machine)
	}
	if err := os.WriteFile(filepath.Join(dir, "sources.list"), []byte(sources), 0o644); err != nil {
		return "", err
	}
	// Installed packages would count as a newer version, so the list of them is empty.
	if err := os.WriteFile(filepath.Join(dir, "status"), nil, 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "apt.conf")
	return path, os.WriteFile(path, []byte(config), 0o644)
}

const mirrorVariable = "NVMLFAB_DEBIAN_MIRROR"

// mirror returns the address of a Debian mirror: the one in the variable, else the one that this host's apt uses, else
// debootstrap's default.
func mirror() (string, error) {
	if m := os.Getenv(mirrorVariable); m != "" {
		return m, nil
	}
	release, _ := os.ReadFile("/etc/os-release")
	if id := regexp.MustCompile(`(?m)^ID="?debian"?$`); id.Match(release) {
		out, err := exec.Command("apt-get", "indextargets", "--format", "$(COMPONENT) $(RELEASE) $(REPO_URI)", "Created-By: Packages").Output()
		if err != nil {
			return "", fmt.Errorf("apt-get indextargets: %w", err)
		}
		if m := debianSource(string(out)); m != "" {
			return m, nil
		}
	}
	script, _ := os.ReadFile("/usr/sbin/debootstrap")
	if m := regexp.MustCompile(`(?m)^DEF_MIRROR="(.+)"$`).FindSubmatch(script); m != nil {
		return string(m[1]), nil
	}
	return "", fmt.Errorf("no Debian mirror in this host's apt sources: set %s to the address of one", mirrorVariable)
}

// debianSource chooses Debian's archive from apt's list of "component release address": the component must be main, and
// the release must be a single word that Debian uses. Third parties that use such a release name have another
// component.
func debianSource(targets string) string {
	release := regexp.MustCompile(`^(bullseye|bookworm|trixie|forky|sid|oldoldstable|oldstable|stable|testing|unstable)$`)
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "main" && release.MatchString(f[1]) {
			return f[2]
		}
	}
	return ""
}

// lock holds the file for this process alone until the returned function is called.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintln(Progress, "fetch: waiting for another process that fetches")
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// run executes a command in dir. If it fails, the error has the last lines of its output.
func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(bytes.ToValidUTF8(out, nil))), "\n")
	return fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-3):], "; "))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
