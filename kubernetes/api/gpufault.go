// Package api has the objects by which people tell nvmlfab in a cluster what to do: GPUFault, which makes GPUs fail, and
// the configuration of pools.
package api

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/profiles"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Names of the API.
const (
	Group   = "nvmlfab.dev"
	Version = "v1alpha1"
)

// GPUFaults is the resource of GPUFault objects.
var GPUFaults = schema.GroupVersionResource{Group: Group, Version: Version, Resource: "gpufaults"}

// GPUFault makes GPUs of nodes fail for as long as it exists. It belongs to the cluster and not to a namespace.
type GPUFault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GPUFaultSpec   `json:"spec"`
	Status GPUFaultStatus `json:"status,omitempty"`
}

// GPUFaultSpec says which GPUs fail, how, and when. It cannot change: delete the object and make another.
type GPUFaultSpec struct {
	// Node is the name of a node.
	Node string `json:"node,omitempty"`
	// Selector chooses nodes by their labels, in place of Node. An empty selector chooses all.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// GPU is the index or the UUID of a GPU, or all.
	GPU intstr.IntOrString `json:"gpu"`
	// Kind is lost, xid, ecc, nvlink, thermal or metric, or one of those of nvmlfab fail.
	Kind string `json:"kind"`
	// Xid is the number of an Xid error, for the kind xid.
	Xid int64 `json:"xid,omitempty"`
	// Count is how many errors there are, for kinds that count errors; 1 by default.
	Count int64 `json:"count,omitempty"`
	// Rate is how many errors of a link there are per second, for the kind nvlink; 1 by default.
	Rate string `json:"rate,omitempty"`
	// Links are the numbers of the links with errors, for the kind nvlink; all by default.
	Links []int64 `json:"links,omitempty"`
	// Temperature is that of the GPU in °C, for the kind thermal.
	Temperature int64 `json:"temperature,omitempty"`
	// Metrics are keys of a profile and their values, for the kind metric.
	Metrics map[string]string `json:"metrics,omitempty"`
	// After is how long after the object's creation the GPU fails, such as 30s; at once by default.
	After metav1.Duration `json:"after,omitzero"`
	// Duration is how long the fault lasts, such as 5m; until the object is deleted by default.
	Duration metav1.Duration `json:"duration,omitzero"`
}

// GPUFaultStatus says what has become of the fault on each node.
type GPUFaultStatus struct {
	// Nodes are by name the nodes that the fault is about.
	Nodes map[string]NodeStatus `json:"nodes,omitempty"`
}

