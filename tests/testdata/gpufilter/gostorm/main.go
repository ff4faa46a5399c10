// Command gostorm is a Go program on package gpufilter: gostorm LIBRARY. While the storm of storm.h goes on, it allocates
// and collects.
package main

/*
#cgo CFLAGS: -I..
#cgo LDFLAGS: -rdynamic -ldl -lpthread
#include "storm.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/nvmlfab/nvmlfab/shims/gpufilter"
)

func main() {
	C.storm_load(C.CString(os.Args[1]))
	if err := gpufilter.Install(); err != nil {
		panic(err)
	}
	C.storm_start()
	var garbage [][]byte
	collections := 0
	for ; C.storm_over() == 0; collections++ {
		garbage = append(garbage[:min(len(garbage), 100)], make([]byte, 1<<16))
		runtime.GC()
		if err := gpufilter.Install(); err != nil {
			panic(err)
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("%d wrong\n", C.storm_result())
	fmt.Fprintf(os.Stderr, "%d collections\n", collections)
}
