// Package capture makes a profile of what a libnvidia-ml answers. It calls every function that only reads, on every object that
// there is, by the generated table of functions; puts what they answer into keys of a profile; and compares what the library answers
// with what nvmlfab's answers with that profile.
package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Question is a call of a function.
type Question struct {
	Function string
	Slot     int // an entry of the unnamed table, in place of a name
	Words    []Word
	Buffers  []Buffer
	Pointers []Pointer
}

// Word is an argument: a value, or the number of the buffer that it points to.
type Word struct {
	Value  uint64
	Buffer bool
}

// Buffer is memory that the function may read and write. What Content leaves of the size is 0.
type Buffer struct {
	Size    int
	Content []byte
}

// Pointer is a pointer in a buffer, to another one.
type Pointer struct{ In, At, To int }

// Reply is what a call did.
type Reply struct {
	Missing bool // the library does not have the function
	Return  int32
	Buffers [][]byte
}

// Caller calls functions of a library.
type Caller interface {
	Call(Question) (Reply, error)
}

// The statuses of nvmlfab-call.
const (
	called = iota
	missing
	unloadable
)

// Write writes a question as nvmlfab-call reads it.
func (q *Question) Write(w io.Writer) error {
	le := binary.NativeEndian
	b := make([]byte, 4, 256)
	u32 := func(n int) { b = le.AppendUint32(b, uint32(n)) }
	u32(len(q.Function))
	b = append(b, q.Function...)
	if q.Function == "" {
		u32(q.Slot)
	}
	u32(len(q.Words))
	for _, word := range q.Words {
		kind := 0
		if word.Buffer {
			kind = 1
		}
		u32(kind)
		b = le.AppendUint64(b, word.Value)
	}
	u32(len(q.Buffers))
	for _, buffer := range q.Buffers {
		u32(buffer.Size)
		u32(len(buffer.Content))
		b = append(b, buffer.Content...)
	}
	u32(len(q.Pointers))
	for _, p := range q.Pointers {
		u32(p.In)
		u32(p.At)
		u32(p.To)
	}
	le.PutUint32(b, uint32(len(b)-4))
	_, err := w.Write(b)
	return err
}

// Read reads the answer to a question.
func (q *Question) Read(r io.Reader) (Reply, error) {
	status, ret, content, err := read(r)
	if err != nil || status == missing {
		return Reply{Missing: status == missing}, err
	}
	reply := Reply{Return: ret}
	for _, buffer := range q.Buffers {
		if len(content) < buffer.Size {
			return Reply{}, fmt.Errorf("the answer is %d bytes short", buffer.Size-len(content))
		}
		reply.Buffers = append(reply.Buffers, content[:buffer.Size:buffer.Size])
		content = content[buffer.Size:]
	}
	return reply, nil
}

// Greeting reads the first answer: the path of the library, or an error that says why it cannot be loaded.
func Greeting(r io.Reader) (string, error) {
	status, _, text, err := read(r)
	if err == nil && status == unloadable {
		err = &LoadError{string(text)}
	}
	return string(text), err
}

// LoadError says why the dynamic linker cannot load a library.
type LoadError struct{ Text string }

func (e *LoadError) Error() string { return e.Text }

func read(r io.Reader) (status int, ret int32, content []byte, err error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	le := binary.NativeEndian
	length := le.Uint32(head[:])
	if length < 8 || length > 1<<30 {
		return 0, 0, nil, errors.New("the answer has no length")
	}
	content = make([]byte, length-8)
	_, err = io.ReadFull(r, content)
	return int(le.Uint32(head[4:])), int32(le.Uint32(head[8:])), content, err
}
