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
