package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Mirror keeps the files of a staged tree that follow its InfiniBand fabric: states, rates, LIDs and counters.
type Mirror struct {
	root     string
	adapters []*adapter
	written  map[string]string // what files hold, by path
}

// NewMirror returns the mirror of a tree with a board's adapters, which are those of a host.
func NewMirror(root string, board *profiles.Board, f *fabric.Fabric, host string) *Mirror {
	return &Mirror{root: root, adapters: adaptersOf(board, Options{Fabric: f, Host: host}), written: map[string]string{}}
}

// Update writes the files that are no longer as the fabric is. Each is replaced whole, so that nobody reads half of one.
func (m *Mirror) Update(f *fabric.Fabric, host string, now time.Time) error {
	var failed []error
	nodes := f.Host(host)
	for i, a := range m.adapters {
		if i == len(nodes) {
			break
		}
		class := filepath.Join(m.root, classIB, a.Name)
		for _, p := range nodes[i].Ports[1:] {
			dir := filepath.Join(class, "ports", fmt.Sprint(p.Number))
			for name, text := range liveFiles(a, p) {
				failed = append(failed, m.put(dir, name, text))
			}
			failed = append(failed, m.put(dir, filepath.Join("hw_counters", string(fabric.RcvWriteRequests)), fmt.Sprintf("%d\n", f.Read(p, fabric.RcvWriteRequests, now))))
			for _, c := range fabric.Files() {
				failed = append(failed, m.put(dir, filepath.Join("counters", string(c)), fmt.Sprintf("%d\n", f.Read(p, c, now))))
			}
		}
		for name, text := range liveNet(nodes[i].Ports[1]) {
			failed = append(failed, m.put(filepath.Join(class, "device/net", a.NetDevice), name, text))
		}
	}
	return errors.Join(failed...)
}

// put gives a file a text, if it has another.
func (m *Mirror) put(dir, name, text string) error {
	path := filepath.Join(dir, name)
	have, known := m.written[path]
	if !known {
		old, err := os.ReadFile(path)
		if err != nil {
			return err // not of a tree with these adapters
		}
		have = string(old)
	}
	if have != text {
		temporary := filepath.Join(filepath.Dir(path), "."+strings.TrimPrefix(filepath.Base(path), ".")+".new")
		if err := os.WriteFile(temporary, []byte(text), readable); err != nil {
			return err
		}
		if err := os.Chmod(temporary, readable); err != nil { // whatever the umask is
			return err
		}
		if err := os.Rename(temporary, path); err != nil {
			return err
		}
	}
	m.written[path] = text
	return nil
}
