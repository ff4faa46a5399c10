package change

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nvmlfab/nvmlfab/engine/state"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// Numbers of Xid errors, as NVIDIA's Xid catalogue has them.
const (
	xidDoubleBit        = 48
	xidRowRemapped      = 63
	xidRowRemapFailed   = 64
	xidLink             = 74
	xidFallenOffBus     = 79
	xidContained        = 94 // an uncorrectable error that stays within one program
	xidGPUNeedsRecovery = 154
)

// Fault is a way for a GPU or the node to fail.
type Fault struct {
	// Kind is one of Kinds.
	Kind string
	// Xid is the number of an error for the kind xid.
	Xid uint64
	// Count is how many errors happen, for the kinds that count errors; 0 is one.
	Count uint64
	// Rate is how many link errors there are per second, for nvlink-error; 0 is one.
	Rate float64
	// Links are the links that have errors, for nvlink-error; all if empty.
	Links []uint32
	// AfterCalls, Probability and Seed let the GPU fail in each process by itself: after a number of calls, or by chance at
	// each call. Only the kinds whose Waits is true can.
	AfterCalls  profiles.Opt[int64]
	Probability profiles.Opt[float64]
	Seed        profiles.Opt[int64]
}

// waits says whether the GPU does not fail at once.
func (f Fault) waits() bool { return f.AfterCalls.Valid || f.Probability.Valid }

// Kind is a kind of fault.
type Kind struct {
	Name string
	// Help says what it does.
	Help string
	// Mode is the failure.mode that it stands for; empty if it stands for none.
	Mode string
	// Counts says that it counts errors, and so can count several at once.
	Counts bool
	// GPU and Node say what can fail so, and Port and Switch what of an InfiniBand fabric can.
	GPU, Node, Port, Switch bool

	// fail are the profile keys that make a GPU fail so, and the events that it sends. Its error says why the GPU cannot.
	fail func(t *Tx, i int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error)
	node string // the system.init_failure that it stands for
}

// InfiniBand says whether it is a fault of an InfiniBand fabric.
func (k *Kind) InfiniBand() bool { return k.Port || k.Switch }

// Waits says whether the kind can strike after a number of calls or by chance.
func (k *Kind) Waits() bool { return k.Mode != "" }

// Kinds are all kinds of faults, in the order in which people read them. They are made when somebody asks, since most
// processes that load the library do not.
var Kinds = sync.OnceValue(func() []Kind {
	return slices.Concat([]Kind{
		mode("lost", "lost", "NVML answers GPU is lost; sends Xid 79", xidFallenOffBus, ""),
		mode("fallen-off-bus", "fallen_off_bus", "as lost: the GPU is no longer on the PCI bus; sends Xid 79", xidFallenOffBus, ""),
		{Name: "ecc-uncorrectable", Counts: true, Mode: "ecc_uncorrectable", GPU: true, fail: uncorrectable,
			Help: "counts an uncorrectable memory error, which wants a reset; sends Xid 48 and a double bit ECC event"},
		{Name: "ecc-correctable", Counts: true, GPU: true, fail: correctable, Help: "counts a corrected memory error; sends a single bit ECC event"},
		{Name: "sram-ecc", Counts: true, GPU: true, fail: sram, Help: "counts an uncorrectable error of the memory on the chip; sends Xid 94 and a double bit ECC event"},
		{Name: "row-remap-pending", Counts: true, GPU: true, fail: remapPending, Help: "a memory row waits for a reset to be replaced; sends Xid 63"},
		{Name: "row-remap-failure", GPU: true, fail: remapFailed, Help: "a memory row could not be replaced; sends Xid 64"},
		{Name: "xid", GPU: true, fail: xid, Help: "sends the Xid error of a number, and changes nothing else"},
		{Name: "nvlink-error", GPU: true, fail: linkErrors, Help: "the error counters of the GPU's NVLinks grow; sends Xid 74"},
		mode("reset-required", "reset_required", "NVML answers GPU requires reset; sends Xid 154", xidGPUNeedsRecovery, "gpu_reset"),
		mode("not-ready", "not_ready", "NVML answers not ready; of the node, so does nvmlInit", 0, ""),
		mode("no-permission", "no_permission", "NVML answers no permission; of the node, so does nvmlInit", 0, ""),
		mode("timeout", "timeout", "NVML answers timeout; of the node, so does nvmlInit", 0, ""),
		mode("unknown-error", "unknown_error", "NVML answers unknown error; of the node, so does nvmlInit", 0, ""),
	}, fabricKinds(), []Kind{
		{Name: "lib-rm-version-mismatch", Node: true, node: "lib_rm_version_mismatch", Help: "nvmlInit answers driver/library version mismatch"},
		{Name: "driver-not-loaded", Node: true, node: "driver_not_loaded", Help: "nvmlInit answers driver not loaded"},
		{Name: "gpu-not-found", Node: true, node: "gpu_not_found", Help: "nvmlInit answers that there is no GPU"},
		{Name: "irq-issue", Node: true, node: "irq_issue", Help: "nvmlInit answers that the GPU's interrupts do not arrive"},
	}, linkKinds)
})

