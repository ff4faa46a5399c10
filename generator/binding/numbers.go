package binding

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
)

// FirstSlot is the number of nvidia-smi's table at the call gate: entry n has the number FirstSlot + n.
const FirstSlot = 0x8000

// NumbersFile is where the numbers of symbols are committed, below the root of the source tree.
const NumbersFile = "nvml-headers/numbers.txt"

const numbersHead = `# The number of each symbol at the call gate between front and core. A number is never changed and never
# used again: "go run ./generator --update" appends the symbols of a new header and leaves every line as it is.
# The last word is a checksum over this line and all lines before it, so that a change does not go unnoticed.
# The entries of nvidia-smi's table are not here: entry n has the number 0x8000 + n.
`

// Numbers holds the number of each symbol.
type Numbers struct {
	names []string // in the order of their numbers, from 1
	of    map[string]int
	text  strings.Builder
	sum   uint32
}

// ReadNumbers reads the committed file and refuses it if a line was changed, removed or inserted.
func ReadNumbers(path string) (*Numbers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read numbers of symbols: %w; they are committed: restore the file", err)
	}
	n := newNumbers()
	at := 0
	for line := range strings.Lines(string(text)) {
		at++
		if strings.HasPrefix(line, "#") {
			continue
		}
		if words := strings.Fields(line); len(words) != 3 || n.of[words[1]] != 0 || n.add(words[1]) != line {
			return nil, fmt.Errorf("%s:%d: this line or one before it was changed, and numbers never change; "+
				"restore the file and run go run ./generator --update, which appends", NumbersFile, at)
		}
	}
	return n, nil
}

func newNumbers() *Numbers {
	n := &Numbers{of: map[string]int{}}
	n.text.WriteString(numbersHead)
	return n
}

// Of is the number of a symbol, 0 if it has none.
func (n *Numbers) Of(name string) int { return n.of[name] }

// add gives a symbol the next number and returns its line.
func (n *Numbers) add(name string) string {
	n.names = append(n.names, name)
	n.of[name] = len(n.names)
	line := fmt.Sprintf("%d %s", len(n.names), name)
	n.sum = crc32.Update(n.sum, crc32.IEEETable, []byte(line+"\n"))
	line = fmt.Sprintf("%s %08x\n", line, n.sum)
	n.text.WriteString(line)
	return line
}

// Append gives numbers to symbols that have none: first those of older headers, then in the order of names.
func (n *Numbers) Append(m *Models) {
	symbols := slices.SortedFunc(maps.Values(collect(m)), func(a, b *Symbol) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), strings.Compare(a.Name, b.Name))
	})
	for _, s := range symbols {
		if n.of[s.Name] == 0 && s.Slot() == 0 {
			n.add(s.Name)
		}
	}
}

// Text is the content of the file.
func (n *Numbers) Text() []byte { return []byte(n.text.String()) }

// setNumber finds the symbol's number.
func (s *Symbol) setNumber(numbers *Numbers) error {
	if s.Kind == Slot {
		s.Number = FirstSlot + s.Slot()
		return nil
	}
	s.Number = numbers.of[s.Name]
	switch {
	case s.Number == 0:
		return fmt.Errorf("%s: %s has no number for it; run go run ./generator --update", s.Name, NumbersFile)
	case s.Number >= FirstSlot:
		return fmt.Errorf("%s: its number %d is beyond %d, where those of nvidia-smi's table begin", s.Name, s.Number, FirstSlot)
	}
	return nil
}
