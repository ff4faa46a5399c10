package fabric

import (
	"maps"
	"slices"
	"time"
)

// Counter is a counter of a port. Its text is the name of the file in sysfs's counters.
type Counter string

// The counters of a port. The traffic counters, from PortXmitData on, count what Traffic says.
const (
	SymbolErrorCounter   Counter = "symbol_error"
	LinkErrorRecovery    Counter = "link_error_recovery"
	LinkDowned           Counter = "link_downed"
	RcvErrors            Counter = "port_rcv_errors"
	RcvRemotePhysErrors  Counter = "port_rcv_remote_physical_errors"
	RcvSwitchRelayErrors Counter = "port_rcv_switch_relay_errors"
	XmitDiscards         Counter = "port_xmit_discards"
	XmitConstraintErrors Counter = "port_xmit_constraint_errors"
	RcvConstraintErrors  Counter = "port_rcv_constraint_errors"
	LocalLinkIntegrity   Counter = "local_link_integrity_errors"
	BufferOverruns       Counter = "excessive_buffer_overrun_errors"
	VL15Dropped          Counter = "VL15_dropped"
	QP1Dropped           Counter = "qp1_dropped" // has no file
	XmitWait             Counter = "port_xmit_wait"
	XmitData             Counter = "port_xmit_data" // in words of 4 bytes
	RcvData              Counter = "port_rcv_data"  // in words of 4 bytes
	XmitPackets          Counter = "port_xmit_packets"
	RcvPackets           Counter = "port_rcv_packets"
	UnicastXmitPackets   Counter = "unicast_xmit_packets"
	UnicastRcvPackets    Counter = "unicast_rcv_packets"
	MulticastXmitPackets Counter = "multicast_xmit_packets"
	MulticastRcvPackets  Counter = "multicast_rcv_packets"
	RcvWriteRequests     Counter = "rx_write_requests" // a file in hw_counters, and in no datagram
	xmitDataSL0          Counter = "xmit_data_sl0"     // in no file
	rcvDataSL0           Counter = "rcv_data_sl0"      // in no file
)

// Files lists the counters that have a file in sysfs, in alphabetical order.
func Files() []Counter {
	var files []Counter
	for _, p := range positions {
		if p.counter != QP1Dropped {
			files = append(files, p.counter)
		}
	}
	slices.Sort(files)
	return files
}

// Traffic is what an adapter's port has sent and received since some fixed time, in bytes. It never falls.
type Traffic struct{ Sent, Received uint64 }

// counters are what a port has counted by itself, and what was cleared.
type counters struct {
	errors map[Counter]uint64  // that faults left
	grow   map[Counter]growing // errors that a fault adds while it lasts
	clear  map[Counter]uint64  // the reading that a reset took as zero
}

type growth struct {
	perSecond float64
	since     time.Time
}

// growing is a growth whose errors before a time are counted already.
type growing struct {
	growth
	from time.Time
}

func (g growing) at(now time.Time) uint64 {
	return uint64(max(0, now.Sub(g.from).Seconds()) * g.perSecond)
}

// packetBytes is the size that packets are taken to have: RDMA messages in packets of the MTU, and answers to them.
const packetBytes = 2048

// writeBytes is how much an RDMA write is taken to carry.
const writeBytes = 512 << 10

// Read returns a counter's reading, with all its bits.
func (f *Fabric) Read(p *Port, c Counter, now time.Time) uint64 {
	total := f.total(p, c, now)
	return total - min(total, p.counters.clear[c]) // a daemon may have been told what was cleared before what was sent
}

func (f *Fabric) total(p *Port, c Counter, now time.Time) uint64 {
	switch c {
	case XmitData, xmitDataSL0:
		return f.traffic(p, now).Sent / 4
	case RcvData, rcvDataSL0:
		return f.traffic(p, now).Received / 4
	case XmitPackets, UnicastXmitPackets:
		return f.traffic(p, now).Sent / packetBytes
	case RcvPackets, UnicastRcvPackets:
		return f.traffic(p, now).Received / packetBytes
	case RcvWriteRequests:
		return f.traffic(p, now).Received / writeBytes
	}
	return p.counters.errors[c] + p.counters.grow[c].at(now)
}

