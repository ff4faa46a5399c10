package profiles

import (
	"fmt"
	"slices"
)

// Ignored lists the keys about failures that the profile gives and that nothing reads, so that a command can warn.
func (b *Board) Ignored() []string {
	var out []string
	for _, d := range b.Devices {
		f := d.Failure
		if f.Xid.Code.Valid {
			out = append(out, "failure.xid, in a file: nvmlfab set and fail send the event,")
		}
		if !f.Fails() {
			for key, given := range map[string]bool{"after_calls": f.AfterCalls.Valid, "probability": f.Probability.Valid, "seed": f.Seed.Valid} {
				if given {
					out = append(out, fmt.Sprintf("failure.%s, without a mode other than healthy", key))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Missing says what the profile leaves out although programs that rely on it go wrong, so that a command can warn.
func (b *Board) Missing() []string {
	if nv := &b.NVLink; nv.LinksPerGPU.Or(0) > 0 && !nv.BandwidthPerLinkMbps.Valid {
		return []string{"nvlink.bandwidth_per_link_mbps is missing: links that are up show a speed of 0"}
	}
	return nil
}
