// Package peers joins the daemons of several hosts to one fabric over TCP. One of them listens and the others connect to it;
// it passes on what they send. All of them know a secret, the token, and none takes a byte from who does not.
//
// The one that listens sends 32 random bytes. The one that connects sends 32 of its own and proves that it knows the token, by
// an HMAC of both; then the other proves it too. From there on each message has an HMAC, with a key of this connection and
// direction, of its place in the stream and its text. So what is replayed, cut, left out or changed ends the connection.
package peers

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	nonceSize  = 32
	macSize    = sha256.Size
	maxMessage = 1 << 20

	handshakeTime = 5 * time.Second // for the proofs
	beat          = time.Second     // a message goes out at least that often
	silence       = 6 * time.Second // without a message for so long, the other is gone
)

var errToken = errors.New("the other side has another token")

// mac is an HMAC of parts, each with its length before it.
func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return h.Sum(nil)
}

// stream is a connection whose ends know each other.
type stream struct {
	conn     net.Conn
	in, out  []byte // keys
	received uint64

	mu   sync.Mutex
	sent uint64
}

// accept proves the token as the one that listens.
func accept(conn net.Conn, token []byte) (*stream, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	mine := make([]byte, nonceSize)
	if _, err := rand.Read(mine); err != nil {
		return nil, err
	}
	if _, err := conn.Write(mine); err != nil {
		return nil, err
	}
	b := make([]byte, nonceSize+macSize)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, err
	}
	theirs := b[:nonceSize]
	if !hmac.Equal(b[nonceSize:], mac(token, []byte("connects"), mine, theirs)) {
		return nil, errToken
	}
	if _, err := conn.Write(mac(token, []byte("listens"), mine, theirs)); err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &stream{conn: conn, in: mac(token, []byte("up"), mine, theirs), out: mac(token, []byte("down"), mine, theirs)}, nil
}

// connect proves the token as the one that connects.
func connect(conn net.Conn, token []byte) (*stream, error) {
	conn.SetDeadline(time.Now().Add(handshakeTime))
	theirs, mine := make([]byte, nonceSize), make([]byte, nonceSize)
	if _, err := rand.Read(mine); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(append([]byte(nil), mine...), mac(token, []byte("connects"), theirs, mine)...)); err != nil {
		return nil, err
	}
	proof := make([]byte, macSize)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return nil, fmt.Errorf("%w, or is no mock-ib: %w", errToken, err)
	}
	if !hmac.Equal(proof, mac(token, []byte("listens"), theirs, mine)) {
		return nil, errToken
	}
	conn.SetDeadline(time.Time{})
	return &stream{conn: conn, in: mac(token, []byte("down"), theirs, mine), out: mac(token, []byte("up"), theirs, mine)}, nil
}

func seal(key []byte, number uint64, text []byte) []byte {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], number)
	return mac(key, n[:], text)
}

// write sends a message.
func (s *stream) write(text []byte) error {
	if len(text) > maxMessage {
		return fmt.Errorf("a message of %d bytes is too long", len(text))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	b = append(append(b, seal(s.out, s.sent, text)...), text...)
	s.sent++
	s.conn.SetWriteDeadline(time.Now().Add(silence))
	_, err := s.conn.Write(b)
	return err
}

// read returns the next message. After an error the stream is of no use.
func (s *stream) read() ([]byte, error) {
	s.conn.SetReadDeadline(time.Now().Add(silence))
	var head [4 + macSize]byte
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes is too long", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(s.conn, text); err != nil {
		return nil, err
	}
	if !hmac.Equal(head[4:], seal(s.in, s.received, text)) {
		return nil, errors.New("a message is not what was sent, or not in its place")
	}
	s.received++
	return text, nil
}
