package fabric

type counters struct{}
