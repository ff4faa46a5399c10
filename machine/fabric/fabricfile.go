package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// File is a fabric description as a person writes it:
//
//	layout: rail-optimised   # or fat-tree, switch (the default), none
//	radix: 64                # ports of a switch
//	sm: dgx01 mlx5_0         # which node runs the subnet manager; by default the first switch
//	aggregation: true        # switches have their aggregation nodes
//	hosts:
//	- name: dgx%02d          # dgx01 to dgx32
//	  count: 32
//	- name: storage01
//	  profile: dgx-h100      # whose adapters it has; by default those of this machine's profile
//	  adapters: [mlx5_0]     # only these of them
//	  simulated: true        # it is there although no daemon serves it, in a fabric of several daemons
type File struct {
	Layout string `yaml:"layout"`
	Radix  int    `yaml:"radix"`
	Switch string `yaml:"switch"`
	SM     string `yaml:"sm"`
	// Aggregation says that switches have aggregation nodes.
	Aggregation bool `yaml:"aggregation"`
	Hosts       []struct {
		Name     string   `yaml:"name"`
		Count    int      `yaml:"count"`
		First    *int     `yaml:"first"`
		Profile  string   `yaml:"profile"`
		Adapters []string `yaml:"adapters"`
		// Simulated hosts are there without a daemon.
		Simulated bool `yaml:"simulated"`
	} `yaml:"hosts"`
}

// maxHosts is how many hosts a description may have.
const maxHosts = 20000

// Parse reads a description. adapters returns the adapters of a host that has those of a profile; the empty profile is this
// machine's. self is the name of this machine, which the fabric has even if the description does not name it; it may be
// empty.
func Parse(name string, text []byte, self string, adapters func(profile, host string) ([]HCA, error)) (Description, error) {
	var file File
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return Description{}, fmt.Errorf("%s: %w", name, plain(err))
	}
	d := Description{Layout: Layout{Preset: file.Layout, Radix: file.Radix, Switch: file.Switch, Aggregation: file.Aggregation}, SM: file.SM}
	add := func(host, profile string, only []string, simulated bool) error {
		all, err := adapters(profile, host)
		if err != nil {
			return err
		}
		h := Host{Name: host, HCAs: all, Simulated: simulated}
		if only != nil {
			h.HCAs = nil
			for _, want := range only {
				found := false
				for _, hca := range all {
					if hca.Name == want {
						h.HCAs, found = append(h.HCAs, hca), true
					}
				}
				if !found {
					return fmt.Errorf("host %q has no adapter %q", host, want)
				}
			}
		}
		d.Hosts = append(d.Hosts, h)
		return nil
	}
	present := self == ""
	for _, h := range file.Hosts {
		count, first := 1, 1
		switch {
		case h.Name == "":
			return Description{}, fmt.Errorf("%s: a host has no name", name)
		case h.Count < 0 || h.Count > maxHosts || len(d.Hosts)+h.Count > maxHosts:
			return Description{}, fmt.Errorf("%s: count: %d of %q are too many or too few; %d hosts are the most", name, h.Count, h.Name, maxHosts)
		case h.Count > 0:
			count = h.Count
		}
		if h.First != nil {
			first = *h.First
		}
		for i := range count {
			host, err := numbered(h.Name, first+i, count > 1 || h.First != nil)
			if err != nil {
				return Description{}, fmt.Errorf("%s: %w", name, err)
			}
			present = present || host == self
			if err := add(host, h.Profile, h.Adapters, h.Simulated); err != nil {
				return Description{}, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if !present {
		if err := add(self, "", nil, false); err != nil {
			return Description{}, err
		}
	}
	return d, nil
}

// plain is a decoder's error on one line.
func plain(err error) error {
	var types *yaml.TypeError
	if errors.As(err, &types) && len(types.Errors) > 0 {
		return errors.New(types.Errors[0])
	}
	return err
}

// numbered puts a number into a name that has %d or, for leading zeros, such as %02d in it.
func numbered(name string, number int, many bool) (string, error) {
	before, after, found := strings.Cut(name, "%")
	if !found {
		if many {
			return "", fmt.Errorf("the name %q of several hosts needs a place for their number, such as %%02d", name)
		}
		return name, nil
	}
	digits, tail, ok := strings.Cut(after, "d")
	width := 0
	for _, c := range digits {
		if c < '0' || c > '9' || width > 9 {
			ok = false
			break
		}
		width = width*10 + int(c-'0')
	}
	if !ok || width > 9 || strings.Contains(tail, "%") {
		return "", fmt.Errorf("the name %q has more or something else in it than one number such as %%d or %%02d", name)
	}
	return fmt.Sprintf("%s%0*d%s", before, width, number, tail), nil
}
