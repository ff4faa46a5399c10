package fakegpu

// ABIVersion is that of the interface in shims/kernel/uapi/fakegpu.h, which never changes what it has.
const ABIVersion = 1

// The requests, as that header has them on x86-64 and arm64: direction, size, 'G' and number.
const (
	ioctlInfo   = 0x80504740
	ioctlAlloc  = 0xc0104741
	ioctlFree   = 0x40084742
	ioctlSubmit = 0xc0104743
	ioctlWait   = 0xc0184744
)

type infoArg struct {
	abiVersion, maxHandles         uint32
	deviceBytes, deviceUsed        uint64
	contextBytes, contextUsed      uint64
	contextHandles, jobLatencyUsec uint32
	name                           [32]byte
}

type allocArg struct {
	size          uint64
	flags, handle uint32
}

type freeArg struct{ handle, reserved uint32 }

type submitArg struct {
	handle, flags uint32
	seqno         uint64
}

type waitArg struct {
	seqno        uint64
	timeoutNsec  int64
	completedSeq uint64
}

// page is what is mapped; the kernel writes it.
type page struct {
	abiVersion, reserved       uint32
	completedSeq, submittedSeq uint64
}
