package machine

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// pool makes one file of many that are equal and that nobody may write: a machine with a thousand GPUs has forty thousand such
// files in sysfs, and a few thousand different texts in them. Of several files the first goes into a folder of the pool's, and
// from there under all their names, which takes a fifth of the time and no room. The folder is gone in the end.
//
// A node that stands in several places of the tree is one file too, whoever may write it.
type pool struct {
	above, dir int
	at         string // the folder's path, for errors
	texts      map[string]*sharedFile
	nodes      map[*Node]*sharedFile

	mutex sync.Mutex // of made, and of the files' names
	made  int        // files in the folder, which are numbered
}

// sharedFile is a file with several names.
type sharedFile struct {
	uses int
	name string // in the pool's folder; empty until it is made
}

// poolName is the name of a pool's folder. Nothing of a machine's is called so.
const poolName = ".nvmlfab-texts"

// Share lets the maker make one file of those below a node that are equal. The pool's folder is in an open folder on the same
// filesystem, whose path is for errors. Close must follow when all is made.
func (m *Maker) Share(above int, at string, n *Node) (err error) {
	p := &pool{above: above, at: path.Join(at, poolName), texts: map[string]*sharedFile{}, nodes: map[*Node]*sharedFile{}}
	if err := unix.Mkdirat(above, poolName, 0o700); err != nil {
		return &fs.PathError{Op: "mkdir", Path: p.at, Err: err}
	}
	m.pool = p
	if p.dir, err = unix.Openat(above, poolName, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &fs.PathError{Op: "open", Path: p.at, Err: err}
	}
	p.count(n)
	return nil
}

// Close takes the pool's folder away.
func (m *Maker) Close() error {
	p := m.pool
	if p == nil {
		return nil
	}
	m.pool = nil
	for i := range p.made {
		if err := unix.Unlinkat(p.dir, strconv.Itoa(i), 0); err != nil {
			return &fs.PathError{Op: "remove", Path: path.Join(p.at, strconv.Itoa(i)), Err: err}
		}
	}
	if err := errors.Join(unix.Close(p.dir), unix.Unlinkat(p.above, poolName, unix.AT_REMOVEDIR)); err != nil {
		return &fs.PathError{Op: "remove", Path: p.at, Err: err}
	}
	return nil
}

// count counts how often each file is below a node.
func (p *pool) count(n *Node) {
	for _, child := range n.Children {
		switch {
		case child.Mode.IsDir():
			p.count(child)
		case !child.Mode.IsRegular() || child.Source != "" || child.Live:
		case child.Mode.Perm() != readable:
			count(p.nodes, child)
		default:
			count(p.texts, child.Data)
		}
	}
}

func count[K comparable](files map[K]*sharedFile, key K) {
	f := files[key]
	if f == nil {
		f = &sharedFile{}
		files[key] = f
	}
	f.uses++
}

// find returns the shared file that is the node's; nil if it has one of its own.
func (p *pool) find(n *Node) *sharedFile {
	if p == nil || n.Source != "" || n.Live {
		return nil
	}
	f := p.nodes[n]
	if n.Mode.Perm() == readable {
		f = p.texts[n.Data]
	}
	if f == nil || f.uses < 2 {
		return nil
	}
	return f
}

// link gives a shared file one more name. A filesystem may have no more than so many links to one file: then the next is made.
func (p *pool) link(f *sharedFile, n *Node, dir int, name string) error {
	for full := ""; ; {
		file, err := p.file(f, n, full)
		if err != nil {
			return err
		}
		if err = unix.Linkat(p.dir, file, dir, name, 0); err != unix.EMLINK {
			return err
		}
		full = file
	}
}

// file is the name of a shared file that is not full. It makes the file if there is none.
func (p *pool) file(f *sharedFile, n *Node, full string) (string, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if f.name == full {
		name := strconv.Itoa(p.made)
		if err := writeFile(p.dir, name, n, false); err != nil {
			return "", err
		}
		f.name = name
		p.made++
	}
	return f.name, nil
}
