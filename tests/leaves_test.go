package tests

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaf is an element without children in the output of nvidia-smi -q -x: a path such as gpu[0]/pci/pci_bus, and its
// text.
type leaf struct{ path, value string }

// nameOf is a leaf's path without indices.
func nameOf(path string) string { return index.ReplaceAllString(path, "") }

var index = regexp.MustCompile(`\[\d+\]`)

// captured reads testdata/captures/BOARD.txt, with a line "path = value" for each leaf. gpu[*] means each of
// attached_gpus.
func captured(t *testing.T, board string) []leaf {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "captures", board+".txt"))
	require.NoError(t, err)
	var leaves []leaf
	gpus := 0
	for line := range strings.Lines(string(text)) {
		path, value, found := strings.Cut(strings.TrimSpace(line), " =")
		if !found || strings.HasPrefix(path, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		if path == "attached_gpus" {
			gpus, err = strconv.Atoi(value)
			require.NoError(t, err)
		}
		if !strings.HasPrefix(path, "gpu[*]") {
			leaves = append(leaves, leaf{path, value})
			continue
		}
		for i := range gpus {
			leaves = append(leaves, leaf{strings.Replace(path, "*", strconv.Itoa(i), 1), value})
		}
	}
	return leaves
}

// steps matches a list of clocks in the form of the captures: highest..lowest/step.
var steps = regexp.MustCompile(`^([\d.]+)\.\.(\d+)/([\d.]+) MHz$`)

// expanded writes out a list of clocks, and returns any other value unchanged.
func expanded(value string) string {
	m := steps.FindStringSubmatch(value)
	if m == nil {
		return value
	}
	var number [3]float64
	for i := range number {
		number[i], _ = strconv.ParseFloat(m[i+1], 64)
	}
	var list []string
	for clock := number[0]; clock >= number[1]; clock -= number[2] {
		list = append(list, fmt.Sprintf("%d MHz", int(clock)))
	}
	return strings.Join(list, ", ")
}

// document is the output of nvidia-smi -q -x --dtd.
type document struct {
	leaves   []leaf
	children map[string][]string // of each element, according to the program's own DTD
}

var declaration = regexp.MustCompile(`(?s)<!(?:ELEMENT|ATTLIST)\s+(\w+)\s+(.*?)>`)

func parse(t *testing.T, text string) document {
	t.Helper()
	d := document{children: map[string][]string{}}
	for _, m := range declaration.FindAllStringSubmatch(text, -1) {
		d.children[m[1]] = append(d.children[m[1]], regexp.MustCompile(`\w+`).FindAllString(m[2], -1)...)
	}
	require.NotEmpty(t, d.children)
	var top element
	require.NoError(t, xml.Unmarshal([]byte(text), &top))
	d.add(top, "")
	return d
}

type element struct {
	XMLName  xml.Name
	ID       string    `xml:"id,attr"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// add appends the leaves below an element. Leaves with the same name become one list.
func (d *document) add(e element, path string) {
	if e.ID != "" {
		d.leaves = append(d.leaves, leaf{path + "id", e.ID})
	}
	seen := map[string]int{}
	for _, child := range e.Children {
		name := child.XMLName.Local
		below := path + name
		if len(child.Children) > 0 {
			if slices.Contains([]string{"gpu", "supported_mem_clock"}, name) {
				below = fmt.Sprintf("%s[%d]", below, seen[name])
			}
			d.add(child, below+"/")
		} else if value := strings.Join(strings.Fields(child.Text), " "); seen[name] == 0 {
			d.leaves = append(d.leaves, leaf{below, value})
		} else {
			d.leaves[len(d.leaves)-1].value += ", " + value
		}
		seen[name]++
	}
}

// declares reports whether the DTD of the printed document has such a leaf.
func (d *document) declares(name string) bool {
	parent := "nvidia_smi_log"
	for part := range strings.SplitSeq(name, "/") {
		if !slices.Contains(d.children[parent], part) {
			return false
		}
		parent = part
	}
	return true
}
