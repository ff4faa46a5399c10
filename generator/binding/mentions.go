package binding

import "slices"

// Mentions is what the comments above the symbol speak of, in any header: they drift from
// version to version.
func (s *Symbol) Mentions() []string {
	var out []string
	for _, u := range s.uses {
		out = append(out, u.fn.Mentions...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
