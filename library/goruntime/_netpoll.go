package runtime

import "internal/runtime/atomic"

// The poller of the Go runtime, in place of netpoll_epoll.go: the core reads files, which never make one wait, and sleeps.

// pollWoken is 1 when the thread in netpoll is to wake up.
var pollWoken uint32

func netpollinit() {}

func netpollIsPollDescriptor(uintptr) bool { return false }

// netpollopen answers for every descriptor what epoll_ctl answers for a file: EPERM.
func netpollopen(uintptr, *pollDesc) uintptr { return 1 }

func netpollclose(uintptr) uintptr { return 0 }

func netpollarm(*pollDesc, int) { throw("runtime: unused") }

func netpollBreak() {
	if atomic.Xchg(&pollWoken, 1) == 0 {
		futexwakeup(&pollWoken, 1)
	}
}

// netpoll sleeps for up to delay nanoseconds, for ever if delay is negative. The scheduler lets one thread in at a time.
func netpoll(delay int64) (gList, int32) {
	if delay != 0 {
		futexsleep(&pollWoken, 0, delay)
		atomic.Store(&pollWoken, 0)
	}
	return gList{}, 0
}
