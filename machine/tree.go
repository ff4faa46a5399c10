// Package machine computes what a machine with a profile's GPUs has in /sys, /proc, /dev and its driver's folders, and
// writes it below a folder.
package machine

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Node is a file, link, device or folder of a tree.
type Node struct {
	// Mode is type and permissions.
	Mode fs.FileMode
	// Data is what a file holds or where a link leads.
	Data string
	// Source is a file of this machine that a file is copied from, instead of Data.
	Source string
	// Live says that the content of a file changes later. Such a file is one of its own, and not immutable.
	Live bool
	// Major and Minor are the numbers of a device.
	Major, Minor uint32
	// Children are what a folder holds.
	Children map[string]*Node
}

const (
	readable   = fs.FileMode(0o444)
	changeable = fs.FileMode(0o644)
	writable   = fs.FileMode(0o200)
)

func folder() *Node { return &Node{Mode: fs.ModeDir | 0o755, Children: map[string]*Node{}} }

// Names are the names in a folder, sorted.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.Children)) }

// Find returns what is at a path below the node; nil if nothing is.
func (n *Node) Find(name string) *Node {
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		if n = n.Children[part]; n == nil {
			return nil
		}
	}
	return n
}

// Walk calls visit for everything below the node, folders before what they hold.
func (n *Node) Walk(visit func(name string, n *Node)) { n.walk("", visit) }

func (n *Node) walk(dir string, visit func(string, *Node)) {
	for _, name := range n.Names() {
		child := n.Children[name]
		visit(path.Join(dir, name), child)
		child.walk(path.Join(dir, name), visit)
	}
}

// dir returns the folder at a path, making those that are missing.
func (n *Node) dir(name string) *Node {
	for _, part := range strings.Split(path.Clean(name), "/") {
		next := n.Children[part]
		if next == nil {
			next = folder()
			n.Children[part] = next
		}
		n = next
	}
	return n
}

func (n *Node) put(name string, child *Node) {
	dir, base := path.Split(name)
	if dir != "" {
		n = n.dir(dir)
	}
	n.Children[base] = child
}

// file puts a file that can be read.
func (n *Node) file(name, data string) { n.put(name, &Node{Mode: readable, Data: data}) }

// knob puts a file that its owner can change.
func (n *Node) knob(name, data string) { n.put(name, &Node{Mode: changeable, Data: data}) }

// trigger puts a file that its owner can only write to.
func (n *Node) trigger(name string) { n.put(name, &Node{Mode: writable}) }

// live puts a file that can be read and that changes.
func (n *Node) live(name, data string) { n.put(name, &Node{Mode: readable, Data: data, Live: true}) }

func (n *Node) link(name, target string) {
	n.put(name, &Node{Mode: fs.ModeSymlink | 0o777, Data: target})
}

// between links a path of a tree to another by the relative way that the kernel would write.
func (n *Node) between(name, target string) {
	from, to := strings.Split(path.Dir(name), "/"), strings.Split(target, "/")
	for len(from) > 0 && len(to) > 0 && from[0] == to[0] {
		from, to = from[1:], to[1:]
	}
	n.link(name, strings.Repeat("../", len(from))+strings.Join(to, "/"))
}
