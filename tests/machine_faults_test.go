package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMachineWays: whichever way a program names a file, and whatever language it is written in, it sees the staged
// files.
func TestMachineWays(t *testing.T) {
	namespaces(t)
	bdf := busIDs(t, "h100")[0]
	dir, err := os.MkdirTemp("", "nvmlfab-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/sys", link))

	programs := map[string][]string{
		"C":                        {machineProgram(t, "paths", "-D_FORTIFY_SOURCE=2"), bdf, link},
		"C, static":                {machineProgram(t, "paths", "-static", "-w"), bdf, link},
		"Go":                       {machineProgram(t, "goprog"), bdf},
		"Python":                   {systemPython(t), "-c", waysInPython, bdf, link},
		"bash":                     {tool(t, "bash"), "-c", waysInBash, "bash", bdf, link},
		"C, no libc's environment": {"env", "-i", machineProgram(t, "paths"), bdf, link},
	}
	for user, prefix := range map[string][]string{"as this user": nil, "as nobody": nobody(t)} {
		for name, program := range programs {
			t.Run(user+"/"+name, func(t *testing.T) {
				command := append(append(prefix[:len(prefix):len(prefix)], launcher(t), "run", "--namespace", "--"), program...)
				out := run(t, []string{"PYTHONDONTWRITEBYTECODE=1"}, command[0], command[1:]...).succeeds(t)
				assert.Greater(t, len(out.lines()), 7)
				for _, line := range out.lines() {
					way, result, _ := strings.Cut(line, ": ")
					assert.Contains(t, []string{"found", "0x10de", "true <nil>", "true <nil> <nil>", "True"}, result, way)
				}
			})
		}
	}
}

const waysInPython = `
import glob, os, pathlib, subprocess, sys
bdf, link = sys.argv[1:]
dir = "/sys/bus/pci/devices"
file = f"{dir}/{bdf}/vendor"
def say(way, found): print(f"{way}: {found}")
def read(path): return open(path).read() == "0x10de\n"
say("open", read(file))
say("link", read(file.replace("/sys", link, 1)))
say("listdir", bdf in os.listdir(dir))
say("scandir", any(e.name == bdf and e.is_symlink() and e.is_dir() for e in os.scandir(dir)))
say("glob", glob.glob(f"{dir}/{bdf[:7]}*/vend?r") == [file])
say("walk", any(bdf in d for _, d, _ in os.walk("/sys/devices")))
say("pathlib", pathlib.Path(f"{dir}/{bdf}").resolve().name == bdf)
fd = os.open("/sys", os.O_RDONLY)
say("dir_fd", os.stat("bus/pci/devices/" + bdf, dir_fd=fd).st_mode != 0)
os.chdir("/sys")
say("cwd", read("bus/pci/devices/" + bdf + "/vendor"))
say("child", subprocess.run(["/bin/cat", file], env={}, capture_output=True).stdout == b"0x10de\n")
say("config", len(open(f"{dir}/{bdf}/config", "rb").read()) == 4096)
`

const waysInBash = `
bdf=$1 link=$2 dir=/sys/bus/pci/devices file=/sys/bus/pci/devices/$1/vendor
say() { if eval "$2"; then echo "$1: found"; else echo "$1: missed"; fi; }
say test '[ -e $file ] && [ -r $file ] && [ -L $dir/$bdf ] && [ -d $dir/$bdf ]'
say read 'read v < $file && [ $v = 0x10de ]'
say substitution '[ $(< $file) = 0x10de ]'
say glob 'set -- /sys/bus/pci/devices/${bdf:0:7}*/vend?r; [ $1 = $file ]'
say link '[ $(< $link/bus/pci/devices/$bdf/vendor) = 0x10de ]'
say cd '(cd $dir/$bdf && [ $(< vendor) = 0x10de ])'
say "cd -P" '(cd -P $dir/$bdf && [[ $PWD = /sys/devices/pci*/$bdf ]] && [ $(< vendor) = 0x10de ])'
say source '. $file 2>/dev/null; [ $? != 1 ]'
say cat '[ $(env -i /bin/cat $file) = 0x10de ]'
say find '[ $(find $dir -name $bdf) = $dir/$bdf ]'
say ls 'ls -l $dir | grep -q $bdf'
`

// TestMachineSetuid: a setuid program, which ignores the environment, sees the GPUs too.
func TestMachineSetuid(t *testing.T) {
	namespaces(t)
	if os.Geteuid() != 0 {
		skip(t, "only root can make setuid programs")
	}
	program := copied(t, tool(t, "cat"))
	require.NoError(t, os.Chown(program, 65534, 65534))
	require.NoError(t, os.Chmod(program, 0o6755))
	out := run(t, nil, launcher(t), "run", "--namespace", "--", program, "/sys/bus/pci/devices/"+busIDs(t, "h100")[0]+"/vendor")
	assert.Equal(t, "0x10de\n", out.succeeds(t).stdout)
}
