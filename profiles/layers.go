package profiles

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Base is the start of a board: the text of a profile file or, without text, the name of a shipped board.
type Base struct {
	Name string // of the shipped board, or of the file
	Text []byte
}

// Layer changes a board. It is written like a profile file without extends. Values that it does not mention stay.
type Layer struct {
	Name string // a file or a flag, for messages
	Text []byte
	flag bool // its errors have no line
}

// GPUs is the layer for a flag that changes the number of devices.
func GPUs(flag string, count uint32) Layer {
	return Layer{flag, fmt.Appendf(nil, "count: %d\n", count), true}
}

// Driver is the layer for a flag that changes the driver.
func Driver(flag, version string) Layer {
	return Layer{flag, fmt.Appendf(nil, "system: {driver_version: %q}\n", version), true}
}

// Only is the layer that keeps only some devices, for a container that was given some of the GPUs.
func Only(name string, devices []UUID) Layer {
	text := []byte("only:\n")
	for _, uuid := range devices {
		text = fmt.Appendf(text, "  - %s\n", uuid)
	}
	return Layer{name, text, true}
}

// SeenMIG is the layer that lets programs see only some of the MIG devices of GPUs, for a container that was given those. Its
// keys are the numbers of GPUs, its values names as in [DeviceMIG].
func SeenMIG(name string, devices map[int][]string) Layer {
	text := []byte("devices:\n")
	for _, i := range slices.Sorted(maps.Keys(devices)) {
		text = fmt.Appendf(text, "  - {index: %d, mig: {visible: [%s]}}\n", i, strings.Join(devices[i], ", "))
	}
	return Layer{name, text, true}
}

// With applies layers to the base, one after the other. Every error is an [*Error] that names the wrong file and line,
// or the wrong flag, except the error for an unknown shipped board.
func (b Base) With(layers ...Layer) (*Board, error) {
	s := stack{boards: Shipped}
	if b.Text == nil {
		board, err := Shipped(b.Name)
		if err != nil {
			return nil, err
		}
		s.start(board)
	} else if err := s.file(b.Name, b.Text); err != nil {
		return nil, err
	}
	for _, l := range layers {
		if err := s.layer(l); err != nil {
			return nil, err
		}
	}
	return s.board, nil
}

// File is one profile file that is equal to the base with these layers. Each layer is one document of it.
func (b Base) File(layers ...Layer) []byte {
	text := slices.Clone(b.Text)
	if text == nil {
		text = fmt.Appendf(nil, "extends: %s\n", b.Name)
	}
	for _, l := range layers {
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		text = fmt.Appendf(text, "---\n%s", l.Text)
	}
	return text
}

// stack is a board to which documents are applied one after the other.
type stack struct {
	boards   func(string) (*Board, error) // that documents may extend
	board    *Board
	template Properties // of devices that the board does not have
}

// start starts with a complete board.
func (s *stack) start(board *Board) { s.board, s.template = board, board.Devices[0].Properties }

// file starts with a profile file.
func (s *stack) file(name string, data []byte) error {
	roots, err := documents(data)
	if err == nil {
		err = s.extend(find(roots[0], "extends"))
	}
	if err == nil {
		err = s.lay(roots[0])
	}
	if err == nil {
		err = s.layers(roots[1:])
	}
	if err != nil {
		return named(name, err)
	}
	s.board.Name = boardName(name)
	return nil
}

func (s *stack) layer(l Layer) error {
	roots, err := documents(l.Text)
	if err == nil {
		err = s.layers(roots)
	}
	if err == nil {
		return nil
	}
	e := named(l.Name, err)
	if l.flag {
		e.Line = 0
	}
	return e
}

// layers applies documents to the board. None of them may extend another board.
func (s *stack) layers(roots []*yaml.Node) error {
	for _, root := range roots {
		if n := find(root, "extends"); n != nil {
			return wrong(n, "extends: only the first document of a profile names what it extends")
		}
		if err := s.lay(root); err != nil {
			return err
		}
	}
	return nil
}

