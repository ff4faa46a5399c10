package agent

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/simulate"
	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// gpu is what metrics are computed from.
type gpu struct {
	*profiles.Device
	board    *profiles.Board
	readings *simulate.Readings
	meter    *simulate.Meter
	state    *state.State
	now      time.Time
}

// metric is one of dcgm-exporter's. Its value is not valid on a board that does not have it.
type metric struct {
	name, kind, help string
	value            func(g *gpu) (float64, bool)
}

type number interface{ ~int32 | ~uint32 | ~uint64 }

func value[T number](o profiles.Opt[T]) (float64, bool) { return float64(o.Value), o.Valid }

func mebibytes(bytes uint64) float64 { return float64(bytes >> 20) }

func memory(of func(profiles.FrameBuffer) uint64) func(*gpu) (float64, bool) {
	return func(g *gpu) (float64, bool) {
		m, ok := g.MemoryUse()
		return mebibytes(of(m)), ok
	}
}

// load is a utilisation, which a GPU in MIG mode does not have.
func load(of func(*profiles.Utilization) profiles.Opt[uint32]) func(*gpu) (float64, bool) {
	return func(g *gpu) (float64, bool) {
		if g.MIG.ModeCurrent.Value {
			return 0, false
		}
		return value(of(&g.readings.Utilization))
	}
}

// metrics are those of dcgm-exporter's default list that the profile has values for, in its order.
var metrics = []metric{
	{"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", func(g *gpu) (float64, bool) { return value(g.readings.SMMHz) }},
	{"DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", func(g *gpu) (float64, bool) { return value(g.readings.MemoryMHz) }},
	{"DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", func(g *gpu) (float64, bool) { return value(g.Thermal.TemperatureMemoryC) }},
	{"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", func(g *gpu) (float64, bool) { return value(g.readings.TemperatureC) }},
	{"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", func(g *gpu) (float64, bool) {
		mw, ok := value(g.readings.PowerMW)
		return mw / 1000, ok
	}},
	{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", func(g *gpu) (float64, bool) {
		return value(g.meter.Value(simulate.Count{Quantity: simulate.Energy}, g.now.UnixMilli))
	}},
	{"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", func(g *gpu) (float64, bool) { return value(g.PCIe.ReplayCounter) }},
	{"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", load(func(u *profiles.Utilization) profiles.Opt[uint32] { return u.GPU })},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", load(func(u *profiles.Utilization) profiles.Opt[uint32] { return u.Memory })},
	{"DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", load(func(u *profiles.Utilization) profiles.Opt[uint32] { return u.Encoder })},
	{"DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", load(func(u *profiles.Utilization) profiles.Opt[uint32] { return u.Decoder })},
	{"DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", func(g *gpu) (float64, bool) { return lastXid(g), true }},
	{"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", memory(func(m profiles.FrameBuffer) uint64 { return m.Free })},
	{"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", memory(func(m profiles.FrameBuffer) uint64 { return m.Used })},
	{"DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", memory(func(m profiles.FrameBuffer) uint64 { return m.Reserved })},
	{"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for uncorrectable errors", func(g *gpu) (float64, bool) { return value(g.RemappedRows.Uncorrectable) }},
	{"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for correctable errors", func(g *gpu) (float64, bool) { return value(g.RemappedRows.Correctable) }},
	{"DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed", func(g *gpu) (float64, bool) {
		f := g.RemappedRows.FailureOccurred
		if f.Value {
			return 1, true
		}
		return 0, f.Valid
	}},
}

// lastXid is the number of the newest Xid error of a GPU; 0 if there has been none.
func lastXid(g *gpu) float64 {
	if g.state == nil {
		return 0
	}
	last := uint64(0)
	for _, e := range g.state.Events {
		if e.Device == g.UUID && e.Type == abi.EventTypeXidCriticalError {
			last = e.Data
		}
	}
	return float64(last)
}

// Metrics are the readings of the node's GPUs in the text format that dcgm-exporter writes. A GPU that does not answer NVML has
// its Xid errors alone. A GPU that a container has names it; one in MIG mode names none.
func (a *Agent) Metrics(ctx context.Context) string {
	owners, err := a.owners(ctx)
	if err != nil {
		a.o.Log(fmt.Errorf("the metrics name no pods: %w", err))
	}
	a.looking.Lock()
	defer a.looking.Unlock()
	staged := a.view.look(filepath.Join(a.o.Root, current))
	if staged == nil {
		return ""
	}
	now := time.Now()
	var gpus []*gpu
	for i := range staged.Source.Board.Devices {
		d, meter, err := staged.Source.Meter(i, now.UnixMilli())
		if err != nil {
			a.o.Log(err)
			continue
		}
		gpus = append(gpus, &gpu{d, staged.Source.Board, meter.Course().At(now.Unix()), meter, staged.Source.State, now})
	}
	var text strings.Builder
	for _, m := range metrics {
		head := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", m.name, m.help, m.kind)
		for _, g := range gpus {
			v, ok := m.value(g)
			if !ok || silent(g.Device) && m.name != "DCGM_FI_DEV_XID_ERRORS" {
				continue
			}
			fmt.Fprintf(&text, "%s%s{gpu=\"%d\",UUID=%q,pci_bus_id=%q,device=\"nvidia%d\",modelName=%q,Hostname=%q,hostname=%[8]q,%[9]sDCGM_FI_DRIVER_VERSION=%[10]q} %[11]s\n", head, m.name,
				g.Index, string(g.UUID), g.PCI.BusID.Value.String(), g.MinorNumber.Or(g.Index), g.Name.Or("Unknown"), a.o.Node, ownedBy(owners[string(g.UUID)]), g.board.System.DriverVersion.Value,
				fmt.Sprintf("%g", v))
			head = ""
		}
	}
	return text.String()
}

// ownedBy are the labels of the container that has a GPU.
func ownedBy(o owner) string {
	if o.pod == "" {
		return ""
	}
	return fmt.Sprintf("container=%q,namespace=%q,pod=%q,", o.container, o.namespace, o.pod)
}

// silent says whether NVML answers nothing about a GPU.
func silent(d *profiles.Device) bool {
	mode := d.Failure.Mode.Value
	return mode != "" && mode != "none" && mode != "ecc_uncorrectable" && !d.Failure.Waits()
}

// ServeHTTP answers /metrics and, for probes, /healthz.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	switch r.URL.Path {
	case "/metrics":
		fmt.Fprint(w, a.Metrics(r.Context()))
	case "/healthz":
		fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}
