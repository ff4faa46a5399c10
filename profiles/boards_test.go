package profiles

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shorter leaves out what is absent at the end of a section, since later keys are absent in most boards.
func shorter(section string) string {
	inner, ok := strings.CutSuffix(section, "}")
	for trimmed := ok; trimmed; {
		inner, trimmed = strings.CutSuffix(inner, " -")
	}
	return inner
}

func TestBoardFacts(t *testing.T) {
	for _, name := range Names() {
		facts := boardFacts[name] + moreFacts[name]
		require.NotEmpty(t, facts, name)
		b, err := ParseSource(name)
		require.NoError(t, err)
		for path, want := range factLines(t, facts) {
			for i, have := range look(t, b, path) {
				assert.Equal(t, shorter(want), shorter(have), "%s: devices[%d]: %s", name, i, path)
			}
		}
	}
}

func TestNothingFromElsewhere(t *testing.T) {
	for name, lines := range elsewhere {
		b, err := ParseSource(name)
		require.NoError(t, err)
		for path, wrong := range factLines(t, lines) {
			for i, have := range look(t, b, path) {
				assert.NotEqual(t, wrong, have, "%s: devices[%d]: %s", name, i, path)
				assert.NotEqual(t, "-", have, "%s: devices[%d]: %s", name, i, path)
			}
		}
	}
}

// factLines returns the values of a list by path.
func factLines(t *testing.T, text string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		path, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		require.True(t, ok, line)
		require.NotContains(t, lines, path)
		lines[path] = value
	}
	return lines
}

// look returns the values at a path: one for the board, or one for each device that the path names.
func look(t *testing.T, b *Board, path string) []string {
	section, rest, _ := strings.Cut(path, ".")
	switch section {
	case "devices":
		return []string{strconv.Itoa(len(b.Devices))}
	case "system":
		return []string{fact(at(t, reflect.ValueOf(b.System), rest), rest)}
	case "nvlink":
		return []string{fact(at(t, reflect.ValueOf(b.NVLink), rest), rest)}
	}
	devices := b.Devices
	if n, err := strconv.Atoi(strings.Trim(section, "[]")); err == nil {
		devices, path = devices[n:n+1], rest
	}
	var all []string
	for _, d := range devices {
		switch path {
		case "free":
			all = append(all, fact(reflect.ValueOf(d.Memory.TotalBytes.Value-d.Memory.ReservedBytes.Value-d.Memory.UsedBytes.Value), "free_bytes"))
		case "supported_clocks":
			all = append(all, clockFacts(d.SupportedClocks))
		case "pci":
			if len(b.Devices) > 1 {
				d.PCI.BusID = Opt[BusID]{} // each has its own
			}
			fallthrough
		default:
			all = append(all, fact(at(t, reflect.ValueOf(d), path), path))
		}
	}
	return all
}

func at(t *testing.T, v reflect.Value, path string) reflect.Value {
	for key := range strings.SplitSeq(path, ".") {
		f, ok := fields(v.Type()).byKey[key]
		require.True(t, ok, "%s in %s", key, path)
		v = v.FieldByIndex(f.index)
	}
	return v
}

// fact formats a value in nvidia-smi's units.
func fact(v reflect.Value, path string) string {
	if v.Kind() == reflect.Struct && v.IsZero() {
		return "-"
	}
	if v.Kind() == reflect.Struct && strings.HasPrefix(v.Type().Name(), "Opt[") {
		v = v.Field(0)
	}
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[BusID]() {
		var parts []string
		for i := range v.NumField() {
			key := v.Type().Field(i).Tag.Get("yaml")
			if key == "bus_id" && v.Field(i).IsZero() || strings.HasPrefix(key, "bbx_") {
				continue
			}
			parts = append(parts, fact(v.Field(i), key))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	switch {
	case strings.HasSuffix(path, "_bytes"):
		return fmt.Sprintf("%d MiB", (v.Uint()+1<<19)>>20)
	case strings.HasSuffix(path, "_mw"):
		return fmt.Sprintf("%.2f W", float64(v.Uint())/1000)
	case strings.HasSuffix(path, "_c"):
		return fmt.Sprintf("%d C", v.Int())
	case strings.HasSuffix(path, "_us"):
		return fmt.Sprintf("%d us", v.Uint())
	case strings.HasPrefix(path, "clocks."):
		return fmt.Sprintf("%d MHz", v.Uint())
	case strings.HasSuffix(path, "device_id"), strings.HasSuffix(path, "subsystem_id"):
		return fmt.Sprintf("%#08x", v.Uint())
	}
	return fmt.Sprint(v.Interface())
}

func clockFacts(s SupportedClocks) string {
	var parts []string
	for _, m := range s.MemoryClocks {
		c := m.GraphicsClocks
		parts = append(parts, fmt.Sprintf("%d MHz: %d steps %d MHz..%d MHz", m.FreqMHz, len(c), c[0], c[len(c)-1]))
	}
	return strings.Join(parts, "; ")
}

// TestIdentifiersAreOwn: no shipped GPU has an identifier of another board, or one that scrubbing left in a capture.
func TestIdentifiersAreOwn(t *testing.T) {
	uuids, pdis, serials := map[UUID]string{}, map[uint64]string{}, map[string]string{}
	for _, name := range Names() {
		b, err := ParseSource(name)
		require.NoError(t, err)
		for _, d := range b.Devices {
			assert.Empty(t, uuids[d.UUID], "%s: %s", name, d.UUID)
			uuids[d.UUID] = name
			if pdi, ok := d.PDI.Get(); ok {
				assert.Empty(t, pdis[pdi], "%s: %#x", name, pdi)
				assert.Greater(t, pdi, uint64(1<<32), name)
				pdis[pdi] = name
			}
			if !d.Serial.Valid {
				continue
			}
			other := serials[d.Serial.Value]
			assert.True(t, other == "" || other == name, "%s: %s", name, d.Serial.Value)
			assert.NotContains(t, d.Serial.Value, "00000000", name)
			serials[d.Serial.Value] = name
		}
	}
}

// TestGB200Modules: the two GPUs of a module share its serial number and Grace CPU, and the fabric knows a GPU by its PDI.
func TestGB200Modules(t *testing.T) {
	b, err := ParseSource("gb200")
	require.NoError(t, err)
	for i, d := range b.Devices {
		assert.Equal(t, Some(uint32(i/2)), d.GraceCPUPair)
		assert.Equal(t, i/2 == 0, d.Serial == b.Devices[0].Serial)
		assert.Equal(t, d.PDI, d.Platform.GPUFabricGUID)
		assert.NotZero(t, d.Fabric.ClusterUUID.Value)
		assert.Equal(t, b.Devices[0].Fabric.ClusterUUID, d.Fabric.ClusterUUID)
		assert.Equal(t, []BusID{d.PCI.BusID.Value}, b.Topology.RootComplexes[i].Devices)
	}
	clocks := b.Devices[0].SupportedClocks.MemoryClocks[0].GraphicsClocks
	assert.Equal(t, ClockSteps{2062, 2055, 2047, 2040, 2032}, clocks[:5])
	assert.Equal(t, ClockSteps{135, 127, 120}, clocks[257:])
}
