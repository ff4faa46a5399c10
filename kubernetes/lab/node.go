package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the first process of a node is told by the process that starts it.
type machine struct {
	Name string
	// Dir is the node's folder, which outlives it: var, etc, opt, log.
	Dir string
	// Path is the PATH of the node's programs.
	Path string
	// IP is the program ip, and Libraries the folder of what it is linked with.
	IP, Libraries string
	// Addresses are put on the node's lo.
	Addresses []string
	// Programs are started in order when the parent says so.
	Programs []program
	// Forward is the path of a Unix socket that leads to ForwardTo, an address in the node's network; none if empty.
	Forward, ForwardTo string
	// Files are written below Dir first, unless they exist.
	Files map[string]string
}

// program is one of the programs that run on a node.
type program struct {
	Name string
	Args []string
	Env  []string
}

// child is the variable by which a process learns that it is the first of a node.
const child = "NVMLFAB_LAB_NODE"

// Main has to be the first call of a program that starts clusters. The first process of a node is the same program, started
// anew in namespaces of its own; there Main does the work of such a process and returns the exit status and true.
func Main() (status int, isNode bool) {
	text := os.Getenv(child)
	if text == "" {
		return 0, false
	}
	var m machine
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		err = m.live()
	}
	if err != nil {
		fmt.Printf("error: %s\n", err)
		return 1, true
	}
	return 0, true
}

// live prepares the namespaces, says "ready" on standard output and then obeys lines on standard input until its end:
// "start NAME", "kill NAME", "check". Each is answered by "ok" or "error: TEXT". The end of this process ends all others of the
// node.
func (m *machine) live() error {
	if err := m.mounts(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(m.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for _, args := range append([][]string{{"link", "set", "lo", "up"}}, m.addresses()...) {
		cmd := exec.Command(m.IP, args...)
		cmd.Env = []string{"LD_LIBRARY_PATH=" + m.Libraries}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	if m.Forward != "" {
		if err := os.Remove(m.Forward); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		socket, err := net.Listen("unix", m.Forward)
		if err != nil {
			return err
		}
		go forward(socket, m.ForwardTo)
	}
	// From here on nobody but the loop below may wait for children, since it takes any.
	f := &family{running: map[string]int{}, ended: map[int]chan struct{}{}, lost: map[string]string{}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		for range signals {
			f.reap()
		}
	}()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		verb, name, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch verb {
		case "start":
			err = m.start(f, name)
		case "kill":
			err = f.kill(name)
		case "check":
			err = f.check()
		default:
			err = fmt.Errorf("%q is unknown", verb)
		}
		if err != nil {
			fmt.Printf("error: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Println("ok")
		}
	}
	return nil
}

func (m *machine) addresses() (commands [][]string) {
	for _, a := range m.Addresses {
		commands = append(commands, []string{"address", "add", a, "dev", "lo"})
	}
	return commands
}

// tunables are the values that the kubelet gives to sysctls of the whole machine. A file with the value lies over each, so that
// the kubelet finds nothing to do.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mounts gives the node folders of its own in the places where a node's programs write.
func (m *machine) mounts() error {
	var errs []error
	mount := func(source, target, kind string, flags uintptr, data string) {
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			errs = append(errs, fmt.Errorf("mount %s on %s: %w", source, target, err))
		}
	}
	folder := func(elem ...string) string {
		dir := filepath.Join(elem...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			errs = append(errs, err)
		}
		return dir
	}
	mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")

	// A sysfs of the node's network, with the machine's control groups.
	groups := folder(m.Dir, "cgroup")
	mount("/sys/fs/cgroup", groups, "", unix.MS_BIND|unix.MS_REC, "")
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		errs = append(errs, fmt.Errorf("unmount /sys: %w", err))
	}
	mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	mount(groups, "/sys/fs/cgroup", "", unix.MS_MOVE, "")

	for name, value := range tunables {
		target := filepath.Join("/proc/sys", name)
		if !exists(target) {
			continue
		}
		file := filepath.Join(folder(m.Dir, "sysctl"), strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			errs = append(errs, err)
		}
		mount(file, target, "", unix.MS_BIND, "")
	}

	// What outlives the node is in its folder; what does not is in memory.
	for name, text := range m.Files {
		file := filepath.Join(m.Dir, name)
		if folder(filepath.Dir(file)); !exists(file) {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				errs = append(errs, err)
			}
		}
	}
	mount("overlay", "/etc", "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%s,workdir=%s", folder(m.Dir, "etc"), folder(m.Dir, "etc.work")))
	for _, name := range []string{"var", "opt"} {
		dir := folder(m.Dir, name)
		if name == "var" {
			for _, sub := range []string{"lib", "log", "tmp", "cache"} {
				folder(dir, sub)
			}
			if link := filepath.Join(dir, "run"); !exists(link) {
				_ = os.Symlink("/run", link) // it exists but leads nowhere yet
			}
		}
		mount(dir, "/"+name, "", unix.MS_BIND, "")
	}
	mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID, "mode=755")
	errs = append(errs, m.devices())
	// Mounts that a container makes in a folder of the node can reach the node, as on machines with systemd.
	mount("none", "/", "", unix.MS_REC|unix.MS_SHARED, "")
	return errors.Join(errs...)
}

