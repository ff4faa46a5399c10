//go:build !cgo

// The filter puts a function in C into NVIDIA's libraries, so it is built with cgo: with CGO_ENABLED=1 and a C compiler,
// on Debian gcc and libc6-dev. The compiler says so by the name of what is missing here.
package gpufilter

var _ = the_NVENC_filter_needs_cgo_set_CGO_ENABLED_1_and_install_a_C_compiler
