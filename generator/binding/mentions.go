package binding

import "slices"

// Mentions are the subjects that the comments on the symbol mention, in any header: the comments change from version to
// version.
func (s *Symbol) Mentions() []string {
	var out []string
	for _, u := range s.uses {
		out = append(out, u.fn.Mentions...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
