package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dgxNICs are the GPUs beside which the adapters of a DGX H100 are, by the adapters' numbers.
var dgxNICs = map[int]int{0: 0, 3: 1, 4: 2, 5: 3, 6: 4, 9: 5, 10: 6, 11: 7}

// dgxLevel is the cell of nvidia-smi topo -m for an adapter and another device of a DGX H100. Adapters are numbers from 100 on.
func dgxLevel(a, b int) string {
	const nic = 100
	socket := func(device int) bool { // the second one
		if device >= nic {
			return device >= nic+6
		}
		return device >= 4
	}
	card := map[int]int{nic + 1: 1, nic + 2: 1, nic + 7: 2, nic + 8: 2}
	own := func(gpu, device int) bool { of, ok := dgxNICs[device-nic]; return ok && of == gpu }
	switch {
	case a == b:
		return "X"
	case card[a] != 0 && card[a] == card[b]:
		return "PIX"
	case own(a, b) || own(b, a):
		return "PXB"
	case socket(a) == socket(b):
		return "NODE"
	}
	return "SYS"
}

// TestInfiniBandTopology: nvidia-smi topo -m prints for a DGX H100 what a real one prints.
func TestInfiniBandTopology(t *testing.T) {
	profile := ibProfile(t)
	for _, how := range ways(t) {
		for _, version := range []string{"470", "535", "550"} {
			t.Run(how[2:]+" "+version, func(t *testing.T) {
				smi := fetched(t, "nvidia-smi-"+version, "nvidia-smi")
				lines := run(t, nil, launcher(t), "run", how, "--ib", "sysfs", "--profile", profile, "--", smi, "topo", "-m").succeeds(t).lines()
				nic := "NIC"
				if version == "470" {
					nic = "mlx5_"
				}
				var names []string
				for i := range 8 {
					names = append(names, fmt.Sprintf("GPU%d", i))
				}
				for i := range 12 {
					names = append(names, fmt.Sprintf("%s%d", nic, i))
				}
				head := strings.Fields(strings.NewReplacer("\x1b[4m", "", "\x1b[0m", "").Replace(lines[0]))
				require.Equal(t, names, head[:20])
				for row, name := range names {
					cells := strings.Split(lines[1+row], "\t")
					require.Equal(t, name, strings.TrimSpace(cells[0]))
					for column := range names {
						a, b := row, column
						if a >= 8 {
							a += 100 - 8
						}
						if b >= 8 {
							b += 100 - 8
						}
						want := dgxLevel(a, b)
						if a < 8 && b < 8 && a != b {
							if version == "470" { // it knows no NVLink of Hopper
								continue
							}
							want = "NV18"
						}
						assert.Equal(t, want, strings.TrimSpace(cells[1+column]), "%s and %s", name, names[column])
					}
					if row < 8 {
						assert.Equal(t, map[bool]string{true: "0-55,112-167", false: "56-111,168-223"}[row < 4], strings.TrimSpace(cells[21]))
						assert.Equal(t, map[bool]string{true: "0", false: "1"}[row < 4], strings.TrimSpace(cells[22]))
					}
				}
				if text := strings.Join(lines, "\n"); version == "470" {
					assert.NotContains(t, text, "NIC Legend")
				} else {
					assert.Contains(t, text, "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n")
					assert.Contains(t, text, "  NIC11: mlx5_11")
				}
			})
		}
	}
}
