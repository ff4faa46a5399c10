package tests

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	staged "github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// mockIB is a running daemon.
type mockIB struct {
	t      *testing.T
	cmd    *exec.Cmd
	root   string
	stderr bytes.Buffer
}

// startMockIB starts a daemon on a tree and waits for its socket.
func startMockIB(t *testing.T, root string, args ...string) *mockIB {
	t.Helper()
	return startMockIBBy(t, root, func(program string, args ...string) []string { return append([]string{program}, args...) }, args...)
}

// startMockIBBy starts a daemon by another program, whose place it takes. by returns the command.
func startMockIBBy(t *testing.T, root string, by func(program string, args ...string) []string, args ...string) *mockIB {
	t.Helper()
	m := &mockIB{t: t, root: root}
	command := by(filepath.Join(filepath.Dir(launcher(t)), "mock-ib"), append([]string{"--root", root}, args...)...)
	m.cmd = exec.Command(command[0], command[1:]...)
	m.cmd.Env, m.cmd.Stderr = environ(), &m.stderr
	require.NoError(t, m.cmd.Start())
	t.Cleanup(m.kill)
	require.Eventually(t, func() bool { return exists(filepath.Join(root, "run", "mock-ib.sock")) }, time.Minute, 5*time.Millisecond, "no socket")
	return m
}

func (m *mockIB) kill() {
	if m.cmd.ProcessState == nil {
		m.cmd.Process.Kill()
		m.cmd.Wait()
		os.Remove(filepath.Join(m.root, "run", "mock-ib.sock"))
	}
}

// freeAddress is an address of this machine that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// TestInfinibandHosts: the daemons of four hosts have one fabric. Every adapter of every host is reached from each; a host whose
// daemon dies is seen as switched off, and comes back.
func TestInfinibandHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	text := "layout: rail-optimised\nhosts: [{name: 'n%d', count: 4}]\n"
	description, secret := write("fabric.yaml", text), write("token", "a secret of the four hosts\n")
	board, err := profiles.Shipped("h100")
	require.NoError(t, err)
	address := freeAddress(t)
	daemons, envs := map[string]*mockIB{}, map[string][]string{}
	lids, adapters := map[string]uint16{}, 0
	start := func(name string) {
		how := "--join"
		if name == "n1" {
			how = "--listen"
		}
		daemons[name] = startMockIB(t, filepath.Join(dir, name), "--profile", "h100", "--fabric", description, "--node", name, how, address, "--token-file", secret)
	}
	for i := range 4 {
		name := fmt.Sprint("n", i+1)
		f, err := staged.Subnet(board, name, description, []byte(text))
		require.NoError(t, err)
		ibTree(t, filepath.Join(dir, name), f.UMAD(name))
		lids[name], adapters = f.UMAD(name)[0].LID, len(f.UMAD(name))
		envs[name] = preloadIB(t, filepath.Join(dir, name))
		start(name)
	}
	hosts := func(from string) string { return ibTool(t, envs[from], "ibhosts").succeeds(t).stdout }
	sees := func(from string, count int) {
		require.Eventually(t, func() bool { return strings.Count(hosts(from), "Ca\t: ") == count*adapters }, 2*time.Minute, 50*time.Millisecond,
			"%s does not see %d hosts", from, count)
	}
	for name := range envs {
		sees(name, 4)
		for other, lid := range lids {
			assert.Contains(t, ibTool(t, envs[name], "ibping", "-c", "1", "-L", fmt.Sprint(lid)).succeeds(t).stdout, "Pong from "+other)
		}
	}

	// A server on another host answers in place of the port.
	server := exec.Command(filepath.Join(diags(t), "usr/sbin/ibping"), "-S", "-C", "mlx5_0")
	server.Env = append(append(environ(), "LD_LIBRARY_PATH="+filepath.Join(diags(t), "usr/lib/x86_64-linux-gnu")), envs["n3"]...)
	require.NoError(t, server.Start())
	self, err := os.Hostname()
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		return strings.Contains(ibTool(t, envs["n2"], "ibping", "-c", "1", "-L", fmt.Sprint(lids["n3"])).stdout, "Pong from "+self)
	}, time.Minute, 20*time.Millisecond)
	server.Process.Kill()
	server.Wait()

	// A port that one host disables is down for the others.
	state := func(how string, seen int) {
		ibTool(t, envs["n1"], "ibportstate", "1", "3", how).succeeds(t)
		for _, name := range []string{"n1", "n2", "n4"} {
			require.Eventually(t, func() bool { return strings.Count(hosts(name), "Ca\t: ") == seen }, 2*time.Minute, 50*time.Millisecond, "%s after %s", name, how)
		}
	}
	state("disable", 4*adapters-1)
	state("enable", 4*adapters)

	daemons["n4"].kill()
	for _, name := range []string{"n1", "n2", "n3"} {
		sees(name, 3)
	}
	assert.Contains(t, ibTool(t, envs["n1"], "ibping", "-c", "1", "-t", "50", "-L", fmt.Sprint(lids["n4"])).stdout, "100% packet loss")
	start("n4")
	for name := range envs {
		sees(name, 4)
	}

	// A wrong token or another description is not let in.
	for _, args := range [][]string{{"--fabric", description, "--token-file", write("wrong", "another secret of 24 bytes")},
		{"--fabric", write("other.yaml", "hosts: [{name: n5}]"), "--token-file", secret}} {
		stranger := startMockIB(t, filepath.Join(t.TempDir()), append([]string{"--profile", "h100", "--node", "n5", "--join", address}, args...)...)
		sees("n1", 4)
		stranger.kill()
	}
	out := run(t, nil, filepath.Join(filepath.Dir(launcher(t)), "mock-ib"), "--root", t.TempDir(), "--profile", "h100", "--join", address)
	assert.NotZero(t, out.code)
	assert.Contains(t, out.stderr, "--listen and --join need --token-file")
}

