// Package kernel tests the kernel modules from inside: its test binary is the first process of a virtual machine that
// kernel/vm/boot starts. Outside of one there is nothing in it, since it loads modules and ends in a power-off.
package kernel
