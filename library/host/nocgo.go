//go:build !cgo

// This package is C code, so it is built with cgo: with CGO_ENABLED=1 and a C compiler, on Debian gcc and libc6-dev. The
// compiler says so by the name of what is missing here.
package host

var _ = code_for_other_processes_needs_cgo_set_CGO_ENABLED_1_and_install_a_C_compiler
