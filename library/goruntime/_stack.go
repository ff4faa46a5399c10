package runtime

import "unsafe"

// What follows is appended to stack.go. Stacks of a megabyte and more get mappings of their own, with inaccessible addresses
// below them. They are the stacks of calls (makeRoom in library/core). A signal handler of the host's may run on one; if it
// needs more room, it gets a fault and does not overwrite the heap.

const (
	apartFrom  = 1 << 20
	apartGuard = 1 << 20 // addresses without memory; large, since a handler's frame may be large
)

func stackallocApart(n uintptr) stack {
	p, err := mmap(nil, apartGuard+n, _PROT_NONE, _MAP_ANON|_MAP_PRIVATE, -1, 0)
	if err != 0 {
		throw("out of memory (stackalloc)")
	}
	lo := add(p, apartGuard)
	if _, err = mmap(lo, n, _PROT_READ|_PROT_WRITE, _MAP_ANON|_MAP_PRIVATE|_MAP_FIXED, -1, 0); err != 0 {
		throw("out of memory (stackalloc)")
	}
	sysNoHugePageOS(lo, n) // with huge pages the first page would take two megabytes
	memstats.stacks_sys.add(int64(n))
	return stack{uintptr(lo), uintptr(lo) + n}
}

func stackfreeApart(stk stack) {
	n := stk.hi - stk.lo
	munmap(unsafe.Pointer(stk.lo-apartGuard), apartGuard+n)
	memstats.stacks_sys.add(-int64(n))
}
