package state

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// writing is held by the thread of this process that holds a directory's lock. The file lock alone is not enough: POSIX
// locks do not exclude other threads of the same process, and closing any descriptor of the file would release the
// lock.
var writing sync.Mutex

// patience is how long a writer waits for others.
const patience = 5 * time.Second

// ErrBusy means that another process did not release the lock in time.
var ErrBusy = errors.New("another process has held the lock for 5 s")

// lock takes the directory's lock. The kernel releases it when the process ends, however it ends.
func lock(dir int) (unlock func(), err error) {
	writing.Lock()
	defer func() {
		if err != nil {
			writing.Unlock()
		}
	}()
	fd, err := unix.Openat(dir, lockFile, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	_ = unix.Fchmod(fd, 0o644) // whatever the umask; only the owner can, and only once is needed
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	for began, wait := time.Now(), time.Millisecond; ; wait = min(2*wait, 16*time.Millisecond) {
		err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &whole)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR) {
			unix.Close(fd)
			return nil, fmt.Errorf("lock: %w", err)
		}
		if time.Since(began) > patience {
			unix.Close(fd)
			return nil, ErrBusy
		}
		pause := unix.NsecToTimespec(int64(wait))
		_ = unix.Nanosleep(&pause, nil)
	}
	return func() {
		unix.Close(fd)
		writing.Unlock()
	}, nil
}
