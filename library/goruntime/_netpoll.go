package runtime

import "internal/runtime/atomic"

// The network poller of the Go runtime, in place of netpoll_epoll.go. The core only reads files, which never block, so
// this poller only sleeps.

// pollWoken is 1 if the thread in netpoll must wake up.
var pollWoken uint32

func netpollinit() {}

func netpollIsPollDescriptor(uintptr) bool { return false }

// netpollopen answers EPERM for every descriptor, as epoll_ctl does for a file.
func netpollopen(uintptr, *pollDesc) uintptr { return 1 }

func netpollclose(uintptr) uintptr { return 0 }

func netpollarm(*pollDesc, int) { throw("runtime: unused") }

func netpollBreak() {
	if atomic.Xchg(&pollWoken, 1) == 0 {
		futexwakeup(&pollWoken, 1)
	}
}

// netpoll sleeps for up to delay nanoseconds, or for ever if delay is negative. The scheduler calls it from one thread
// at a time.
func netpoll(delay int64) (gList, int32) {
	if delay != 0 {
		futexsleep(&pollWoken, 0, delay)
		atomic.Store(&pollWoken, 0)
	}
	return gList{}, 0
}
