package debian

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// crate is a Rust crate as Debian packages it, in source.
type crate struct {
	name     string // and version, as its folder is called
	edition  string
	kind     string // lib, proc-macro, or test for the crate's own tests
	features string
	uses     string // crates that its source names
}

// nvmlWrapper are the crate nvml-wrapper and those that it is built from, each after those that it uses.
var nvmlWrapper = []crate{
	{"unicode-ident-1.0.0", "2018", "lib", "", ""},
	{"proc-macro2-1.0.47", "2018", "lib", "proc-macro", "unicode_ident"},
	{"quote-1.0.21", "2018", "lib", "proc-macro", "proc_macro2"},
	{"syn-1.0.107", "2018", "lib", "derive parsing printing clone-impls proc-macro full extra-traits", "proc_macro2 quote unicode_ident"},
	{"fnv-1.0.7", "2015", "lib", "std default", ""},
	{"ident_case-1.0.1", "2015", "lib", "", ""},
	{"darling_core-0.14.1", "2018", "lib", "", "fnv ident_case proc_macro2 quote syn"},
	{"darling_macro-0.14.1", "2018", "proc-macro", "", "darling_core quote syn"},
	{"darling-0.14.1", "2018", "lib", "", "darling_core darling_macro"},
	{"wrapcenum-derive-0.4.0", "2018", "proc-macro", "", "darling proc_macro2 quote syn"},
	{"thiserror-impl-1.0.38", "2018", "proc-macro", "", "proc_macro2 quote syn"},
	{"thiserror-1.0.38", "2018", "lib", "", "thiserror_impl"},
	{"cfg-if-1.0.0", "2018", "lib", "", ""},
	{"libloading-0.7.4", "2015", "lib", "", "cfg_if"},
	{"bitflags-1.3.2", "2018", "lib", "", ""},
	{"static_assertions-1.1.0", "2018", "lib", "", ""},
	{"nvml-wrapper-sys-0.7.0", "2018", "lib", "legacy-functions", "libloading"},
	{"nvml-wrapper-0.9.0", "2018", "test", "legacy-functions", "bitflags libloading nvml_wrapper_sys static_assertions thiserror wrapcenum_derive"},
}

// finishNVMLWrapper builds the crate's own tests, as the one program in the tree, with the compiler of the same Debian.
// Cargo would want crates that Debian does not have, for the crate's examples and its git hooks.
func finishNVMLWrapper(tree, _ string) error {
	built, err := os.MkdirTemp(filepath.Dir(tree), "rust-*")
	if err != nil {
		return err
	}
	fmt.Fprintln(Progress, "fetch: building the tests of nvml-wrapper")
	for _, c := range nvmlWrapper {
		if err := c.compile(tree, built); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	const program = "nvml-wrapper-tests"
	return errors.Join(os.RemoveAll(tree), os.Mkdir(tree, 0o755),
		os.Rename(filepath.Join(built, "nvml_wrapper"), filepath.Join(tree, program)), os.RemoveAll(built))
}

func (c crate) compile(tree, built string) error {
	source := filepath.Join(tree, "usr/share/cargo/registry", c.name, "src/lib.rs")
	if !exists(source) { // a crate may have it without the folder
		source = filepath.Join(filepath.Dir(filepath.Dir(source)), "lib.rs")
	}
	name := strings.ReplaceAll(c.name[:strings.LastIndex(c.name, "-")], "-", "_")
	args := []string{"--crate-name", name, "--edition", c.edition, "--cap-lints", "allow", "-C", "strip=symbols",
		"-L", "dependency=" + built, "--out-dir", built}
	switch c.kind {
	case "test":
		args = append(args, "--test")
	case "proc-macro":
		args = append(args, "--crate-type", c.kind, "--extern", "proc_macro")
	default:
		args = append(args, "--crate-type", c.kind)
	}
	if name == "proc_macro2" { // what its build script finds out about this compiler
		args = append(args, "--cfg", "use_proc_macro", "--cfg", "wrap_proc_macro")
	}
	for _, feature := range strings.Fields(c.features) {
		args = append(args, "--cfg", fmt.Sprintf("feature=%q", feature))
	}
	for _, used := range strings.Fields(c.uses) {
		library := filepath.Join(built, "lib"+used+".rlib")
		if !exists(library) { // a macro's
			library = strings.TrimSuffix(library, ".rlib") + ".so"
		}
		args = append(args, "--extern", used+"="+library)
	}
	cmd := exec.Command(filepath.Join(tree, "usr/bin/rustc"), append(args, source)...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(tree, libraryFolder))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
