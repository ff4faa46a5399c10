// Command fetch gets Debian packages for tests and prints the folder of each: go run ./tests/fetch [-q] NAME...
//
// Without a name it lists the names. -q turns off progress messages on standard error. -kernel-headers 6.12 prints the
// folder for building modules for Debian's cloud kernel of that series.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nvmlfab/nvmlfab/tests/debian"
)

func main() {
	quiet := flag.Bool("q", false, "print no progress")
	headers := flag.String("kernel-headers", "", "print the folder to build modules for Debian's cloud kernel in; one of "+strings.Join(debian.Kernels(), ", "))
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: fetch [-q] [-kernel-headers SERIES] NAME...\nnames: %s\n", strings.Join(debian.Names(), " "))
	}
	flag.Parse()
	if flag.NArg() == 0 && *headers == "" {
		flag.Usage()
		os.Exit(2)
	}
	if *quiet {
		debian.Progress = io.Discard
	}
	if *headers != "" {
		kernel, err := debian.FetchKernel(*headers)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fetch:", err)
			os.Exit(1)
		}
		fmt.Println(kernel.Headers)
	}
	for _, name := range flag.Args() {
		dir, err := debian.Fetch(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fetch:", err)
			os.Exit(1)
		}
		fmt.Println(dir)
	}
}
