package main

import (
	"math/bits"
	"sync"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/change"
	"github.com/nvmlfab/nvmlfab/machine/fabric"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// load is what the host's GPUs make their adapters send and receive. A GPU at full load keeps its adapters busy to 40 % of their
// rate, in both directions, as in a job that spends that part of its time on exchanging gradients. Adapters that are beside no GPU
// have nothing to do.
type load struct {
	mu    sync.Mutex
	gpus  []gpuLoad
	of    map[portName]int // GPU of a port, by the numbers of the adapter and of the port
	names map[*fabric.Port]portName
	ports map[portName]*portLoad
}

// gpuLoad is how busy a GPU has been up to a time, as change.Source.Busy has it.
type gpuLoad struct{ busy func(ms int64) uint64 }

// portLoad is what a port has sent, in bytes.
type portLoad struct {
	wanted   uint64 // what its GPU has given it so far
	withheld uint64 // what the link could not take
	sent     uint64 // the greatest answer, since nothing that is counted falls
	at       time.Time
}

// newLoad is the load of a host's adapters, which are nodes of a fabric.
func newLoad(board *profiles.Board, host string, nodes []*fabric.Node) *load {
	l := &load{gpus: make([]gpuLoad, len(board.Devices)), of: map[portName]int{}, names: map[*fabric.Port]portName{}, ports: map[portName]*portLoad{}}
	for i, a := range board.Adapters(host) {
		if i == len(nodes) {
			break
		}
		for _, p := range nodes[i].Ports[1:] {
			name := portName{i, p.Number}
			l.names[p], l.ports[name] = name, &portLoad{}
			if l.of[name] = a.GPU; a.GPU >= len(l.gpus) {
				l.of[name] = -1
			}
		}
	}
	return l
}

// set takes the GPUs as they are from now on. It says until when that holds, in ms since 1970; 0 is for good.
func (l *load) set(source *change.Source, now time.Time) (until int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.gpus {
		busy, ends, err := source.Busy(i, now.UnixMilli())
		if err != nil {
			return 0, err
		}
		l.gpus[i].busy = busy
		if ends != 0 && (until == 0 || ends < until) {
			until = ends
		}
	}
	return until, nil
}

// traffic is what a port has sent and received up to a time. The fabric asks before the port's link changes.
func (l *load) traffic(p *fabric.Port, now time.Time) fabric.Traffic {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, ours := l.names[p]
	gpu := l.of[name]
	if !ours || gpu < 0 || l.gpus[gpu].busy == nil {
		return fabric.Traffic{}
	}
	t := l.ports[name]
	wanted := carried(l.gpus[gpu].busy(now.UnixMilli()), int(p.MaxWidth)*p.MaxSpeed.Lane())
	if !t.at.IsZero() && wanted > t.wanted {
		more := wanted - t.wanted
		most := uint64(0)
		if p.Up() {
			most = uint64(max(0, now.Sub(t.at).Seconds()) * float64(p.Tenths()) * bytesPerTenth)
		}
		t.withheld += more - min(more, most)
	}
	t.wanted, t.at = max(wanted, t.wanted), now
	t.sent = max(t.sent, t.wanted-min(t.wanted, t.withheld))
	return fabric.Traffic{Sent: t.sent, Received: t.sent}
}

// bytesPerTenth is a tenth of Gb/s in bytes per second.
const bytesPerTenth = 1e8 / 8

// carried is what goes over a link with a rate in tenths of Gb/s for a GPU that has been busy for some millionths of a percent times
// seconds. In a millionth of a second such a link can pass 12.5 bytes for each tenth; 1 % of that is an eighth of a byte, and 1 %
// of that a part of 800.
func carried(busy uint64, tenths int) uint64 {
	const share = 40 // percent
	hi, lo := bits.Mul64(busy, uint64(tenths)*share)
	n, _ := bits.Div64(hi%800, lo, 800)
	return n
}