// initFailures are the kinds of GPU faults that the node can have too.
var initFailures = []string{"not_ready", "no_permission", "timeout", "unknown_error"}

// mode is a kind that is a failure.mode: what the GPU's functions answer.
func mode(name, mode, help string, xid uint64, action string) Kind {
	k := Kind{Name: name, Help: help, Mode: mode, GPU: true}
	if slices.Contains(initFailures, mode) {
		k.Node, k.node = true, mode
	}
	k.fail = func(_ *Tx, _ int, d *profiles.Device, _ Fault) (profiles.Settings, []state.Event, error) {
		keys := failure(mode)
		if xid != 0 {
			keys["failure.xid.code"] = xid // the event follows from it
		}
		if action != "" && d.RecoveryAction.Valid {
			keys["recovery_action"] = action
		}
		return keys, nil, nil
	}
	return k
}

// failure are the keys of a failure that is in force at once.
func failure(mode string) profiles.Settings {
	return profiles.Settings{
		"failure.mode": mode, "failure.after_calls": nil, "failure.probability": nil, "failure.seed": nil, "failure.xid.code": nil,
	}
}

// KindOf is the kind of that name. The error names the nearest one.
func KindOf(name string) (*Kind, error) {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	var names []string
	kinds := Kinds()
	for i := range kinds {
		if kinds[i].Name == name {
			return &kinds[i], nil
		}
		names = append(names, kinds[i].Name)
	}
	if near := profiles.Nearest(name, names); near != "" {
		return nil, fmt.Errorf("unknown fault %.60q: did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("unknown fault %.60q: want one of %s", name, strings.Join(names, ", "))
}

// Fail makes a GPU, or the node for a negative number, fail: for good, or until a time in ms since 1970. It takes the place
// of an earlier fault of the same kind, and errors that are counted add up. The layer is By, followed by the kind; what is
// empty is ByFault.
func (t *Tx) Fail(i int, by string, until int64, f Fault) error {
	k, err := KindOf(f.Kind)
	if err != nil {
		return err
	}
	if by == "" {
		by = ByFault
	}
	switch {
	case k.InfiniBand():
		return fmt.Errorf("%s is a fault of InfiniBand: say of which port or switch", k.Name)
	case i < 0 && !k.Node:
		return fmt.Errorf("%s is a fault of GPUs: say of which one", k.Name)
	case i >= 0 && !k.GPU:
		return fmt.Errorf("%s is a fault of the node, not of one of its GPUs", k.Name)
	case f.waits() && (i < 0 || !k.Waits()):
		return fmt.Errorf("%s cannot wait for calls: it happens at once", k.Name)
	case i < 0:
		return t.cover(-1, by+k.Name, until, profiles.Settings{"system.init_failure": k.node})
	}
	d, err := t.Device(i)
	if err != nil {
		return err
	}
	if f.waits() {
		keys := failure(k.Mode)
		for key, value := range map[string]any{
			"failure.after_calls": f.AfterCalls, "failure.probability": f.Probability, "failure.seed": f.Seed,
		} {
			switch v := value.(type) {
			case profiles.Opt[int64]:
				if v.Valid {
					keys[key] = v.Value
				}
			case profiles.Opt[float64]:
				if v.Valid {
					keys[key] = v.Value
				}
			}
		}
		return t.cover(i, by+k.Name, until, keys)
	}
	keys, events, err := k.fail(t, i, d, f)
	if err != nil {
		return err
	}
	for _, e := range events {
		t.Event(i, e.Type, e.Data)
	}
	if keys == nil {
		return nil
	}
	return t.cover(i, by+k.Name, until, keys)
}

// cover lays keys over all other layers. They take the place of those that the same fault has laid before.
func (t *Tx) cover(i int, by string, until int64, keys profiles.Settings) error {
	r := t.Record(i)
	t.expire(i, r)
	r.Set = slices.DeleteFunc(r.Set, func(l state.Layer) bool { return l.By == by })
	r.Set = append(r.Set, state.Layer{Keys: keys, Until: until, By: by})
	return t.check(i)
}

// FaultOf is the kind of the fault whose layer it is; empty if it is that of none.
func FaultOf(l state.Layer) string {
	if kind, ok := strings.CutPrefix(l.By, ByFault); ok {
		return kind
	}
	if rest, ok := strings.CutPrefix(l.By, ByScenario); ok {
		_, kind, _ := strings.Cut(rest, ":")
		return kind
	}
	return ""
}

// Heal takes back the faults of a GPU, or of the node for a negative number: those of a kind, or all if it is empty. It
// says which there were.
func (t *Tx) Heal(i int, kind string) (healed []string, err error) {
	_, err = t.DropLayers(i, func(l state.Layer) bool {
		of := FaultOf(l)
		if of == "" || kind != "" && of != kind {
			return false
		}
		healed = append(healed, of)
		return true
	})
	return healed, err
}

// EndScenario takes back what a scenario has done to a GPU, or to the node for a negative number. It says whether there was
// anything.
func (t *Tx) EndScenario(i int, id string) (bool, error) {
	of := func(by string) bool { return by == ByScenario+id || strings.HasPrefix(by, ByScenario+id+":") }
	n, err := t.DropLayers(i, func(l state.Layer) bool { return of(l.By) })
	if err != nil {
		return false, err
	}
	ended, err := t.endProcesses(i, func(p state.Process) bool { return of(p.By) })
	if i < 0 {
		r := t.Record(i)
		ended += len(r.Plays)
		r.Plays = slices.DeleteFunc(r.Plays, func(p state.Play) bool { return p.ID == id })
		ended -= len(r.Plays)
		ended += t.endLinks(id)
	}
	return n+ended > 0, err
}

// BeginScenario notes that a scenario is being played from now until a time in ms since 1970. No other of the same id may
// be played at the time.
func (t *Tx) BeginScenario(id string, until int64) error {
	r := t.Record(-1)
	t.expire(-1, r)
	if slices.ContainsFunc(r.Plays, func(p state.Play) bool { return p.ID == id }) {
		return fmt.Errorf("%s is being played already, or was and has been killed: nvmlfab heal --play %[1]s ends it", id)
	}
	r.Plays = append(r.Plays, state.Play{ID: id, Started: t.Now, Until: until})
	return nil
}

// event is an event of a type.
func event(kind, data uint64) state.Event { return state.Event{Type: kind, Data: data} }

func xidEvent(code uint64) state.Event { return event(abi.EventTypeXidCriticalError, code) }

func xid(_ *Tx, _ int, _ *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	if f.Xid == 0 {
		return nil, nil, fmt.Errorf("xid wants the number of an Xid error, such as xid 79")
	}
	return nil, []state.Event{xidEvent(f.Xid)}, nil
}

// more puts a counter n higher into settings, and says whether the board has it.
func more(s profiles.Settings, key string, counter profiles.Opt[uint64], n uint64) bool {
	if counter.Valid {
		s[key] = counter.Value + n
	}
	return counter.Valid
}

// countedTwice puts errors of the GPU's memory into settings, since the driver was loaded and since ever.
func countedTwice(s profiles.Settings, d *profiles.Device, severity string, of func(*profiles.ECCErrorCounts) profiles.ECCMemoryErrors, n uint64) bool {
	if !d.ECC.ModeCurrent.Value {
		return false
	}
	counts := false
	for life, errors := range map[string]*profiles.ECCErrorCounts{"volatile": &d.ECC.Errors.Volatile, "aggregate": &d.ECC.Errors.Aggregate} {
		in := "ecc.errors." + life + "." + severity + "."
		counts = more(s, in+"device_memory", of(errors).DeviceMemory, n) || counts
		more(s, in+"total", of(errors).Total, n)
	}
	return counts
}

// errNoECC is the error of a GPU that counts no such errors.
func errNoECC(d *profiles.Device, what string) error {
	if d.ECC.ModeCurrent.Valid && !bool(d.ECC.ModeCurrent.Value) {
		return fmt.Errorf("ECC is off, so nothing counts %s", what)
	}
	return fmt.Errorf("the board does not count %s", what)
}

// Uncorrectable are the keys of a device's uncorrectable memory errors: they are counted, and a row or a page waits for a
// reset to be replaced. false if the device counts none.
func Uncorrectable(d *profiles.Device, n uint64) (profiles.Settings, bool) {
	s := profiles.Settings{}
	if !countedTwice(s, d, "double_bit", func(e *profiles.ECCErrorCounts) profiles.ECCMemoryErrors { return e.DoubleBit }, n) {
		return nil, false
	}
	if rows := &d.RemappedRows; rows.Pending.Valid {
		s["remapped_rows.pending"] = true
		if rows.Uncorrectable.Valid {
			s["remapped_rows.uncorrectable"] = rows.Uncorrectable.Value + uint32(n)
		}
	}
	if pages := &d.RetiredPages; pages.PendingRetirement.Valid {
		s["retired_pages.pending_retirement"] = true
		if pages.DoubleBitRetirement.Count.Valid {
			s["retired_pages.double_bit_retirement.count"] = pages.DoubleBitRetirement.Count.Value + uint32(n)
		}
	}
	if d.RecoveryAction.Valid {
		s["recovery_action"] = "gpu_reset"
	}
	return s, true
}

func uncorrectable(_ *Tx, _ int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	n := max(f.Count, 1)
	s, ok := Uncorrectable(d, n)
	if !ok {
		return nil, nil, errNoECC(d, "uncorrectable memory errors")
	}
	return s, []state.Event{event(abi.EventTypeDoubleBitEccError, n), xidEvent(xidDoubleBit)}, nil
}

func correctable(_ *Tx, _ int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	n, s := max(f.Count, 1), profiles.Settings{}
	if !countedTwice(s, d, "single_bit", func(e *profiles.ECCErrorCounts) profiles.ECCMemoryErrors { return e.SingleBit }, n) {
		return nil, nil, errNoECC(d, "corrected memory errors")
	}
	return s, []state.Event{event(abi.EventTypeSingleBitEccError, n)}, nil
}

func sram(_ *Tx, _ int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	n, s := max(f.Count, 1), profiles.Settings{}
	has := false
	if e := &d.ECC; e.ModeCurrent.Value {
		for life, counts := range map[string]*profiles.SRAMCounts{"volatile": &e.SRAM.Volatile, "aggregate": &e.SRAM.Aggregate} {
			has = more(s, "ecc.sram."+life+".uncorrectable_parity", counts.UncorrectableParity, n) || has
		}
		more(s, "ecc.sram.uncorrectable_sources.sm", e.SRAM.UncorrectableSources.SM, n)
		for life, errors := range map[string]*profiles.ECCErrorCounts{"volatile": &e.Errors.Volatile, "aggregate": &e.Errors.Aggregate} {
			has = more(s, "ecc.errors."+life+".double_bit.sram", errors.DoubleBit.SRAM, n) || has
			more(s, "ecc.errors."+life+".double_bit.total", errors.DoubleBit.Total, n)
		}
	}
	if !has {
		return nil, nil, errNoECC(d, "errors of the memory on the chip")
	}
	if d.RecoveryAction.Valid {
		s["recovery_action"] = "gpu_reset"
	}
	return s, []state.Event{event(abi.EventTypeDoubleBitEccError, n), xidEvent(xidContained)}, nil
}

func remapPending(_ *Tx, _ int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	rows, n := &d.RemappedRows, uint32(max(f.Count, 1))
	if !rows.Pending.Valid {
		return nil, nil, fmt.Errorf("the board does not remap rows")
	}
	s := profiles.Settings{"remapped_rows.pending": true}
	if rows.Correctable.Valid {
		s["remapped_rows.correctable"] = rows.Correctable.Value + n
	}
	return s, []state.Event{xidEvent(xidRowRemapped)}, nil
}

func remapFailed(_ *Tx, _ int, d *profiles.Device, _ Fault) (profiles.Settings, []state.Event, error) {
	if !d.RemappedRows.FailureOccurred.Valid {
		return nil, nil, fmt.Errorf("the board does not remap rows")
	}
	return profiles.Settings{"remapped_rows.failure_occurred": true}, []state.Event{xidEvent(xidRowRemapFailed)}, nil
}

func linkErrors(t *Tx, i int, d *profiles.Device, f Fault) (profiles.Settings, []state.Event, error) {
	board, err := t.Board()
	if err != nil {
		return nil, nil, err
	}
	links := board.LinkCount(d.Index)
	if links == 0 {
		return nil, nil, fmt.Errorf("the board has no NVLinks")
	}
	of := []any{}
	for _, l := range f.Links {
		if l >= links {
			return nil, nil, fmt.Errorf("there is no link %d: the GPU has %d, from 0 to %d", l, links, links-1)
		}
		of = append(of, l)
	}
	rate := f.Rate
	if rate == 0 {
		rate = 1
	}
	return profiles.Settings{"nvlink_error.rate": rate, "nvlink_error.links": of}, []state.Event{xidEvent(xidLink)}, nil
}

// fabricKinds are the conditions of an NVLink fabric of machines.
func fabricKinds() (list []Kind) {
	condition := func(name, help string, keys profiles.Settings) {
		list = append(list, Kind{Name: "fabric-" + name, Help: help, GPU: true,
			fail: func(_ *Tx, _ int, d *profiles.Device, _ Fault) (profiles.Settings, []state.Event, error) {
				s, err := fabric(d, keys)
				return s, nil, err
			}})
	}
	for _, c := range []struct{ key, help string }{
		{"degraded_bandwidth", "the NVLink fabric has less bandwidth"},
		{"route_recovery", "the NVLink fabric recovers a route"},
		{"route_unhealthy", "a route of the NVLink fabric is unhealthy"},
		{"access_timeout_recovery", "the NVLink fabric recovers from an access timeout"},
	} {
		condition(strings.ReplaceAll(c.key, "_", "-"), c.help, profiles.Settings{"fabric.health." + c.key: true})
	}
	for _, word := range []string{"incorrect_sysguid", "incorrect_chassis_sn", "no_partition", "insufficient_nvlinks",
		"incompatible_gpu_fw", "invalid_location", "gpu_state_invalid"} {
		condition(strings.ReplaceAll(word, "_", "-"), "the NVLink fabric is configured wrongly: "+strings.ReplaceAll(word, "_", " "),
			profiles.Settings{"fabric.health.incorrect_configuration": word})
	}
	condition("in-progress", "the GPU is registering with the NVLink fabric, as while it boots", profiles.Settings{"fabric.state": "in_progress"})
	condition("not-started", "the GPU has not begun to register with the NVLink fabric", profiles.Settings{"fabric.state": "not_started"})
	return list
}

// fabric are the keys of a condition. A profile that summarises the health in other keys does not hide it, and conditions
// that the profile does not mention are not there.
func fabric(d *profiles.Device, condition profiles.Settings) (profiles.Settings, error) {
	if d.Fabric == (profiles.Fabric{}) || d.Fabric.State.Value == "not_supported" {
		return nil, fmt.Errorf("the board has no NVLink fabric")
	}
	s := profiles.Settings{}
	if _, state := condition["fabric.state"]; !state {
		s["fabric.health_mask"], s["fabric.health_summary"] = nil, "auto"
		h := &d.Fabric.Health
		for key, given := range map[string]bool{
			"degraded_bandwidth": h.DegradedBandwidth.Valid, "route_recovery": h.RouteRecovery.Valid,
			"route_unhealthy": h.RouteUnhealthy.Valid, "access_timeout_recovery": h.AccessTimeoutRecovery.Valid,
		} {
			if !given {
				s["fabric.health."+key] = false
			}
		}
		if !h.IncorrectConfiguration.Valid {
			s["fabric.health.incorrect_configuration"] = "none"
		}
	}
	for key, value := range condition {
		s[key] = value
	}
	return s, nil
}