// devices gives the node a /dev of its own, with the few nodes that every system has.
func (m *machine) devices() error {
	dev := filepath.Join(m.Dir, "dev")
	errs := []error{os.MkdirAll(dev, 0o755), unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755")}
	for name, number := range map[string][2]uint32{"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0}} {
		node := filepath.Join(dev, name)
		errs = append(errs, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(number[0], number[1]))), os.Chmod(node, 0o666))
	}
	for _, sub := range []string{"pts", "shm", "mqueue"} {
		errs = append(errs, os.Mkdir(filepath.Join(dev, sub), 0o755))
	}
	errs = append(errs,
		unix.Mount("devpts", filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"),
		unix.Mount("tmpfs", filepath.Join(dev, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		unix.Mount("mqueue", filepath.Join(dev, "mqueue"), "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		errs = append(errs, os.Symlink(target, filepath.Join(dev, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the node's /dev: %w", err)
	}
	if err := unix.Mount(dev, "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	return nil
}

// start starts one of the node's programs. Its output is added to a file in the node's folder.
func (m *machine) start(f *family, name string) error {
	for _, p := range m.Programs {
		if p.Name != name {
			continue
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		log, err := os.OpenFile(filepath.Join(m.Dir, "log", name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer log.Close()
		env := append([]string{"PATH=" + m.Path, "HOME=/var/tmp", "TMPDIR=/tmp"}, p.Env...)
		return f.start(name, p.Args, &os.ProcAttr{Env: env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true}})
	}
	return fmt.Errorf("the node has no program %q", name)
}

// family is the children of a node's first process.
type family struct {
	mu      sync.Mutex
	running map[string]int        // process ids by the program's name
	ended   map[int]chan struct{} // closed when the process has ended
	lost    map[string]string     // how programs have ended that nobody has killed, by name
}

func (f *family) start(name string, args []string, attr *os.ProcAttr) error {
	f.mu.Lock() // so that reap does not meet the process before it is noted
	defer f.mu.Unlock()
	if _, ok := f.running[name]; ok {
		return fmt.Errorf("%s runs already", name)
	}
	p, err := os.StartProcess(args[0], args, attr)
	if err != nil {
		return err
	}
	f.running[name], f.ended[p.Pid] = p.Pid, make(chan struct{})
	delete(f.lost, name)
	return p.Release()
}

// reap takes the status of all children that have ended, which also are those of programs that have ended before them.
func (f *family) reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := f.ended[pid]; ok {
			close(ended)
			delete(f.ended, pid)
			for name, p := range f.running {
				if p == pid {
					delete(f.running, name)
					f.lost[name] = fmt.Sprintf("exit status %d", status.ExitStatus())
					if status.Signaled() {
						f.lost[name] = status.Signal().String()
					}
				}
			}
		}
	}
}

// kill sends SIGKILL to a program and returns when it has ended.
func (f *family) kill(name string) error {
	f.mu.Lock()
	pid, ok := f.running[name]
	ended := f.ended[pid]
	var err error
	if ok {
		err = syscall.Kill(pid, syscall.SIGKILL)
	}
	f.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	if err != nil {
		return err
	}
	select {
	case <-ended:
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.lost, name)
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s does not end", name)
	}
}

// check returns an error that names a program which has ended although nobody has killed it.
func (f *family) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, how := range f.lost {
		return fmt.Errorf("%s has ended: %s", name, how)
	}
	return nil
}

// forward connects whoever comes to the socket with an address in the node's network.
func forward(socket net.Listener, to string) {
	for {
		client, err := socket.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
