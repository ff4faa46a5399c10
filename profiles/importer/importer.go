// Package importer makes a profile of what nvidia-smi printed on a real machine.
//
// It reads nvidia-smi -q -x and nvidia-smi -q of the drivers 340 to 610, also where a bug report quotes them between other
// text, and beside it topo -m, nvlink -s and --query-supported-clocks of the same machine. Whatever it does not
// understand becomes a [Note] with its line.
package importer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// These limits keep a hostile file from occupying its reader.
const (
	MaxFile  = 32 << 20 // bytes of a file
	maxGPUs  = 1024
	maxDepth = 16
	maxNotes = 10_000
)

// File is a file with output of nvidia-smi.
type File struct {
	Name string // for messages
	Text []byte
}

// Options say how a profile is made.
type Options struct {
	// KeepIdentifiers keeps UUIDs, serial numbers and other identifiers, and the folders of programs. Otherwise they are
	// replaced by made-up ones.
	KeepIdentifiers bool
}

// Note is something that the profile does not have, and where it stands.
type Note struct {
	File string
	Line int
	Text string
}

func (n Note) String() string { return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Text) }

// Result is a profile, and what is missing in it.
type Result struct {
	Profile []byte
	Notes   []Note
}

// Import makes one profile of files from one machine. Every error names its file and line, and is a [*profiles.Error].
func Import(files []File, o Options) (*Result, error) {
	r := &reader{options: o}
	for _, f := range files {
		if err := r.read(f); err != nil {
			return nil, err
		}
	}
	if r.log == nil {
		if len(files) == 0 {
			return nil, errors.New("there is no file to import")
		}
		return nil, &profiles.Error{File: files[0].Name, Line: 1, Text: "holds no output of nvidia-smi -q or nvidia-smi -q -x"}
	}
	text, err := r.write()
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.notes, func(a, b Note) int {
		if a.File != b.File {
			return 0
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return &Result{text, r.notes}, nil
}

// reader collects what the files of a machine say.
type reader struct {
	options Options
	file    string // the one that is being read
	notes   []Note
	log     *log
	topo    *topo
	links   []linkList
	clocks  []clockList
}

// note adds a note, unless there are too many already.
func (r *reader) note(line int, format string, args ...any) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, Note{r.file, line, fmt.Sprintf(format, args...)})
	}
}

// wrong is an error in the file that is being read.
func (r *reader) wrong(line int, format string, args ...any) error {
	return &profiles.Error{File: r.file, Line: line, Text: fmt.Sprintf(format, args...)}
}

// log is what nvidia-smi -q printed, in either form.
type log struct {
	file         string
	line         int
	driver, cuda leaf
	attached     leaf
	gpus         []*gpu
}

// gpu is what it printed about a GPU.
type gpu struct {
	id        leaf // the bus id
	leaves    []leaf
	processes [][]leaf
	instances [][]leaf // MIG devices
	addresses []leaf   // of retired pages
	accounted []leaf   // of processes that have ended
	supported []memoryClock
}

// leaf is one value: its path, as -q -x has it, without what is around all of the GPU's values.
type leaf struct {
	path, value string
	line        int
}

// memoryClock is a memory clock with the graphics clocks that go with it, all in MHz.
type memoryClock struct {
	memory   leaf
	graphics []leaf
}

// add adds a value to the GPU. It knows the lists.
func (g *gpu) add(l leaf) {
	g.leaves = append(g.leaves, l)
}

// value is a leaf's value, empty if there is none.
func (g *gpu) value(path string) string {
	l, _ := g.find(path)
	return l.value
}

func (g *gpu) find(path string) (leaf, bool) {
	i := slices.IndexFunc(g.leaves, func(l leaf) bool { return l.path == path })
	if i < 0 {
		return leaf{}, false
	}
	return g.leaves[i], true
}

