// Package marshal moves arguments and results between C memory and Go values. No other package follows a caller's
// pointers.
package marshal

import (
	"unsafe"

	"github.com/nvmlfab/nvmlfab/generated/abi"
)

// Word reads argument i as a T of at most eight bytes.
func Word[T any](args unsafe.Pointer, i uintptr) T { return *(*T)(unsafe.Add(args, i*8)) }

// Pointer reads argument i as an address in the caller's memory.
func Pointer(args unsafe.Pointer, i uintptr) unsafe.Pointer { return Word[unsafe.Pointer](args, i) }

// Handles converts engine objects to the addresses that are their handles.
func Handles[T interface {
	Handle() (uintptr, abi.Return)
}](list []T) ([]uintptr, abi.Return) {
	out := make([]uintptr, len(list))
	for i, t := range list {
		var ret abi.Return
		if out[i], ret = t.Handle(); ret != abi.SUCCESS {
			return nil, ret
		}
	}
	return out, abi.SUCCESS
}

// maxText is the longest C string that is read from a caller: names and identifiers are shorter.
const maxText = 4096

// Text reads argument i as a C string.
func Text(args unsafe.Pointer, i uintptr) (string, bool) {
	p := Pointer(args, i)
	if p == nil {
		return "", false
	}
	n := 0
	for n < maxText && *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n)), true
}

// Get and Put copy the first n bytes of a struct as raw bytes, since the garbage collector must not treat the caller's
// memory as its own.
func Get(to, from unsafe.Pointer, n int) {
	copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
}

func Put(to, from unsafe.Pointer, n int) { Get(to, from, n) }

// PutText writes s and its terminator, or fails if size bytes are too few.
func PutText(to unsafe.Pointer, size uint32, s string) abi.Return {
	if uint64(len(s))+1 > uint64(size) {
		return abi.ERROR_INSUFFICIENT_SIZE
	}
	buf := unsafe.Slice((*byte)(to), len(s)+1)
	copy(buf, s)
	buf[len(s)] = 0
	return abi.SUCCESS
}

// PutCropped writes as much of s as fits into size bytes, with a terminator.
func PutCropped(to unsafe.Pointer, size uint32, s string) abi.Return {
	if size == 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return PutText(to, size, s[:min(uint64(len(s)), uint64(size)-1)])
}

// PutSized writes data. *size is the room that the caller has, and becomes the size of the data.
func PutSized(to, size unsafe.Pointer, data []byte) abi.Return {
	n := (*uint32)(size)
	room := *n
	*n = uint32(len(data))
	if to == nil || uint64(room) < uint64(len(data)) {
		return abi.ERROR_INSUFFICIENT_SIZE
	}
	copy(unsafe.Slice((*byte)(to), len(data)), data)
	return abi.SUCCESS
}

// PutList writes a list. *count is the number of elements that the caller has room for, and becomes the number of
// elements in the list. Elements are stride bytes apart, and no more than stride bytes of each are written.
func PutList[T any](count, array unsafe.Pointer, list []T, stride int, nullQuery bool) abi.Return {
	n := (*uint32)(count)
	room := *n
	query := nullQuery && (array == nil || room == 0)
	fits := uint64(room) >= uint64(len(list))
	if array == nil && fits && !query && len(list) > 0 {
		return abi.ERROR_INVALID_ARGUMENT
	}
	*n = uint32(len(list))
	switch {
	case query:
		return abi.SUCCESS
	case !fits:
		return abi.ERROR_INSUFFICIENT_SIZE
	}
	return PutArray(array, list, stride)
}

// PutAll writes a list into an array that has room for everything, and then how many elements that is.
func PutAll[T any](count, array unsafe.Pointer, list []T, stride int) abi.Return {
	ret := PutArray(array, list, stride)
	if ret == abi.SUCCESS {
		*(*uint32)(count) = uint32(len(list))
	}
	return ret
}

// Both is p, or nil if q is nil: two arrays with one count must be given together.
func Both(p, q unsafe.Pointer) unsafe.Pointer {
	if q == nil {
		return nil
	}
	return p
}

// PutArray writes every element, stride bytes apart. What is between elements becomes 0.
func PutArray[T any](array unsafe.Pointer, list []T, stride int) abi.Return {
	if len(list) > 0 && array == nil {
		return abi.ERROR_INVALID_ARGUMENT
	}
	size := int(unsafe.Sizeof(*new(T)))
	for i := range list {
		to := unsafe.Add(array, i*stride)
		Put(to, unsafe.Pointer(&list[i]), min(stride, size))
		if stride > size {
			clear(unsafe.Slice((*byte)(unsafe.Add(to, size)), stride-size))
		}
	}
	return abi.SUCCESS
}

// PutFilled writes every element into an array that has room for some.
func PutFilled[T any](array unsafe.Pointer, room uint32, list []T, stride int) abi.Return {
	if uint64(len(list)) > uint64(room) {
		return abi.ERROR_INSUFFICIENT_SIZE
	}
	return PutArray(array, list, stride)
}

// maxElements bounds an array whose length the caller passes by value.
const maxElements = 1 << 16

// GetArray copies an array of the caller.
func GetArray[T any](array unsafe.Pointer, n, stride int) ([]T, bool) {
	if n < 0 || n > maxElements {
		return nil, false
	}
	out := make([]T, n)
	for i := range out {
		Get(unsafe.Pointer(&out[i]), unsafe.Add(array, i*stride), stride)
	}
	return out, true
}

// GetInside is GetArray for an array that a struct points to; it fails if that is empty or nowhere.
func GetInside[T any](array unsafe.Pointer, n, stride int) ([]T, bool) {
	if array == nil || n == 0 {
		return nil, false
	}
	return GetArray[T](array, n, stride)
}

// Counted sets n to the size of a struct that ends in an array, of which a field of the struct gives the number of
// elements. It fails if there are more than room elements.
func Counted(n *int, p unsafe.Pointer, field uintptr, array, stride, room int) bool {
	have := *(*uint32)(unsafe.Add(p, field))
	*n = array + int(have)*stride
	return have <= uint32(room)
}
