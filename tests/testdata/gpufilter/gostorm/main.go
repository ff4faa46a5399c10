// Command gostorm is a Go program that uses package gpufilter, or libnvgpufilter.so: gostorm LIBRARY [FILTER]. It runs
// the storm of storm.h, and allocates and collects memory meanwhile.
package main

/*
#cgo CFLAGS: -I..
#cgo LDFLAGS: -rdynamic -ldl -lpthread
#include "storm.h"

static int (*install)(void);

static int load_filter(const char *path)
{
    void *filter = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = filter != NULL ? dlsym(filter, "nvgpufilter_install") : NULL;
    memcpy(&install, &symbol, sizeof install);
    return install != NULL;
}

static int call_install(void) { return install(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/nvmlfab/nvmlfab/shims/gpufilter"
)

func main() {
	C.storm_load(C.CString(os.Args[1]))
	install := gpufilter.Install
	if len(os.Args) > 2 {
		if C.load_filter(C.CString(os.Args[2])) == 0 {
			panic("no filter")
		}
		install = func() error {
			if C.call_install() != 0 {
				return errors.New("the library failed")
			}
			return nil
		}
	}
	if err := install(); err != nil {
		panic(err)
	}
	C.storm_start()
	var garbage [][]byte
	collections := 0
	for ; C.storm_over() == 0; collections++ {
		garbage = append(garbage[:min(len(garbage), 100)], make([]byte, 1<<16))
		runtime.GC()
		if err := install(); err != nil {
			panic(err)
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("%d wrong\n", C.storm_result())
	fmt.Fprintf(os.Stderr, "%d collections\n", collections)
}
