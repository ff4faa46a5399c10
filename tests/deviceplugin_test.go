package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nvmlfab/nvmlfab/profiles"
)

// devicePlugin builds NVIDIA's device plugin and the kubelet of tests/deviceplugin, or skips the test if their modules do
// not come.
var devicePlugin = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "nvmlfab-test-*"); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"vet", "."},
		{"build", "-o", filepath.Join(dir, "kubelet"), "."},
		{"build", "-ldflags", "-extldflags=-Wl,-z,lazy", "-o", filepath.Join(dir, "plugin"), "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"},
	} {
		build := exec.Command("go", args...)
		build.Dir = filepath.Join(root, "tests", "deviceplugin")
		if out, err := build.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return dir, nil
})

// health is what the kubelet of tests/deviceplugin prints: the health of each GPU by its UUID.
type health map[string]string

func (h health) unhealthy() (list []string) {
	for uuid, health := range h {
		if health != "Healthy" {
			list = append(list, uuid)
		}
	}
	return list
}

// TestDevicePlugin: NVIDIA's device plugin keeps all GPUs of every shipped board healthy and logs no error. When one GPU is
// lost it reports that one, and no other.
func TestDevicePlugin(t *testing.T) {
	namespaces(t)
	if os.Geteuid() != 0 {
		skip(t, "mounting takes root")
	}
	source := filepath.Join(root, "tests", "deviceplugin")
	if out := runIn(t, source, nil, "go", "list", "-deps", ".", "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin"); out.code != 0 {
		skip(t, "the modules of tests/deviceplugin cannot be fetched: "+out.stderr)
	}
	programs, err := devicePlugin()
	t.Cleanup(func() { os.RemoveAll(programs) })
	require.NoError(t, err)
	const calm = 30 * time.Second
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			lab := fmt.Sprintf("test-%d-%s", os.Getpid(), name)
			// The plugin and the kubelet meet in a folder of fixed name, which nobody else sees.
			// Not with the test's context, whose end would kill the shell before it ends its programs.
			cmd := exec.Command(launcher(t), "run", "--namespace", "--profile", name, "--name", lab, "--", "sh", "-ec", `
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
"$0/plugin" --kubelet-socket= >"$1" 2>&1 &
trap "kill $!" EXIT
exec 3<&0
"$0/kubelet" & kubelet=$!
read line <&3 || true
kill $kubelet`, programs, log)
			cmd.Env = environ()
			stdin, err := cmd.StdinPipe() // its end ends the programs
			require.NoError(t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lists := make(chan health, 1000)
			go func() {
				defer close(lists)
				for lines := bufio.NewScanner(stdout); lines.Scan(); {
					var h health
					if assert.NoError(t, json.Unmarshal(lines.Bytes(), &h)) {
						lists <- h
					}
				}
			}()
			t.Cleanup(func() {
				stdin.Close()
				_ = cmd.Wait()
			})
			logged := func() string {
				text, _ := os.ReadFile(log)
				return string(text)
			}
			next := func(most time.Duration) (health, bool) {
				select {
				case h, ok := <-lists:
					require.True(t, ok, "the plugin has ended:\n%s", logged())
					return h, true
				case <-time.After(most):
					return nil, false
				}
			}

			devices := mustBoard(t, name).Devices
			victim := string(devices[len(devices)-1].UUID)
			first, ok := next(5 * time.Minute)
			require.True(t, ok, logged())
			require.Len(t, first, len(devices))
			assert.Empty(t, first.unhealthy())
			again, ok := next(calm)
			require.False(t, ok, "a second list, %v, after\n%s", again, logged())
			assert.NotRegexp(t, regexp.MustCompile(`(?m)^[EF]\d{4} `), logged())
			assert.NotContains(t, logged(), "nvmlfab:")

			if devices[0].Name.Value == "NVIDIA Thor" {
				// The plugin knows a Jetson's GPU by its name, serves it as one device of a fixed name, and does not watch it.
				assert.Equal(t, health{"tegra": "Healthy"}, first)
				return
			}
			at := time.Now()
			run(t, nil, launcher(t), "fail", "--run", lab, "--gpu", fmt.Sprint(len(devices)-1), "lost").succeeds(t)
			after, ok := next(5 * time.Minute)
			require.True(t, ok, logged())
			t.Logf("%s is reported %v after the command began", victim, time.Since(at).Round(time.Millisecond))
			assert.Equal(t, []string{victim}, after.unhealthy())
			again, ok = next(3 * time.Second)
			require.False(t, ok, "one list more, %v, after\n%s", again, logged())
			assert.Contains(t, logged(), "XidCriticalError: Xid=79 on Device="+victim)
		})
	}
}
