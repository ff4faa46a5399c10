package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/engine/change/layout"
	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The values of the label nvidia.com/mig.config.state, as NVIDIA's MIG manager writes them.
const (
	migPending = "pending"
	migSuccess = "success"
	migFailed  = "failed"
)

// The names by which MIG devices are offered to pods, as NVIDIA's device plugin and gpu-feature-discovery know them: not at all,
// as nvidia.com/gpu if they are all of one kind, or each kind by a name of its own.
const (
	MIGNone   = "none"
	MIGSingle = "single"
	MIGMixed  = "mixed"
)

// MIGStrategies are the names that Options.MIGStrategy may have.
var MIGStrategies = []string{MIGNone, MIGSingle, MIGMixed}

// divide cuts the node's GPUs as its MIG configuration says, once: who changes them later by nvidia-smi is not disturbed. The
// label of the node beats that of the pool. Without either of them the GPUs stay as they are.
func (a *Agent) divide(ctx context.Context, node *corev1.Node, staged *machine.Staged, choice *api.Choice) error {
	name := node.Labels[api.MIGLabel]
	if name == "" && choice != nil {
		name = choice.MIG
	}
	if name == "" {
		a.mig, a.tried = "", ""
		return nil
	}
	data, err := a.data()
	if err != nil {
		return err
	}
	source, text, err := migText(staged.Source.Board, data[api.MIGKey], name)
	identity := hash([]byte(name + "\x00" + text))[:16]
	if err == nil && a.m.MIG == identity {
		a.mig = migSuccess
		return nil
	}
	if a.tried != identity || a.mig == migSuccess {
		if err := a.announce(ctx, node, migPending); err != nil {
			return err
		}
		a.tried = identity
	}
	a.mig = migFailed
	if err == nil {
		file := layout.File{Name: source}
		var entries []layout.Entry
		if entries, err = file.Config([]byte(text), name); err == nil {
			a.m.Cut = a.m.Cut || a.o.RestartPods != ""
			err = a.cut(staged, file, entries)
		}
	}
	if err != nil {
		return fmt.Errorf("MIG configuration %q: %w", name, err)
	}
	a.mig, a.m.MIG = migSuccess, identity
	return a.m.write()
}

// cut brings the GPUs into a layout.
func (a *Agent) cut(staged *machine.Staged, file layout.File, entries []layout.Entry) error {
	aside, err := staged.Change(func(t *change.Tx) error {
		changed, err := file.Apply(t, staged.Source.Board, entries)
		if err == nil && !changed {
			err = machine.ErrUnchanged
		}
		return err
	})
	if aside != nil {
		a.o.Log(aside)
	}
	return err
}

