// Package kernel tests the kernel modules inside a virtual machine, where its test binary is the first process.
// kernel/vm/boot starts it. The tests load modules and power the machine off, so outside of a virtual machine the
// package has no tests.
package kernel
