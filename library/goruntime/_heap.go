package runtime

import "unsafe"

// What follows is appended to mheap.go.

// heapAtOnce is how much of the heap a runtime uses with few gaps before it is ready.
const heapAtOnce = 304 << 10

// populateHeap gets the first pages of the heap, which begins at lo, by one system call (MADV_POPULATE_WRITE), and not by some
// sixty page faults. Linux refuses before 5.14, and if memory is scarce; then the faults get the pages.
func populateHeap(lo, hi uintptr) {
	madvise(unsafe.Pointer(lo), min(heapAtOnce, hi-lo), 23)
}
