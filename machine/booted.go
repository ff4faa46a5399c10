package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// Booted is when the machine was booted, to ten seconds, as the library has it: counters begin then.
func Booted() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(up.Nano())).Round(10 * time.Second)
}
