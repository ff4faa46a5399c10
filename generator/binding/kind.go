package binding

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind tells who answers a symbol.
type Kind string

const (
	Function  Kind = "function"  // a stub in C, until a Go function retires it
	Lifecycle Kind = "lifecycle" // a Go function, called by the C that loads and unloads the core
	Front     Kind = "front"     // the front, in C and without the core
	Waiter    Kind = "waiter"    // a Go function that never blocks, called by the C that sleeps until it has an answer
	Anytime   Kind = "anytime"   // as Function, and answered before nvmlInit too
	Slot      Kind = "slot"      // as Function, but an entry of nvidia-smi's table and not exported
)

// kinds lists the symbols that are not of kind Function, with the function in library/front that answers each.
var kinds = map[string]struct {
	kind Kind
	c    string
}{
	"nvmlInit":                   {Lifecycle, "nvmlfab_init"},
	"nvmlInit_v2":                {Lifecycle, "nvmlfab_init"},
	"nvmlInitWithFlags":          {Lifecycle, "nvmlfab_init"},
	"nvmlShutdown":               {Lifecycle, "nvmlfab_shutdown"},
	"nvmlEventSetWait":           {Waiter, "nvmlfab_wait"},
	"nvmlEventSetWait_v2":        {Waiter, "nvmlfab_wait"},
	"nvmlEventSetWait_v3":        {Waiter, "nvmlfab_wait"},
	"nvmlSystemEventSetWait":     {Waiter, "nvmlfab_wait"},
	"nvmlSystemGetNVMLVersion":   {Anytime, "nvmlfab_anytime"},
	"nvmlErrorString":            {Front, "nvmlfab_error_string"},
	"nvmlInternalGetExportTable": {Front, "nvmlfab_export_table"},
}

var slotName = regexp.MustCompile(`^nvmlInternalSlot([1-9]\d*)$`)

// Slots is the number of words in nvidia-smi's table, which is NVMLFAB_WORDS in front.h. Word 0 is the table's size.
const Slots = 256

// setKind decides who answers the symbol.
func (s *Symbol) setKind() error {
	s.Kind = Function
	if special, ok := kinds[s.Name]; ok {
		s.Kind, s.C = special.kind, special.c
	} else if slotName.MatchString(s.Name) {
		s.Kind = Slot
		if n := s.Slot(); n >= Slots {
			return fmt.Errorf("%s: nvidia-smi's table ends at %d", s.Name, Slots-1)
		}
	}
	if r := s.Func.Result; s.Kind != Front && (r.Name != "nvmlReturn_t" || r.Stars > 0) {
		return fmt.Errorf("%s returns %s, which no Go function can; add it to the table of kinds", s.Name, r)
	}
	if s.Kind == Waiter && s.Timeout() == "" {
		return fmt.Errorf("%s: no parameter says how long it waits, and no field of a struct", s.Name)
	}
	return nil
}

// Timeout is the C expression for where the number of milliseconds stands that a caller waits: in a parameter, or in a field
// of a struct, which must not be read before the core has accepted the struct. It is empty if there is none.
func (s *Symbol) Timeout() string {
	named := func(name string) bool { return strings.EqualFold(name, "timeoutms") }
	for _, p := range s.Func.Params {
		if p.Type.Stars == 0 && named(p.Name) {
			return "&" + p.Name
		}
		if t := s.Header.Type(p.Type.Name); t != nil && p.Type.Stars == 1 {
			for _, f := range t.Fields {
				if named(f.Name) {
					return fmt.Sprintf("&%s->%s", p.Name, f.Name)
				}
			}
		}
	}
	return ""
}

// Slot is the symbol's place in nvidia-smi's table, 0 for all other kinds.
func (s *Symbol) Slot() int {
	m := slotName.FindStringSubmatch(s.Name)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// unusedKinds reports entries of kinds that name no symbol.
func unusedKinds(byName map[string]*Symbol) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if byName[name] == nil {
			out = append(out, fmt.Sprintf("kind of %s: no header declares it", name))
		}
	}
	return out
}
