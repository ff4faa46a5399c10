package runtime

import "unsafe"

// What follows comes to the end of stack.go. Stacks of a megabyte and more lie in mappings of their own, with addresses below
// them that nobody may touch. They are those of calls (library/core, makeRoom). A signal handler of the host's may run on
// one, and would write over the heap with what has no room on it.

const (
	apartFrom  = 1 << 20
	apartGuard = 1 << 20 // addresses, no memory; a handler may have a large frame and begin far below the stack's end
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
	sysNoHugePageOS(lo, n) // the first page would bring two megabytes
	memstats.stacks_sys.add(int64(n))
	return stack{uintptr(lo), uintptr(lo) + n}
}

func stackfreeApart(stk stack) {
	n := stk.hi - stk.lo
	munmap(unsafe.Pointer(stk.lo-apartGuard), apartGuard+n)
	memstats.stacks_sys.add(-int64(n))
}
