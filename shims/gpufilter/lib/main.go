// Command lib is libnvgpufilter.so: package gpufilter for programs in C. A program loads it itself, never by
// LD_PRELOAD.
package main

import (
	"fmt"
	"strings"

	"github.com/nvmlfab/nvmlfab/library/host"
	"github.com/nvmlfab/nvmlfab/shims/gpufilter"
)

func main() {}

// install returns 0, or -1 after a line on standard error.
func install() (status int32) {
	defer func() {
		if r := recover(); r != nil {
			complain(fmt.Sprint("internal error: ", r, "; please report it"))
			status = -1
		}
	}()
	if err := gpufilter.Install(); err != nil {
		complain(err.Error())
		return -1
	}
	return 0
}

// boundImport returns 0 if there is no such import.
func boundImport(object, symbol string) (address uintptr) {
	defer func() {
		if r := recover(); r != nil {
			complain(fmt.Sprint("internal error: ", r, "; please report it"))
			address = 0
		}
	}()
	address, _ = gpufilter.BoundImport(object, symbol)
	return address
}

func complain(text string) {
	host.Complain("gpufilter: " + strings.ReplaceAll(text, "\n", "; "))
}