// extend starts from the board that extends names.
func (s *stack) extend(n *yaml.Node) error {
	if n == nil {
		return nil
	}
	var name string
	var d decoder
	if err := d.over(n, &name, "extends"); err != nil {
		return err
	}
	board, err := s.boards(name)
	if err != nil {
		return wrong(n, "extends: %s", err)
	}
	s.start(board)
	s.board.Version = Opt[string]{} // the version belongs to the file of that board
	return nil
}

func (s *stack) lay(root *yaml.Node) error {
	b := &builder{template: s.template, boards: s.boards}
	board, err := b.lay(root, s.board)
	if err != nil {
		return err
	}
	if s.board != nil {
		board.Name = s.board.Name
	}
	s.board, s.template = board, b.template
	return nil
}

// named adds the name of its file to an error.
func named(name string, err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Line: 1, Text: err.Error()}
	}
	return &Error{name, e.Line, e.Text}
}

// keep removes all devices but those that "only" names, and puts them in its order.
func (b *builder) keep(board *Board, at *yaml.Node) error {
	if len(b.Only) == 0 {
		return wrong(at, "only names no device: leave it out to keep all")
	}
	all, before := board.Devices, *board
	to := map[uint32]uint32{} // old index → new index
	board.Devices = nil
	for i, name := range b.Only {
		from := slices.IndexFunc(all, func(d Device) bool {
			return string(d.UUID) == string(name) || strconv.FormatUint(uint64(d.Index), 10) == string(name)
		})
		if from < 0 {
			return wrong(at, "only[%d]: there is no device %s", i, name)
		}
		if _, twice := to[uint32(from)]; twice {
			return wrong(at, "only[%d]: device %s is named twice", i, name)
		}
		to[uint32(from)] = uint32(i)
		d := all[from]
		d.Index = uint32(i)
		board.Devices = append(board.Devices, d)
	}
	board.NVLink = board.NVLink.renumbered(all, to)
	board.InfiniBand = before.renumbered(to)
	return nil
}

// Without is the board without some of its devices. The others move up.
func (b *Board) Without(devices []UUID) *Board {
	if len(devices) == 0 {
		return b
	}
	c := *b
	c.Devices = nil
	to := map[uint32]uint32{} // old index → new index
	for _, d := range b.Devices {
		if slices.Contains(devices, d.UUID) {
			continue
		}
		to[d.Index] = uint32(len(c.Devices))
		d.Index = uint32(len(c.Devices))
		c.Devices = append(c.Devices, d)
	}
	c.NVLink = c.NVLink.renumbered(b.Devices, to)
	c.InfiniBand = b.renumbered(to)
	return &c
}

// renumbered returns the fabric with the new numbers of the devices. A link to a removed device keeps its address.
func (n NVLink) renumbered(all []Device, to map[uint32]uint32) NVLink {
	var lists []DeviceLinks
	for _, list := range n.DeviceLinks {
		if _, stays := to[list.Index]; stays {
			lists = append(lists, list)
		}
	}
	hasOwn := func(index uint32) bool {
		return slices.ContainsFunc(n.DeviceLinks, func(l DeviceLinks) bool { return l.Index == index })
	}
	if _, stays := to[0]; stays && len(n.Links) > 0 && !hasOwn(0) {
		lists = append(lists, DeviceLinks{Index: 0, Links: n.Links})
	}
	n.DeviceLinks, n.Links = nil, nil
	for _, list := range lists {
		links := slices.Clone(list.Links)
		for i := range links {
			l := &links[i]
			index, ok := l.RemoteIndex.Get()
			if after, stays := to[index]; ok && stays {
				l.RemoteIndex = Some(after)
			} else if ok && uint64(index) < uint64(len(all)) {
				l.RemoteIndex = Opt[uint32]{}
				l.RemotePCIBusID, l.RemoteDeviceType = all[index].PCI.BusID, Some("gpu")
			}
		}
		n.DeviceLinks = append(n.DeviceLinks, DeviceLinks{to[list.Index], links})
	}
	return n
}