// NodeStatus says what has become of a fault on a node.
type NodeStatus struct {
	// GPUs are the UUIDs of those that fail.
	GPUs []string `json:"gpus,omitempty"`
	// Conditions has one of type Applied.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Applied is the type of the condition that says whether a fault is in force on a node, and its reasons.
const (
	Applied         = "Applied"
	ReasonFailing   = "Failing"
	ReasonWaiting   = "Waiting"
	ReasonEnded     = "Ended"
	ReasonConflict  = "Conflict"
	ReasonInvalid   = "Invalid"
	ReasonNotStaged = "NotStaged"
)

// kinds are the short names of kinds of nvmlfab fail.
var kinds = map[string]string{"ecc": "ecc-uncorrectable", "nvlink": "nvlink-error"}

// Kinds that are no kinds of nvmlfab fail.
const (
	KindThermal = "thermal"
	KindMetric  = "metric"
	KindXid     = "xid"
)

// KindName is the kind as nvmlfab fail calls it; thermal and metric stay.
func (s *GPUFaultSpec) KindName() string {
	if name, ok := kinds[s.Kind]; ok {
		return name
	}
	return s.Kind
}

// Hits says whether the fault is about a node with that name and these labels.
func (s *GPUFaultSpec) Hits(node string, of map[string]string) (bool, error) {
	switch {
	case s.Node != "" && s.Selector != nil:
		return false, errors.New("node and selector: keep one")
	case s.Node != "":
		return s.Node == node, nil
	case s.Selector == nil:
		return false, errors.New("name a node, or choose nodes with selector")
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err != nil {
		return false, fmt.Errorf("selector: %w", err)
	}
	return selector.Matches(labels.Set(of)), nil
}

// Fault is what the spec wants of the GPUs: a fault of nvmlfab fail, or keys of a profile with other values.
func (s *GPUFaultSpec) Fault() (f change.Fault, keys profiles.Settings, err error) {
	if err := s.check(); err != nil {
		return f, nil, err
	}
	switch s.Kind {
	case KindThermal:
		keys, err = profiles.Assign(fmt.Sprintf("thermal.temperature_gpu_c=%d", s.Temperature))
		return f, keys, err
	case KindXid:
		if err := change.CheckXid(uint64(s.Xid)); err != nil {
			return f, nil, err
		}
		return f, profiles.Settings{"failure.xid.code": uint64(s.Xid)}, nil // the event follows from it
	case KindMetric:
		keys = profiles.Settings{}
		for key, value := range s.Metrics {
			one, err := profiles.Assign(key + "=" + value)
			if err != nil {
				return f, nil, err
			}
			if profiles.OfNode(key) {
				return f, nil, fmt.Errorf("%s belongs to the node, not to a GPU", key)
			}
			keys.Lay(one)
		}
		return f, keys, nil
	}
	f = change.Fault{Kind: s.KindName(), Count: uint64(s.Count)}
	if s.Rate != "" {
		if f.Rate, err = strconv.ParseFloat(s.Rate, 64); err != nil || !(f.Rate > 0 && f.Rate <= 1e9) {
			return f, nil, fmt.Errorf("rate: want a number above 0 and up to 1e9, not %.40q", s.Rate)
		}
	}
	for _, l := range s.Links {
		if l < 0 || l > math.MaxUint32 {
			return f, nil, fmt.Errorf("links: %d is no number of a link", l)
		}
		f.Links = append(f.Links, uint32(l))
	}
	return f, nil, nil
}

// check returns an error for a field that the kind does not know, and for one that it lacks.
func (s *GPUFaultSpec) check() error {
	counts, links := false, s.Kind == "nvlink" || s.Kind == "nvlink-error"
	switch s.Kind {
	case KindThermal, KindMetric, KindXid:
	default:
		k, err := change.KindOf(s.KindName())
		switch {
		case err != nil:
			return fmt.Errorf("kind: %w", err)
		case !k.GPU || k.Name != s.KindName():
			return fmt.Errorf("kind: %.40q is no fault of a GPU", s.Kind)
		}
		counts = k.Counts
	}
	for _, field := range []struct {
		name         string
		given, known bool
	}{
		{"xid", s.Xid != 0, s.Kind == KindXid},
		{"temperature", s.Temperature != 0, s.Kind == KindThermal},
		{"metrics", len(s.Metrics) > 0, s.Kind == KindMetric},
		{"count", s.Count != 0, counts},
		{"rate", s.Rate != "", links},
		{"links", len(s.Links) > 0, links},
	} {
		if field.given && !field.known {
			return fmt.Errorf("%s does not belong to the kind %s", field.name, s.Kind)
		}
	}
	switch {
	case s.Kind == KindXid && s.Xid <= 0:
		return errors.New("xid: want the number of an Xid error, such as 79")
	case s.Kind == KindThermal && s.Temperature == 0:
		return errors.New("temperature: want that of the GPU in °C")
	case s.Kind == KindMetric && len(s.Metrics) == 0:
		return errors.New("metrics: want keys of a profile and their values, such as thermal.temperature_gpu_c: \"95\"")
	case s.Count < 0 || s.Count > math.MaxUint32:
		return fmt.Errorf("count: want a number from 1 to %d", uint32(math.MaxUint32))
	case s.After.Duration < 0 || s.Duration.Duration < 0:
		return errors.New("after and duration: want times such as 30s")
	case s.Duration.Duration != 0 && s.Duration.Duration < time.Millisecond:
		return errors.New("duration: want at least 1ms")
	}
	return nil
}

// GPUs are the numbers of the GPUs of a board that fail.
func (s *GPUFaultSpec) GPUs(board *profiles.Board) (list []int, err error) {
	name := strings.TrimSpace(s.GPU.String())
	if name == "all" {
		for i := range board.Devices {
			list = append(list, i)
		}
		return list, nil
	}
	if name == "" {
		return nil, errors.New("gpu: want an index, a UUID or all")
	}
	i, err := change.Find(board, name)
	if err != nil {
		return nil, fmt.Errorf("gpu: %w", err)
	}
	return []int{i}, nil
}

// Times are when the fault begins and when it ends; it has no end if that is zero.
func (f *GPUFault) Times() (from, until time.Time) {
	from = f.CreationTimestamp.Add(f.Spec.After.Duration)
	if d := f.Spec.Duration.Duration; d != 0 {
		until = from.Add(d)
	}
	return from, until
}
