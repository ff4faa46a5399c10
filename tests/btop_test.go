package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// drawn runs the program that comes after -- on a terminal of 50 rows and 160 columns, until all texts before it stand on the
// screen or a minute is over, ends it and prints the screen.
const drawn = `
import codecs, fcntl, os, pty, re, select, struct, sys, termios, time
texts, program = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
rows, columns = 50, 160
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execv(program[0], program)
screen, row, column, rest = [[" "] * columns for _ in range(rows)], 0, 0, ""
decoder, end = codecs.getincrementaldecoder("utf-8")("replace"), time.monotonic() + 60
sequence = re.compile(r"\x1b\[([?>]?[0-9;]*)([@-~])|\x1b[()].|\x1b[^\[()]|([^\x1b])")
def shown(): return "\n".join("".join(line).rstrip() for line in screen)
while time.monotonic() < end and not all(text in shown() for text in texts):
    if not select.select([fd], [], [], 0.2)[0]:
        continue
    try:
        rest += decoder.decode(os.read(fd, 65536))
    except OSError: # the program has ended
        break
    while match := sequence.match(rest):
        rest = rest[match.end():]
        numbers, command, character = match.groups()
        if command == "H" or command == "f":
            row, column = (int(n or 1) - 1 for n in (numbers.split(";") + ["", ""])[:2])
        elif command in ("A", "B"):
            row += int(numbers or 1) * (1 if command == "B" else -1)
        elif command in ("C", "D"):
            column += int(numbers or 1) * (1 if command == "C" else -1)
        elif character == "\n":
            row += 1
        elif character == "\r":
            column = 0
        elif character:
            if 0 <= row < rows and 0 <= column < columns:
                screen[row][column] = character
            column += 1
os.kill(pid, 9)
print(shown())
`

// TestBtop: btop's panel of the first GPU. It was built for a newer libc than this machine may have, and brings that.
func TestBtop(t *testing.T) {
	namespaces(t)
	btop, libraries := fetched(t, "btop", "btop"), filepath.Dir(fetched(t, "btop", "libc.so.6"))
	for profile, want := range map[string][]string{
		"h100":     {"┐H100 80GB HBM3┌", "┐345 Mhz┌", "  0%", "29°C", "68W P-state:  P0", "┐2619 Mhz┌", "479 MiB", "79.6 GiB", "502 KiB/s└", "578 KiB/s└"},
		"t4":       {"┐Tesla T4┌", " 40%", "2.43 GiB", "15.0 GiB", " 16%"},
		"rtx-4090": {"┐GeForce RTX 4090┌", "┐210 Mhz┌", "40°C", "26W P-state:  P8", "┐405 Mhz┌", "349 MiB", "23.9 GiB"},
		"gb10":     {"┐GB10┌", "  0%", "47°C", "4W"},
	} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			config := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(config, "btop"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(config, "btop", "btop.conf"), []byte("shown_boxes = \"gpu0\"\nupdate_ms = 200\n"), 0o644))
			command := []string{"--namespace", "--profile", profile}
			if profile == "t4" {
				command = append(command, "--process-memory", "2GiB", "--process-sm", "40")
			}
			// As the program is started by another linker than the machine's, that linker is told where the library lies.
			script := `XDG_CONFIG_HOME=$0 exec "$1" -c "$2" "${@:5}" -- "$3/ld-linux-x86-64.so.2" --library-path "$LD_LIBRARY_PATH:$3" "$4" --utf-force`
			command = append(command, "--", "bash", "-c", script, config, systemPython(t), drawn, libraries, btop)
			out := inRun(t, nil, append(command, want...)...).succeeds(t)
			for _, text := range want {
				assert.Contains(t, out.stdout, text)
			}
			if profile == "gb10" {
				assert.NotContains(t, out.stdout, "vram")
			}
		})
	}
}
