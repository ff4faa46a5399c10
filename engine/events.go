package engine

// EventSet collects the events that a program waits for.
type EventSet struct{ handle }

// NewEventSet makes an empty set, nil if there are no handles left.
func NewEventSet() *EventSet {
	s := &EventSet{}
	if register(EventSetKind, s) != nil {
		return nil
	}
	return s
}

// Free makes the set's handle stale.
func (s *EventSet) Free() { release(s) }
