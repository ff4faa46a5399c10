package profiles

import (
	"fmt"
	"slices"
)

// MIGInstance is a GPU instance that there is from the start.
type MIGInstance struct {
	// Profile is the way in which it is cut out, such as 3g.40gb, by a name of the board's table.
	Profile string `yaml:"profile" required:"yes"`
	// Start is the memory slice that it starts at; where the driver would put it when absent.
	Start Opt[uint32] `yaml:"start" range:"0..11"`
	// Compute are its compute instances, such as 1c.3g.40gb; one that takes all of it when absent.
	Compute []string `yaml:"compute"`
	// NoCompute says that it has no compute instance.
	NoCompute Opt[bool] `yaml:"no_compute"`
}

// Sees says whether programs see the MIG device of a GPU instance and a compute instance.
func (m *DeviceMIG) Sees(instance, part uint32) bool {
	return m.Visible == nil || slices.Contains(m.Visible, MIGName(instance, part))
}

// MIGName is how Visible names a MIG device.
func MIGName(instance, part uint32) string { return fmt.Sprintf("gi%d/ci%d", instance, part) }
