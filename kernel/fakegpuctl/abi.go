package fakegpuctl

// ABIVersion is the version of the interface in kernel/uapi/fakegpu.h. That interface only grows.
const ABIVersion = 1

// The requests of that header, as on x86-64 and arm64: direction, size, 'G' and number.
const (
	ioctlInfo   = 0x80504740
	ioctlAlloc  = 0xc0104741
	ioctlFree   = 0x40084742
	ioctlSubmit = 0xc0104743
	ioctlWait   = 0xc0184744
)

type infoArg struct {
	ABIVersion, MaxHandles         uint32
	DeviceBytes, DeviceUsed        uint64
	ContextBytes, ContextUsed      uint64
	ContextHandles, JobLatencyUsec uint32
	Name                           [32]byte
}

type allocArg struct {
	Size          uint64
	Flags, Handle uint32
}

type freeArg struct{ Handle, Reserved uint32 }

type submitArg struct {
	Handle, Flags uint32
	Seqno         uint64
}

type waitArg struct {
	Seqno        uint64
	TimeoutNsec  int64
	CompletedSeq uint64
}

// page is the mapped page, which the kernel writes.
type page struct {
	ABIVersion, Reserved       uint32
	CompletedSeq, SubmittedSeq uint64
}