// TestInfinibandDeadDaemon: when the daemon dies or stands still, programs get errors in time: no signal, and no hang.
func TestInfinibandDeadDaemon(t *testing.T) {
	t.Parallel()
	board, err := profiles.Shipped("h100")
	require.NoError(t, err)
	f, err := staged.Subnet(board, "dgx01", "", nil)
	require.NoError(t, err)
	tree := t.TempDir()
	ibTree(t, tree, f.UMAD("dgx01"))
	env := preloadIB(t, tree)
	m := startMockIB(t, tree, "--profile", "h100", "--node", "dgx01")
	program := filepath.Join(t.TempDir(), "hammer")
	run(t, nil, "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
		filepath.Join(root, "tests", "testdata", "infiniband", "hammer.c")).succeeds(t)
	out := run(t, env, program, fmt.Sprint(len(f.UMAD("dgx01"))), fmt.Sprint(m.cmd.Process.Pid)).succeeds(t)
	assert.Equal(t, "ok\n", out.stdout, out.stderr)
	assert.NotZero(t, ibTool(t, env, "sminfo").code, "nobody answers")
	m.cmd.Wait()
	os.Remove(filepath.Join(tree, "run", "mock-ib.sock"))

	m = startMockIB(t, tree, "--profile", "h100", "--node", "dgx01")
	ibTool(t, env, "sminfo").succeeds(t)
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGSTOP))
	assert.NotZero(t, ibTool(t, env, "sminfo").code, "the daemon stands still")
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGCONT))
	ibTool(t, env, "sminfo").succeeds(t)
}

// TestInfinibandWaits: a program that waits for a device learns that the daemon stands still, by whichever call it waits, without a
// limit or with a short one again and again. Its request comes back as timed out first. Many devices take no longer than one, by the
// time that this takes in the same run.
func TestInfinibandWaits(t *testing.T) {
	t.Parallel()
	board, err := profiles.Shipped("h100")
	require.NoError(t, err)
	f, err := staged.Subnet(board, "dgx01", "", nil)
	require.NoError(t, err)
	tree := t.TempDir()
	ibTree(t, tree, f.UMAD("dgx01"))
	m := startMockIB(t, tree, "--profile", "h100", "--node", "dgx01")
	program := ibProgram(t, "waits")
	ways := map[string]string{"read 0": "timed out, then lost\n", "many 8": "8 lost\n", "brief 8": "8 lost\n"}
	for _, call := range []string{"poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait", "epoll_pwait2", "nested", "poll_epoll"} {
		for _, limit := range []string{"-1", "50", "4000", "7000"} {
			ways[call+" "+limit] = "timed out, then lost\n"
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a hang
	defer cancel()
	type waiter struct {
		cmd    *exec.Cmd
		out    *bufio.Reader
		stderr *bytes.Buffer
		after  chan time.Duration // the daemon stood still, until the waiter knew
	}
	waiters := map[string]waiter{}
	for way := range ways {
		cmd := exec.CommandContext(ctx, program, strings.Fields(way)...)
		w := waiter{cmd, nil, &bytes.Buffer{}, make(chan time.Duration, 1)}
		cmd.Env, cmd.Stderr = append(environ(), preloadIB(t, tree)...), w.stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		w.out = bufio.NewReader(out)
		waiters[way] = w
	}
	for way, w := range waiters {
		line, err := w.out.ReadString('\n')
		require.NoError(t, err, "%s: %s", way, w.stderr)
		require.Equal(t, "waits\n", line, way)
	}
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	for way, w := range waiters {
		go func() {
			line, _ := w.out.ReadString('\n')
			w.after <- time.Since(began)
			assert.Equal(t, ways[way], line, way)
		}()
	}
	after := map[string]time.Duration{}
	for way, w := range waiters {
		after[way] = <-w.after
		assert.NoError(t, w.cmd.Wait(), "%s: %s", way, w.stderr)
	}
	one := max(after["epoll_wait -1"], after["epoll_wait 50"])
	assert.Less(t, after["many 8"], 3*one, "one after another they would take eight times as long")
	assert.Less(t, after["brief 8"], 3*one, "one after another they would take eight times as long")
	t.Log("the time after which each knows: ", after)
}
