package runtime

import "unsafe"

// What follows is appended to mheap.go.

// heapAtOnce is about as much of the heap as the core has in use when nvmlInit is done.
const heapAtOnce = 768 << 10

// populateHeap gets the first pages of the heap, which begins at lo, by one system call (MADV_POPULATE_WRITE), and not by more
// than a hundred page faults. Linux refuses before 5.14, and if memory is scarce; then the faults get the pages.
func populateHeap(lo, hi uintptr) {
	madvise(unsafe.Pointer(lo), min(heapAtOnce, hi-lo), 23)
}