// count asks what the adapters have sent and received, before their links change.
func (f *Fabric) count(now time.Time) {
	if f.Traffic == nil {
		return
	}
	for _, nodes := range f.hosts {
		for _, n := range nodes {
			for _, p := range n.Ports[1:] {
				f.Traffic(p, now)
			}
		}
	}
}

// traffic is what has gone through a port. A switch's port has what the other end of its cable has, the other way round. A
// cable between switches has a share of what the adapters below the lower one have.
func (f *Fabric) traffic(p *Port, now time.Time) Traffic {
	switch r := p.Remote; {
	case f.Traffic == nil || p.Number == 0 && p.Node.Kind == Switch:
		return Traffic{}
	case p.Node.aggregates() || r != nil && r.Node.aggregates():
		return Traffic{} // nothing here reduces data
	case p.Node.Kind == CA:
		return f.Traffic(p, now)
	case r == nil:
		return Traffic{}
	case r.Node.Kind == CA:
		t := f.Traffic(r, now)
		return Traffic{t.Received, t.Sent}
	case r.Node.hasAdapters() && !p.Node.hasAdapters():
		t := f.traffic(r, now)
		return Traffic{t.Received, t.Sent}
	case !p.Node.hasAdapters():
		return Traffic{}
	}
	var sum Traffic
	uplinks := uint64(0)
	for _, q := range p.Node.Ports[1:] {
		if q.Remote != nil && q.Remote.Node.aggregates() {
			continue
		}
		if q.Remote != nil && q.Remote.Node.Kind == CA {
			t := f.Traffic(q.Remote, now)
			sum.Sent += t.Sent
			sum.Received += t.Received
		} else if q.Remote != nil {
			uplinks++
		}
	}
	return Traffic{sum.Sent / uplinks, sum.Received / uplinks}
}

func (n *Node) hasAdapters() bool {
	return slices.ContainsFunc(n.Ports, func(p *Port) bool {
		return p != nil && p.Remote != nil && p.Remote.Node.Kind == CA && !p.Remote.Node.aggregates()
	})
}

// Count adds to a counter of errors.
func (p *Port) Count(c Counter, n uint64) {
	if p.counters.errors == nil {
		p.counters.errors = map[Counter]uint64{}
	}
	p.counters.errors[c] += n
}

// grow lets a counter rise as g says; with a rate of 0 it keeps what was counted.
func (p *Port) grow(c Counter, g growth, now time.Time) {
	before, ok := p.counters.grow[c]
	if before.growth == g {
		return
	}
	from := g.since
	if ok {
		p.Count(c, before.at(now))
		delete(p.counters.grow, c)
		if from.Before(now) {
			from = now // what came before is counted
		}
	}
	if g.perSecond > 0 {
		if p.counters.grow == nil {
			p.counters.grow = map[Counter]growing{}
		}
		p.counters.grow[c] = growing{g, from}
	}
}

// Reset takes a counter's reading as zero.
func (f *Fabric) Reset(p *Port, c Counter, now time.Time) {
	if p.counters.clear == nil {
		p.counters.clear = map[Counter]uint64{}
	}
	p.counters.clear[c] = f.total(p, c, now)
}

// Counters is what a port has counted, for a fabric that takes the place of another.
type Counters struct {
	Errors, Cleared map[Counter]uint64
}

// Counters returns what has to be kept of a port's counters.
func (f *Fabric) Counters(p *Port, now time.Time) Counters {
	errors := maps.Clone(p.counters.errors)
	for c, g := range p.counters.grow {
		if errors == nil {
			errors = map[Counter]uint64{}
		}
		errors[c] += g.at(now)
	}
	return Counters{errors, maps.Clone(p.counters.clear)}
}

// Restore sets what Counters returned.
func (p *Port) Restore(c Counters) {
	p.counters.errors, p.counters.clear = maps.Clone(c.Errors), maps.Clone(c.Cleared)
}
