// Command goprog prints what a program without libc sees: the addresses of NVIDIA's GPUs in /sys or, with a GPU's
// address as its argument, a line for each way to reach that GPU.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const devices = "/sys/bus/pci/devices"

func main() {
	if len(os.Args) == 1 {
		list()
		return
	}
	bdf := os.Args[1]
	file := filepath.Join(devices, bdf, "vendor")
	say := func(way string, found bool, err error) { fmt.Println(way+":", found, err) }
	read := func(way, path string) {
		text, err := os.ReadFile(path)
		say(way, string(text) == "0x10de\n", err)
	}
	read("read", file)
	read("/proc/self/root", "/proc/self/root"+file)
	target, err := filepath.EvalSymlinks(filepath.Join(devices, bdf))
	say("links", strings.HasPrefix(target, "/sys/devices/pci") && filepath.Base(target) == bdf, err)
	matches, err := filepath.Glob(devices + "/" + bdf[:7] + "*/vend?r")
	say("glob", len(matches) == 1 && matches[0] == file, err)
	walked := false
	err = filepath.WalkDir(devices, func(path string, _ fs.DirEntry, err error) error {
		walked = walked || filepath.Base(path) == bdf
		return err
	})
	say("walk", walked, err)
	root, err := os.OpenRoot("/sys/devices")
	if err == nil {
		var f *os.File
		if f, err = root.Open(strings.TrimPrefix(target, "/sys/devices/") + "/vendor"); err == nil {
			f.Close()
		}
	}
	say("root", err == nil, err)
	err = os.Chdir("/sys")
	text, err2 := os.ReadFile("bus/pci/devices/" + bdf + "/vendor")
	say("cwd", string(text) == "0x10de\n", fmt.Errorf("%v %v", err, err2))
	var stat syscall.Stat_t
	err = syscall.Stat(file, &stat)
	say("stat", err == nil, err)
}

func list() {
	entries, err := os.ReadDir(devices)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, e := range entries {
		vendor, _ := os.ReadFile(filepath.Join(devices, e.Name(), "vendor"))
		class, _ := os.ReadFile(filepath.Join(devices, e.Name(), "class"))
		if string(vendor) == "0x10de\n" && strings.HasPrefix(string(class), "0x03") {
			fmt.Println(e.Name())
		}
	}
}
