package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inhabited is a machine with processes of each type. One of them uses two GPUs, and one has a name that XML must
// escape.
const inhabited = `extends: h100
count: 3
devices:
  - index: 0
    processes:
      - {pid: 4001, type: C, name: /usr/bin/python3, used_memory_mib: 1024, sm_util: 50, mem_util: 20, enc_util: 5, dec_util: 7}
      - {pid: 4002, type: G, name: /usr/lib/xorg/Xorg, used_memory_mib: 64, sm_util: 3}
      - {pid: 4003, type: C+G, name: "/opt/<a&b>", used_memory_mib: 512, sm_util: 11, mem_util: 9}
      - {pid: 4004, name: /bin/unmeasured}
  - index: 2
    processes:
      - {pid: 4001, type: C, name: /usr/bin/python3, used_memory_mib: 2048, sm_util: 30}
`

// inhabitant is a process as nvidia-smi shows it.
type inhabitant struct{ gpu, pid, kind, name, memory string }

// inhabitants are the processes of a board of that kind; C+G counts as both kinds.
func inhabitants(b *profiles.Board, kind string) []inhabitant {
	var list []inhabitant
	for _, d := range b.Devices {
		for _, p := range d.Processes {
			if strings.Contains(p.Type.Or("C"), kind) {
				list = append(list, inhabitant{fmt.Sprint(d.Index), fmt.Sprint(p.PID), p.Type.Or("C"), p.Name.Value, shown(p.UsedMemoryMiB)})
			}
		}
	}
	return list
}

// TestSMIProcesses: processes of the profile have the right names, memory, types and loads wherever nvidia-smi lists
// them.
func TestSMIProcesses(t *testing.T) {
	for _, driver := range smiDrivers {
		t.Run(fmt.Sprint(driver), func(t *testing.T) {
			t.Parallel()
			m := profiled(t, driver, inhabited)
			all := inhabitants(m.board, "")

			t.Run("summary", func(t *testing.T) {
				row := regexp.MustCompile(`(?m)^\| +(\d+) +N/A +N/A +(\d+) +([CG+]+) +(\S.*?) +(\d+|N/A)(?:MiB)? *\|$`)
				assert.Equal(t, all, found(row, m.run(t).succeeds(t).stdout, 1, 2, 3, 4, 5))
			})
			t.Run("query", func(t *testing.T) {
				row := regexp.MustCompile(`(?m)^        GPU instance ID +: N/A\n +Compute instance ID +: N/A\n +Process ID +: (\d+)\n` +
					` +Type +: (\S+)\n +Name +: (.+)\n +Used GPU Memory +: (?:(\d+) MiB|Not available in WDDM driver model)$`)
				want := slices.Clone(all)
				for i := range want {
					want[i].gpu = ""
					want[i].memory = strings.Replace(want[i].memory, absent, "", 1)
				}
				assert.Equal(t, want, found(row, m.run(t, "-q").succeeds(t).stdout, 0, 1, 2, 3, 4))
			})
			t.Run("xml", func(t *testing.T) {
				_, gpus := m.run(t, "-q", "-x").succeeds(t).elements(t)
				var names []string
				for _, p := range all {
					if p.gpu == "0" {
						names = append(names, p.name)
					}
				}
				// for several processes the plain path has the last one
				assert.Equal(t, names[len(names)-1], gpus[0]["processes/process_info/process_name"])
				assert.Equal(t, "python3", strings.TrimPrefix(gpus[2]["processes/process_info/process_name"], "/usr/bin/"))
				assert.Equal(t, "2048 MiB", gpus[2]["processes/process_info/used_memory"])
				assert.Equal(t, "C", gpus[2]["processes/process_info/type"])
				assert.Contains(t, m.run(t, "-q", "-x").stdout, "<process_name>/opt/&lt;a&amp;b&gt;</process_name>")
			})
			t.Run("compute apps", func(t *testing.T) {
				_, rows := m.run(t, "--query-compute-apps=gpu_uuid,pid,name,used_memory", "--format=csv,nounits").succeeds(t).table(t)
				var have []inhabitant
				for _, r := range rows {
					at := slices.IndexFunc(m.board.Devices, func(d profiles.Device) bool { return string(d.UUID) == r[0] })
					have = append(have, inhabitant{fmt.Sprint(at), r[1], "", r[2], strings.Trim(r[3], "[]")})
				}
				want := inhabitants(m.board, "C")
				for i := range want {
					want[i].kind = ""
				}
				assert.Equal(t, want, have)
			})
			t.Run("pmon", func(t *testing.T) {
				rows := m.run(t, "pmon", "-c", "1").monitored(t)
				require.Len(t, rows, len(all)+1)
				idle := func(s string) string { return regexp.MustCompile(`^(0|N/A)$`).ReplaceAllString(s, "-") }
				for _, d := range m.board.Devices {
					if len(d.Processes) == 0 {
						assert.Equal(t, "-", rows[0]["pid"])
						rows = rows[1:]
					}
					for _, p := range d.Processes {
						want := map[string]string{
							"gpu": fmt.Sprint(d.Index), "pid": fmt.Sprint(p.PID), "type": p.Type.Or("C"),
							"sm": idle(shown(p.SMUtil)), "mem": idle(shown(p.MemUtil)),
							"enc": idle(shown(p.EncUtil)), "dec": idle(shown(p.DecUtil)),
							"command": p.Name.Value[strings.LastIndex(p.Name.Value, "/")+1:],
						}
						if m.driver >= 550 {
							want["jpg"], want["ofa"] = "-", "-"
						}
						assert.Equal(t, want, rows[0])
						rows = rows[1:]
					}
				}
			})
		})
	}
}

// found are the processes that an expression matches. groups are the numbers of its groups in the order of the fields,
// or 0 for a field that is left empty.
func found(row *regexp.Regexp, text string, groups ...int) []inhabitant {
	var list []inhabitant
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		m[0] = ""
		list = append(list, inhabitant{m[groups[0]], m[groups[1]], m[groups[2]], m[groups[3]], m[groups[4]]})
	}
	return list
}
