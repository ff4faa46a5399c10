package fabric

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// ask is a MAD as a tool sends it.
func ask(class, version, method uint8, attribute uint16, modifier uint32) []byte {
	mad := make([]byte, MADSize)
	mad[0], mad[1], mad[2], mad[3] = 1, class, version, method
	be.PutUint16(mad[16:], attribute)
	be.PutUint32(mad[20:], modifier)
	if class == classSubnDirect {
		be.PutUint32(mad[32:], 0xffffffff)
	}
	return mad
}

// TestComponents: a request for records may name any of their components.
func TestComponents(t *testing.T) {
	f := build(t, Description{Hosts: hosts(2, 2), Layout: Layout{Preset: "rail-optimised", Radix: 8}})
	for attribute := range tables {
		for bit := range 64 {
			for _, method := range []uint8{methodGet, methodGetTable} {
				mad := ask(classSA, 2, method, attribute, 0)
				be.PutUint64(mad[offsetSMKey:], smKey)
				be.PutUint64(mad[offsetMask:], 1<<bit)
				answer, _, err := f.Answer(f.Host("dgx01")[0].Ports[1], f.SM.LID, mad, time.Now())
				assert.NoError(t, err)
				assert.GreaterOrEqual(t, len(answer), offsetRecords)
			}
		}
	}
	mad := ask(classSA, 2, methodGetTable, attrSAMulticast, 0)
	be.PutUint64(mad[offsetMask:], 1<<3)
	mad[offsetRecords+3] = 1 // the second block, which the field ends with
	answer, _, err := f.Answer(f.Host("dgx01")[0].Ports[1], f.SM.LID, mad, time.Now())
	assert.NoError(t, err)
	assert.Len(t, answer, offsetRecords, "all groups are in the first block")
}

// FuzzAnswer: no MAD brings the fabric down, and an answer is one: of the same transaction, and with the response bit.
func FuzzAnswer(f *testing.F) {
	now := time.Unix(1e9, 0)
	for _, class := range []uint8{classSubnLID, classSubnDirect, classSA, classPerf, classPing, classSysstat} {
		for _, attribute := range []uint16{1, 0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1b, 0x1d, 0x20, 0x31, 0x33, 0x35, 0x38, 0x3a, 0xff90} {
			for _, method := range []uint8{methodGet, methodSet, methodGetTable, methodGetMulti, methodDelete} {
				mad := ask(class, map[bool]uint8{true: 2, false: 1}[class == classSA], method, attribute, 1)
				f.Add(uint16(1), mad)
				mad[hopCount], mad[initialPath+1] = 1, 1
				f.Add(uint16(3), mad)
			}
		}
	}
	f.Fuzz(func(t *testing.T, lid uint16, mad []byte) {
		n, err := New(Description{Hosts: hosts(2, 2), Layout: Layout{Preset: "rail-optimised", Radix: 8}})
		if err != nil {
			t.Fatal(err)
		}
		answer, _, err := n.Answer(n.Host("dgx01")[0].Ports[1], lid, mad, now)
		if err != nil {
			if !errors.Is(err, ErrSilent) && !errors.Is(err, ErrRoute) {
				t.Fatal(err)
			}
			return
		}
		if len(answer) < 24 || answer[3]&response == 0 || string(answer[8:16]) != string(mad[8:16]) {
			t.Fatalf("%x is no answer", answer)
		}
	})
}

// TestBigFabric: a thousand hosts are routed, and the way between any two of their ports has seven switches at most.
func TestBigFabric(t *testing.T) {
	f := build(t, Description{Hosts: hosts(1000, 8), Layout: Layout{Preset: "fat-tree"}})
	assert.Greater(t, int(f.topLID), 8000)
	from := f.Host("dgx01")[0].Ports[1]
	for _, lid := range []uint16{1, f.topLID, f.topLID / 2, from.LID + 1} {
		path := f.Path(from, lid)
		assert.NotNil(t, path)
		assert.LessOrEqual(t, len(path), 12)
	}
	mad := ask(classSubnLID, 1, methodGet, attrLinearTable, uint32(f.topLID)/64)
	answer, _, err := f.Answer(from, from.Remote.Node.Ports[0].LID, mad, time.Now())
	assert.NoError(t, err)
	assert.NotEqual(t, byte(unrouted), answer[smpData+int(f.topLID)%64])
}