// announce writes the state of the MIG configuration into the node's label at once.
func (a *Agent) announce(ctx context.Context, node *corev1.Node, state string) error {
	a.m.Labels[api.MIGStateLabel] = state
	if err := a.m.write(); err != nil {
		return err
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[api.MIGStateLabel] = state
	return a.patchLabels(ctx, map[string]any{api.MIGStateLabel: state})
}

// migText is a file in mig-parted's format that has a configuration, and the file's name for messages: the ConfigMap's if that has
// a configuration of this name, else what the name means on a board, as in the file that NVIDIA's MIG manager comes with.
func migText(board *profiles.Board, own, name string) (source, text string, err error) {
	if own != "" {
		var file struct {
			Configs map[string]any `json:"mig-configs"`
		}
		if err := yaml.Unmarshal([]byte(own), &file); err != nil {
			return api.MIGKey, own, fmt.Errorf("%s: %w", api.MIGKey, err)
		}
		if _, ok := file.Configs[name]; ok || file.Configs == nil { // without any, the reader says what is wrong
			return api.MIGKey, own, nil
		}
	}
	empty := change.Partitioning{Profiles: board.MIG.GPUInstanceProfiles, Swapped: board.MIG.Swapped.Value}
	write := func(instances string) (string, string, error) {
		return "the agent's file", fmt.Sprintf("version: v1\nmig-configs:\n  %q:\n    - {devices: all, mig-enabled: %t, mig-devices: {%s}}\n",
			name, name != "all-disabled", instances), nil
	}
	var known []string
	most := map[uint32]string{} // the names of the smallest profiles of one, two and three slices
	largest := uint32(0)
	for i := range empty.Profiles {
		p := &empty.Profiles[i]
		as := "all-" + resourceName(p.Name)
		if as == name {
			return write(fmt.Sprintf("%q: %d", p.Name, empty.Remaining(p)))
		}
		known = append(known, as)
		largest = max(largest, p.Slices.Value)
		if was := most[p.Slices.Value]; !strings.Contains(p.Name, "+") {
			if other, err := empty.Find(was); was == "" || err == nil && p.MemoryMiB.Value < other.MemoryMiB.Value {
				most[p.Slices.Value] = p.Name
			}
		}
	}
	balanced := most[1] != "" && most[2] != "" && (largest < 7 || most[3] != "")
	switch {
	case name == "all-disabled" || name == "all-enabled" && len(known) > 0:
		return write("")
	case name == "all-balanced" && balanced:
		instances := fmt.Sprintf("%q: 2, %q: 1", most[1], most[2])
		if largest >= 7 {
			instances += fmt.Sprintf(", %q: 1", most[3])
		}
		return write(instances)
	}
	if len(known) > 0 {
		known = append(known, "all-enabled")
	}
	if balanced {
		known = append(known, "all-balanced")
	}
	return "", "", fmt.Errorf("there is none of this name: want all-disabled, %s or a name of the ConfigMap's key %s", strings.Join(append(known, ""), ", "), api.MIGKey)
}

// resourceName is a MIG profile's name as a part of the names of resources and labels.
func resourceName(profile string) string { return strings.ReplaceAll(profile, "+", ".") }

// part is a MIG device.
type part struct {
	gpu     int
	uuid    string
	profile string // its name, such as 1g.10gb or 1c.3g.40gb
	gi      *profiles.GPUInstanceProfile
	ci      change.ComputeProfile
	number  uint32 // that of its GPU instance
}

// parts are the MIG devices of the node at a time, and which GPUs are in MIG mode.
func parts(s *change.Source, now int64) (list []part, cut []bool, err error) {
	for i := range s.Board.Devices {
		d, err := s.Device(i, now)
		if err != nil {
			return nil, nil, err
		}
		cut = append(cut, bool(d.MIG.ModeCurrent.Value))
		devices, err := s.MIGDevices(i, now)
		if err != nil {
			return nil, nil, err
		}
		p := s.Partitioning(i)
		for _, m := range devices {
			gi := p.Profile(m.Instance.Profile)
			if gi == nil {
				return nil, nil, fmt.Errorf("GPU %d: a MIG instance has the profile %d, which the board does not have", i, m.Instance.Profile)
			}
			ways := p.ComputeProfiles(gi)
			at := slices.IndexFunc(ways, func(c change.ComputeProfile) bool { return c.ID == m.Part.Profile })
			if at < 0 {
				return nil, nil, fmt.Errorf("GPU %d: a compute instance has the profile %d, which the board does not have", i, m.Part.Profile)
			}
			list = append(list, part{i, m.UUID, ways[at].Name(gi), gi, ways[at], m.Instance.ID})
		}
	}
	return list, cut, nil
}

// errInvalidMIG is the error of GPUs that the strategy single cannot offer.
var errInvalidMIG = errors.New("with the MIG strategy single all GPUs have to be cut into MIG devices of one kind, or none")

// single is nil if the strategy single can offer the GPUs.
func single(list []part, cut []bool) error {
	if !slices.Contains(cut, true) {
		return nil
	}
	for i, on := range cut {
		if !on || !slices.ContainsFunc(list, func(p part) bool { return p.gpu == i }) {
			return errInvalidMIG
		}
	}
	for _, p := range list {
		if p.profile != list[0].profile {
			return errInvalidMIG
		}
	}
	return nil
}

// migLabels are the labels of MIG devices by a strategy.
func migLabels(board *profiles.Board, strategy string, list []part, cut []bool) map[string]string {
	all := map[string]string{}
	if strategy == MIGNone || len(board.Devices) == 0 {
		return all
	}
	all[prefix+"mig.strategy"] = strategy
	if !slices.Contains(cut, true) {
		return all
	}
	product := func(gpu int, kind string) string {
		return strings.ReplaceAll(board.Devices[gpu].Name.Or("Unknown"), " ", "-") + "-MIG-" + kind
	}
	if strategy == MIGSingle && single(list, cut) != nil {
		all[prefix+"gpu.product"] = product(slices.Index(cut, true), "INVALID")
		for _, name := range []string{"count", "replicas", "memory"} {
			all[prefix+"gpu."+name] = "0"
		}
		return all
	}
	counts := map[string]int{}
	for _, p := range list {
		kind := resourceName(p.profile)
		name := prefix + "mig-" + kind + "."
		if strategy == MIGSingle {
			name = prefix + "gpu."
		}
		counts[kind]++
		for key, value := range map[string]any{
			"product": product(p.gpu, kind), "count": counts[kind], "replicas": 1, "sharing-strategy": "none",
			"memory": p.gi.MemoryMiB.Value, "multiprocessors": p.ci.Multiprocessors, "slices.gi": p.gi.Slices.Value, "slices.ci": p.ci.Slices,
			"engines.copy": p.gi.CopyEngines.Value, "engines.decoder": p.gi.Decoders.Value, "engines.encoder": p.gi.Encoders.Value,
			"engines.jpeg": p.gi.JPEGs.Value, "engines.ofa": p.gi.OFAs.Value,
		} {
			all[name+key] = fmt.Sprint(value)
		}
	}
	return all
}

// offer is a device as the kubelet gets to know it.
type offer struct {
	resource string
	uuid     string
	gpu      int
}

// offers are what the node has for pods by a strategy.
func offers(s *change.Source, strategy string, now int64) (list []offer, err error) {
	var all []part
	cut := make([]bool, len(s.Board.Devices))
	if strategy != MIGNone {
		if all, cut, err = parts(s, now); err != nil {
			return nil, err
		}
	}
	if strategy == MIGSingle && single(all, cut) != nil {
		return nil, nil
	}
	for i := range s.Board.Devices {
		if !cut[i] {
			list = append(list, offer{prefix + "gpu", string(s.Board.Devices[i].UUID), i})
		}
	}
	for _, p := range all {
		resource := prefix + "gpu"
		if strategy == MIGMixed {
			resource = prefix + "mig-" + resourceName(p.profile)
		}
		list = append(list, offer{resource, p.uuid, p.gpu})
	}
	return list, nil
}

// nodeLabels are the labels of the staged node now.
func nodeLabels(staged *machine.Staged, strategy string) (map[string]string, error) {
	now := time.Now().UnixMilli()
	board, err := staged.Source.Node(now)
	if err != nil {
		return nil, err
	}
	all := Labels(board)
	list, cut, err := parts(&staged.Source, now)
	if err != nil {
		return nil, err
	}
	if len(cut) > 0 && !slices.Contains(cut, false) {
		all[prefix+"gpu.replicas"] = "0" // GPUs that are all cut are not shared
	}
	for name, value := range migLabels(board, strategy, list, cut) {
		all[name] = value
	}
	return all, nil
}
