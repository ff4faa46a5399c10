package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nvmlfab/nvmlfab/kubernetes/api"
	"github.com/nvmlfab/nvmlfab/machine"
	"github.com/nvmlfab/nvmlfab/profiles"
	corev1 "k8s.io/api/core/v1"
)

// prefix is that of the labels by which gpu-feature-discovery describes GPUs.
const prefix = "nvidia.com/"

// Labels are those that gpu-feature-discovery gives a node with these GPUs, with its strategy none, apart from the machine's name
// and the time, and nvidia.com/gpu.present, which the GPU operator gives.
func Labels(board *profiles.Board) map[string]string {
	all := map[string]string{}
	put := func(name, value string) { all[prefix+name] = value }
	if len(board.Devices) == 0 {
		return all
	}
	d := &board.Devices[0]
	put("gpu.present", "true")
	put("gpu.product", strings.ReplaceAll(d.Name.Or("Unknown"), " ", "-"))
	put("gpu.count", strconv.Itoa(len(board.Devices)))
	put("gpu.replicas", "1")
	put("gpu.sharing-strategy", "none")
	put("gpu.memory", strconv.FormatUint(d.Memory.TotalBytes.Or(0)>>20, 10))
	put("gpu.mode", "compute")
	put("mps.capable", "false")
	put("vgpu.present", "false")
	put("mig.capable", strconv.FormatBool(d.MIG.ModeCurrent.Valid))
	if family := d.Architecture.Value; family != "" {
		put("gpu.family", strings.ReplaceAll(strings.ToLower(family), "_", "-"))
	}
	if c := d.ComputeCapability; c.Major.Valid {
		put("gpu.compute.major", strconv.FormatUint(uint64(c.Major.Value), 10))
		put("gpu.compute.minor", strconv.FormatUint(uint64(c.Minor.Value), 10))
	}
	if v := board.System.DriverVersion.Value; v != "" {
		part := append(strings.SplitN(v, ".", 3), "", "")
		put("cuda.driver.major", part[0])
		put("cuda.driver.minor", part[1])
		put("cuda.driver.rev", part[2])
		put("cuda.driver-version.major", part[0])
		put("cuda.driver-version.minor", part[1])
		put("cuda.driver-version.revision", part[2])
		put("cuda.driver-version.full", v)
	}
	if v := board.System.CUDAVersion.Value; v != "" {
		major, minor, _ := strings.Cut(v, ".")
		put("cuda.runtime.major", major)
		put("cuda.runtime.minor", minor)
		put("cuda.runtime-version.major", major)
		put("cuda.runtime-version.minor", minor)
		put("cuda.runtime-version.full", v)
	}
	if u := d.Fabric.ClusterUUID.Value; u != (profiles.ClusterUUID{}) { // all zero where the node has a fabric of its own
		put("gpu.clique", fmt.Sprintf("%x-%x-%x-%x-%x.%d", u[:4], u[4:6], u[6:8], u[8:10], u[10:], d.Fabric.CliqueID.Value))
	}
	return all
}

// label gives the node the labels of its GPUs. It does not touch labels that somebody else has set to another value.
func (a *Agent) label(ctx context.Context, node *corev1.Node, staged *machine.Staged) error {
	want := map[string]string{}
	if a.o.Labels {
		var err error
		if want, err = nodeLabels(staged, a.o.MIGStrategy); err != nil {
			return err
		}
	}
	if a.mig != "" {
		want[api.MIGStateLabel] = a.mig
	}
	return a.setLabels(ctx, node, want)
}

// setLabels makes the node have labels, and takes those away that the agent has set before and does not want any more.
func (a *Agent) setLabels(ctx context.Context, node *corev1.Node, want map[string]string) error {
	patch := map[string]any{}
	for name, value := range want {
		is, there := node.Labels[name]
		mine, ours := a.m.Labels[name]
		if there && !(ours && (is == mine || is == value)) && name != api.MIGStateLabel {
			continue // somebody else's
		}
		if is != value || !there {
			patch[name] = value
		}
		a.m.Labels[name] = value
	}
	for name, mine := range a.m.Labels {
		if _, wanted := want[name]; wanted {
			continue
		}
		if node.Labels[name] == mine {
			patch[name] = nil
		}
		delete(a.m.Labels, name)
	}
	if len(patch) == 0 {
		return nil
	}
	if err := a.m.write(); err != nil {
		return err
	}
	if err := a.patchLabels(ctx, patch); err != nil {
		return fmt.Errorf("the labels of node %s: %w", node.Name, err)
	}
	return nil
}

// withdraw takes away all labels of the agent's.
func (a *Agent) withdraw(ctx context.Context, node *corev1.Node) error {
	if len(a.m.Labels) == 0 {
		return nil
	}
	return a.setLabels(ctx, node, nil)
}
