package agent

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
)

// manifestFile is where the agent notes, below its root, what it has written on the node.
const manifestFile = "agent.json"

// manifest is all that the agent has written on a node. An entry is written before what it is about, so that whatever a
// killed agent leaves is in it.
type manifest struct {
	// Files are by path the hashes of what the agent wrote there: one, or two while a file is being replaced. A link has
	// the hash of where it leads.
	Files map[string][]string `json:"files"`
	// Labels are the node's labels that the agent has set, and their values.
	Labels map[string]string `json:"labels"`
	// Generations are the trees that have been staged, the oldest first; the last one is in force.
	Generations []generation `json:"generations"`
	// Next is the number of the next generation.
	Next int `json:"next"`
	// MIG is the MIG configuration that is in force, by name and content; empty if none has been applied.
	MIG string `json:"mig,omitempty"`

	// Unwell are the GPUs that programs which do not notice that a GPU heals take for failed.
	Unwell []string `json:"unwell,omitempty"`
	// Cut says that GPUs have been cut and such programs do not know it yet.
	Cut bool `json:"cut,omitempty"`

	path string
}

// generation is a staged tree.
type generation struct {
	Number int `json:"number"`
	// Identity is a hash of all that the tree is made from.
	Identity string `json:"identity"`
	// State is the name of the state directory.
	State   string `json:"state"`
	Profile string `json:"profile"`
	From    string `json:"from"`
	// Complete says that the tree was written whole.
	Complete bool `json:"complete"`
}

func readManifest(root string) (*manifest, error) {
	m := &manifest{path: filepath.Join(root, manifestFile), Files: map[string][]string{}, Labels: map[string]string{}, Next: 1}
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	} else if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	return m, nil
}

func (m *manifest) write() error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(m.path, append(text, '\n'), 0o644, renameio.WithTempDir(filepath.Dir(m.path)))
}

func hash(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// content is the hash of a file, or of where a link leads; empty if nothing is there.
func content(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		return hash([]byte("link " + to)), err
	case !info.Mode().IsRegular():
		return "other", nil
	}
	return hashOf(path)
}

// hashOf is the hash of a file.
func hashOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// errForeign is the error of a place where somebody else has put something.
var errForeign = errors.New("somebody else has put it there: move it away")

// put replaces what is at a path by something with a hash, and notes it. It leaves alone what the agent has not written.
func (m *manifest) put(path, want string, write func() error) error {
	is, err := content(path)
	if err != nil {
		return err
	}
	mine := m.Files[path]
	switch {
	case is == want && slices.Equal(mine, []string{want}):
		return nil
	case is != "" && is != want && !slices.Contains(mine, is):
		return fmt.Errorf("%s: %w", path, errForeign)
	}
	m.Files[path] = []string{want}
	if is != "" && is != want {
		m.Files[path] = append(m.Files[path], is)
	}
	if err := m.write(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if is != want {
		if err := write(); err != nil {
			return err
		}
	}
	m.Files[path] = []string{want}
	return m.write()
}

// file puts a file.
func (m *manifest) file(path string, text []byte, mode fs.FileMode) error {
	return m.put(path, hash(text), func() error {
		return renameio.WriteFile(path, text, mode, renameio.WithTempDir(filepath.Dir(path)), renameio.IgnoreUmask())
	})
}

// program puts a copy of a program.
func (m *manifest) program(path, from string) error {
	want, err := hashOf(from)
	if err != nil {
		return err
	}
	return m.put(path, want, func() (err error) {
		in, err := os.Open(from)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o755), renameio.WithTempDir(filepath.Dir(path)), renameio.IgnoreUmask())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Cleanup()) }()
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
		return out.CloseAtomicallyReplace()
	})
}

// link puts a link.
func (m *manifest) link(path, to string) error {
	return m.put(path, hash([]byte("link "+to)), func() error { return renameio.Symlink(to, path) })
}

// remove takes a file or a link away if it is still the agent's.
func (m *manifest) remove(path string) error {
	mine, ok := m.Files[path]
	if !ok {
		return nil
	}
	is, err := content(path)
	if err != nil {
		return err
	}
	if slices.Contains(mine, is) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	delete(m.Files, path)
	return m.write()
}
