package state_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// The test binary runs itself again as a writer or a reader of a directory.
const (
	role      = "NVMLFAB_TEST_ROLE"
	directory = "NVMLFAB_TEST_DIRECTORY"
	number    = "NVMLFAB_TEST_NUMBER"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(role) {
	case "writer":
		err = write(os.Getenv(directory), os.Getenv(number))
	case "reader":
		err = read(os.Getenv(directory))
	case "enrolled":
		err = enrol(os.Getenv(directory))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write counts up in a key of its own without end, and says each number once it is committed.
func write(path, name string) error {
	d := state.At(path)
	b, err := profiles.Shipped("h100")
	if err != nil {
		return err
	}
	for {
		n := 0
		_, aside, err := d.Update(func(now *state.State) (*state.State, error) {
			if now == nil {
				now = state.New(b, 1)
			}
			next := now.Clone()
			next.Sequence++
			r := next.Change(b.Devices[0].UUID)
			if len(r.Set) == 0 {
				r.Set = []state.Layer{{Keys: profiles.Settings{}}}
			}
			if was, ok := r.Set[0].Keys[name]; ok {
				n, _ = strconv.Atoi(fmt.Sprint(was))
			}
			n++
			r.Set[0].Keys[name] = n
			return next, nil
		})
		if errors.Is(err, state.ErrBusy) {
			continue // the machine is slow, and there are 49 others
		}
		if err == nil {
			err = aside
		}
		if err != nil {
			return err
		}
		fmt.Println(n)
		time.Sleep(time.Millisecond) // lets others in
	}
}

// read follows the directory until its standard input ends, and finds no state torn and none older than the one before.
func read(path string) error {
	var end sync.WaitGroup
	done := make(chan struct{})
	end.Go(func() { _, _ = os.Stdin.Read(make([]byte, 1)); close(done) })
	d := state.At(path)
	f := d.Follow()
	var last *state.State
	began := time.Now()
	for reads := 0; ; {
		select {
		case <-done:
			fmt.Println(reads)
			return nil
		default:
		}
		if !f.Stale(time.Since(began).Milliseconds()) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		_, seen := f.Look()
		s, err := d.Read(last)
		if err != nil {
			return err
		}
		if s != nil && last != nil && s.Sequence < last.Sequence {
			return fmt.Errorf("read %d after %d", s.Sequence, last.Sequence)
		}
		if s != nil {
			last = s
			reads++
		}
		f.Seen(seen, time.Since(began).Milliseconds()+state.Tick.Milliseconds())
	}
}

// again is the test binary in another role.
func again(as, path string, n int) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), role+"="+as, directory+"="+path, fmt.Sprintf("%s=w%d", number, n))
	c.Stderr = os.Stderr
	return c
}

// TestCrowd: 50 writers, each killed at some instant and started again, and 50 readers share a directory. No read is torn,
// no committed change is lost, and no lock stays held.
func TestCrowd(t *testing.T) {
	const crowd = 50
	path := t.TempDir()
	require.NoError(t, state.At(path).Create())
	type reader struct {
		*exec.Cmd
		stop func() error
		out  *bufio.Reader
	}
	var readers []reader
	for i := range crowd {
		c := again("reader", path, i)
		in, err := c.StdinPipe()
		require.NoError(t, err)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		readers = append(readers, reader{c, in.Close, bufio.NewReader(out)})
	}
	committed := make([]int, crowd)
	var writers sync.WaitGroup
	for i := range crowd {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 2 {
				c := again("writer", path, i)
				out, err := c.StdoutPipe()
				if !assert.NoError(t, err) || !assert.NoError(t, c.Start()) {
					return
				}
				commits := 1 + r.IntN(2)
				lines := bufio.NewScanner(out)
				for range commits {
					if !lines.Scan() {
						break
					}
					committed[i], _ = strconv.Atoi(lines.Text())
				}
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
				_ = c.Process.Signal(syscall.SIGKILL)
				for lines.Scan() {
					committed[i], _ = strconv.Atoi(lines.Text())
				}
				_ = c.Wait()
				assert.Equal(t, syscall.SIGKILL, c.ProcessState.Sys().(syscall.WaitStatus).Signal(), "it ended by itself: %s", c.ProcessState)
			}
		})
	}
	writers.Wait()
	last, aside, err := state.At(path).Update(func(*state.State) (*state.State, error) { return nil, nil })
	require.NoError(t, err, "the lock is free")
	require.NoError(t, aside)
	keys := last.Device(board(t).Devices[0].UUID).Set[0].Keys
	for i, want := range committed {
		have, err := strconv.Atoi(fmt.Sprint(keys[fmt.Sprintf("w%d", i)]))
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, have, want, "writer %d", i)
		assert.LessOrEqual(t, have, want+2, "writer %d was killed twice", i)
	}
	for _, r := range readers {
		require.NoError(t, r.stop())
		line, err := r.out.ReadString('\n')
		assert.NoError(t, err)
		assert.NotEqual(t, "0\n", line, "a reader that read nothing")
		assert.NoError(t, r.Wait())
	}
	left, err := filepath.Glob(filepath.Join(path, ".*"))
	require.NoError(t, err)
	assert.Empty(t, left, "files of killed writers")
}
