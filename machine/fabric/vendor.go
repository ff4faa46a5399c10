package fabric

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// CPU is a processor of the machine, in the words of /proc/cpuinfo.
type CPU struct{ Model, MHz string }

// server answers as the servers of ibping and ibsysstat would if they ran on the port's host. It returns nil for what they do not
// answer.
func (f *Fabric) server(to *Port, h header, mad []byte) []byte {
	const data = 40
	mad[3] |= response
	switch {
	case h.class == classPing && h.attribute == 0, h.class == classSysstat && h.attribute == 0x11:
		clear(mad[data:])
		copy(mad[data:len(mad)-1], to.Node.Host)
	case h.class == classSysstat && h.attribute == 0x10:
	case h.class == classSysstat && h.attribute == 0x12:
		var text strings.Builder
		for i, c := range f.CPUs[:min(len(f.CPUs), 256)] {
			fmt.Fprintf(&text, "cpu %d: model %s MHZ %s\n", i, c.Model, c.MHz)
		}
		return long(mad, data, append([]byte(text.String()), 0))
	default:
		return nil
	}
	return mad
}

// long is an answer in a class of vendors' whose data begins at an offset. What does not fit into one datagram has the header that
// RMPP leaves when it puts segments together.
func long(mad []byte, offset int, data []byte) []byte {
	room := MADSize - offset
	clear(mad[24:36])
	if len(data) <= room {
		clear(mad[offset:])
		copy(mad[offset:], data)
		return mad
	}
	answer := append(slices.Clip(mad[:offset]), data...)
	segments := (len(data) + room - 1) / room
	answer[24], answer[25], answer[26] = 1, 1, 3 // version 1: data, active, the first segment
	be.PutUint32(answer[28:], 1)
	be.PutUint32(answer[32:], uint32(len(data)+segments*(offset-36))) // each segment counts its own header
	return answer
}

// Attributes of Mellanox's own class.
const (
	attrMellanoxClassInfo = 0x01
	attrGeneralInfo       = 0x17
)

// firmwares are those of switches, which no profile describes.
var firmwares = map[uint16]struct{ version, board string }{0xd2f2: {"31.2012.1024", "MT_0000000577"}}

// firmware answers a request to a node's firmware in place, as vendstat sends it.
func (f *Fabric) firmware(n *Node, h header, mad []byte, now time.Time) {
	data := mad[24:MADSize]
	mad[3] = methodGet | response
	switch {
	case h.method != methodGet:
		setStatus(mad, statusBadMethod)
	case h.attribute == attrMellanoxClassInfo:
		clear(data)
		data[0], data[1] = 1, 1
	case h.attribute == attrGeneralInfo:
		clear(data)
		f.generalInfo(n, data[8:], now)
	default:
		setStatus(mad, statusBadAttribute)
	}
}

// generalInfo fills in what hardware and firmware a node has.
func (f *Fabric) generalInfo(n *Node, data []byte, now time.Time) {
	revision, version, board := n.Revision, firmwares[n.DeviceID].version, firmwares[n.DeviceID].board
	if n.HCA != nil {
		revision, version, board = n.HCA.HWRev, n.HCA.Firmware, n.HCA.BoardID
	}
	be.PutUint16(data, uint16(revision))
	be.PutUint16(data[2:], n.DeviceID)
	if up := now.Sub(f.Started); !f.Started.IsZero() && up > 0 {
		be.PutUint32(data[28:], uint32(up/time.Second))
	}
	var parts [3]uint32
	fmt.Sscanf(version, "%d.%d.%d", &parts[0], &parts[1], &parts[2])
	for i, part := range parts {
		data[33+i] = byte(part)
		if longVersion(n.DeviceID) {
			be.PutUint32(data[68+4*i:], part)
		}
	}
	copy(data[48:64], board)
}

// longVersion says that a device tells its firmware's version in words too, as vendstat knows it.
func longVersion(device uint16) bool {
	return device >= 0x1003 && device <= 0x101b || device == 0xa2d2 || device == 0xd2f0
}
