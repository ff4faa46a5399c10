package runtime

import "internal/runtime/atomic"

// What follows is appended to cgocall.go.

// initDone is 1 once a call has seen that the packages are initialized.
var initDone atomic.Uint32

// awaitInit waits until the packages are initialized. Only the first calls look at the channel, because every receive takes
// its lock: that costs a fifth of an empty call into Go, and makes the calls of many threads wait for each other.
func awaitInit() {
	if initDone.Load() == 0 {
		<-main_init_done
		initDone.Store(1)
	}
}