// read reads one file. Its lines belong to a piece of output each, or to none.
func (r *reader) read(f File) error {
	r.file = f.Name
	if len(f.Text) > MaxFile {
		return r.wrong(1, "is larger than %d MiB: want output of nvidia-smi", MaxFile>>20)
	}
	text := strings.TrimPrefix(string(f.Text), "\ufeff")
	for i, line := 0, 1; i < len(text); {
		c, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			return r.wrong(line, "is not text in UTF-8")
		case c == '\n':
			line++
		case unicode.IsControl(c) && c != '\t' && c != '\r' && c != '\x1b':
			return r.wrong(line, "holds the control character %q: want a text file", c)
		}
		i += size
	}
	if strings.TrimSpace(text) == "" {
		return r.wrong(1, "is empty: want output of nvidia-smi")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = cleaned(lines[i])
	}
	unread := 0 // the first of the lines that belong to nothing
	for i := 0; i < len(lines); {
		next, err := r.piece(lines, i)
		if err != nil {
			return err
		}
		if next == i {
			i++
			continue
		}
		r.skipped(lines, unread, i)
		i, unread = next, next
	}
	r.skipped(lines, unread, len(lines))
	return nil
}

// cleaned is a line without the end of a DOS line, without a terminal's colours, and with blanks for other spaces.
func cleaned(line string) string {
	line = strings.TrimRight(line, "\r")
	line = escape.ReplaceAllString(line, "")
	return strings.ReplaceAll(line, "\u00a0", " ")
}

// piece reads the piece of output that begins at a line, and returns the line after it; the same line if none begins.
func (r *reader) piece(lines []string, at int) (next int, err error) {
	line := strings.TrimSpace(lines[at])
	switch {
	case strings.HasPrefix(line, "<?xml") || strings.HasPrefix(line, "<nvidia_smi_log"):
		return r.xml(lines, at)
	case banner.MatchString(line):
		return r.text(lines, at)
	case topoHeader.MatchString(line):
		return r.matrix(lines, at)
	case linkHeader.MatchString(line):
		return r.linkList(lines, at)
	case clockHeader.MatchString(line):
		return r.clockTable(lines, at)
	}
	return at, nil
}

// skipped notes lines that belong to nothing.
func (r *reader) skipped(lines []string, from, to int) {
	for from < to && ornament.MatchString(lines[from]) {
		from++
	}
	for to > from && ornament.MatchString(lines[to-1]) {
		to--
	}
	switch {
	case from == to:
	case to-from == 1:
		r.note(from+1, "not understood: %s", quoted(lines[from]))
	default:
		r.note(from+1, "the lines to %d are not understood; the first is %s", to, quoted(lines[from]))
	}
}

// keep keeps a log, and notes a further one.
func (r *reader) keep(l *log) error {
	if r.log != nil {
		r.note(l.line, "a further output of -q: the profile is made of the one in %s:%d", r.log.file, r.log.line)
		return nil
	}
	if len(l.gpus) == 0 {
		return r.wrong(l.line, "the output has no GPU")
	}
	if value := l.attached.value; value != "" {
		n, err := strconv.Atoi(value)
		switch {
		case err != nil || n < len(l.gpus):
			return r.wrong(l.attached.line, "attached_gpus is %s, and the output has %d GPUs", quoted(value), len(l.gpus))
		case n > len(l.gpus):
			r.note(l.attached.line, "%d GPUs are attached, and the output has %d: it is of -i, or it is cut", n, len(l.gpus))
		}
	}
	seen := map[string]int{}
	for _, g := range l.gpus {
		id := strings.ToUpper(g.id.value)
		if first, twice := seen[id]; twice {
			return r.wrong(g.id.line, "GPU %s stands in line %d already", quoted(g.id.value), first)
		}
		seen[id] = g.id.line
		paths := map[string]int{}
		for _, leaf := range g.leaves {
			if first, twice := paths[leaf.path]; twice {
				return r.wrong(leaf.line, "%s stands in line %d already: is a part missing in between?", leaf.path, first)
			}
			paths[leaf.path] = leaf.line
		}
		for _, want := range []string{"product_name", "uuid"} {
			if _, ok := paths[want]; !ok {
				return r.wrong(g.id.line, "GPU %s has no %s: want the whole output of -q, not a part of it by -d", quoted(g.id.value), want)
			}
		}
	}
	r.log = l
	return nil
}

// quoted writes the beginning of a text between quotes.
func quoted(text string) string {
	const longest = 60
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) > longest {
		text = string([]rune(text)[:longest]) + "…"
	}
	return fmt.Sprintf("%q", text)
}
