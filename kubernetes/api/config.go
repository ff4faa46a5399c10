package api

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/nvmlfab/nvmlfab/profiles"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Labels of nodes that choose what the agent does there.
const (
	ProfileLabel  = Group + "/profile"
	MIGLabel      = "nvidia.com/mig.config"
	MIGStateLabel = "nvidia.com/mig.config.state"
)

// Keys of the agents' ConfigMap. Every other key that ends in .yaml is a profile file.
const (
	ConfigKey = "config.yaml"
	MIGKey    = "mig-parted.yaml"
)

// Config says which nodes get which GPUs.
type Config struct {
	// Default is for nodes in no pool; they get no GPUs if it is missing.
	Default *GPUs `json:"default,omitempty"`
	// Pools are groups of nodes. A node that several choose belongs to the first.
	Pools []Pool `json:"pools,omitempty"`

	files map[string]string
}

// Pool is a group of nodes with the same GPUs.
type Pool struct {
	Name string `json:"name"`
	// Selector chooses nodes by their labels.
	Selector metav1.LabelSelector `json:"selector"`
	GPUs     `json:",inline"`
}

// GPUs are those of a node.
type GPUs struct {
	// Profile is a shipped profile, or a file of the ConfigMap.
	Profile string `json:"profile"`
	// Count is how many GPUs there are, instead of the profile's number.
	Count uint32 `json:"count,omitempty"`
	// Driver is the driver's version, instead of the profile's.
	Driver string `json:"driver,omitempty"`
	// MIG is the name of a MIG configuration, for nodes without the label nvidia.com/mig.config.
	MIG string `json:"mig,omitempty"`
	// Fabric is where in an NVLink fabric the nodes are.
	Fabric *Fabric `json:"fabric,omitempty"`
}

// Fabric is a place in an NVLink fabric.
type Fabric struct {
	ClusterUUID string `json:"clusterUUID"`
	Clique      uint32 `json:"clique"`
}

// Choice is what a node gets.
type Choice struct {
	// From says who chose: a label, a pool or the default.
	From string
	// Name is the profile's.
	Name   string
	Base   profiles.Base
	Layers []profiles.Layer
	// MIG is the name of a MIG configuration; none if empty.
	MIG string
}

// ParseConfig reads the data of the ConfigMap.
func ParseConfig(data map[string]string) (*Config, error) {
	c := &Config{files: data}
	if err := yaml.UnmarshalStrict([]byte(data[ConfigKey]), c); err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigKey, err)
	}
	names := map[string]bool{}
	for i, p := range c.Pools {
		switch {
		case p.Name == "":
			return nil, fmt.Errorf("%s: pools[%d] has no name", ConfigKey, i)
		case names[p.Name]:
			return nil, fmt.Errorf("%s: there are two pools %q", ConfigKey, p.Name)
		case p.Profile == "":
			return nil, fmt.Errorf("%s: pool %q has no profile", ConfigKey, p.Name)
		}
		names[p.Name] = true
		if _, err := metav1.LabelSelectorAsSelector(&p.Selector); err != nil {
			return nil, fmt.Errorf("%s: pool %q: selector: %w", ConfigKey, p.Name, err)
		}
	}
	if c.Default != nil && c.Default.Profile == "" {
		return nil, fmt.Errorf("%s: default has no profile", ConfigKey)
	}
	return c, nil
}

// Choose is what a node with these labels gets; nil if it gets no GPUs. The label nvmlfab.dev/profile beats a pool, and a pool
// beats the default. With the label nothing else of the pool counts.
func (c *Config) Choose(of map[string]string) (*Choice, error) {
	if name := of[ProfileLabel]; name != "" {
		return c.choice("label "+ProfileLabel, GPUs{Profile: name})
	}
	for _, p := range c.Pools {
		selector, err := metav1.LabelSelectorAsSelector(&p.Selector)
		if err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(of)) {
			return c.choice("pool "+p.Name, p.GPUs)
		}
	}
	if c.Default == nil {
		return nil, nil
	}
	return c.choice("default", *c.Default)
}

func (c *Config) choice(from string, g GPUs) (*Choice, error) {
	choice := &Choice{From: from, Name: g.Profile, Base: profiles.Base{Name: g.Profile}, MIG: g.MIG}
	for _, key := range []string{g.Profile, g.Profile + ".yaml"} {
		text, ok := c.files[key]
		if !ok || key == ConfigKey || key == MIGKey || !strings.HasSuffix(key, ".yaml") {
			continue
		}
		choice.Base = profiles.Base{Name: key, Text: []byte(text)}
		break
	}
	if g.Count > 0 {
		choice.Layers = append(choice.Layers, profiles.GPUs("count", g.Count))
	}
	if g.Driver != "" {
		choice.Layers = append(choice.Layers, profiles.Driver("driver", g.Driver))
	}
	if f := g.Fabric; f != nil {
		if f.ClusterUUID == "" {
			return nil, fmt.Errorf("%s: fabric has no clusterUUID", from)
		}
		board, err := choice.Base.With(choice.Layers...)
		if err != nil {
			return nil, fmt.Errorf("%s: profile %q: %w", from, g.Profile, missing(err))
		}
		text := []byte("devices:\n")
		for i := range board.Devices {
			text = fmt.Appendf(text, "  - {index: %d, fabric: {cluster_uuid: %q, clique_id: %d}}\n", board.Devices[i].Index, f.ClusterUUID, f.Clique)
		}
		choice.Layers = append(choice.Layers, profiles.Layer{Name: "fabric", Text: text})
	}
	if _, err := choice.Base.With(choice.Layers...); err != nil {
		return nil, fmt.Errorf("%s: profile %q: %w", from, g.Profile, missing(err))
	}
	return choice, nil
}

// missing makes of a file that does not exist an error that people understand.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is neither shipped nor in the ConfigMap")
	}
	return err
}
