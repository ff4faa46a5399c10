//go:build guest

package kernel

import (
	"sync/atomic"
	"unsafe"
)

// words is the 64-bit word at an offset of mapped memory, which may be written while others read it.
func words(memory []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&memory[offset]))
}
