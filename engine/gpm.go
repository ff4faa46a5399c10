package engine

import (
	"encoding/json"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// GpmSample says what a GPU had counted when a sample was taken. Rates follow from two samples of one GPU.
type GpmSample struct{ owned }

// GpmCounts is what a sample has: whose it is, when it was taken, and what the links had carried.
type GpmCounts struct {
	Device profiles.UUID
	// Instance is the number of a GPU instance, abi.INVALID_GPU_INSTANCE_ID for the whole GPU.
	Instance uint32
	// Time is in ms since 1970.
	Time int64
	// LinkKiB is what each link has sent, and received, in KiB.
	LinkKiB uint64
}

// NewGpmSample makes an empty sample, as NewEventSet makes a set.
func (s *Snapshot) NewGpmSample() (*GpmSample, abi.Return) {
	o, ret := s.own(host.GpmSample)
	return &GpmSample{o}, ret
}

// GpmSample is the sample that a handle stands for; INVALID_ARGUMENT if there is none.
func (s *Snapshot) GpmSample(handle uintptr, _ Need) (*GpmSample, abi.Return) {
	o, ret := s.owned(handle, host.GpmSample)
	return &GpmSample{o}, ret
}

// Take fills the sample with what a GPU has counted until now.
func (g *GpmSample) Take(d *Device, instance uint32) abi.Return {
	content, err := json.Marshal(GpmCounts{
		Device: d.UUID, Instance: instance, Time: d.snapshot.Now().UnixMilli(), LinkKiB: d.LinkTraffic(),
	})
	if err != nil {
		return abi.ERROR_UNKNOWN
	}
	return g.Update(func([]byte) []byte { return content })
}

// Counts is what the sample has; INVALID_ARGUMENT if nobody has taken it.
func (g *GpmSample) Counts() (c GpmCounts, ret abi.Return) {
	content, ret := g.Content()
	if ret == abi.SUCCESS && json.Unmarshal(content, &c) != nil {
		ret = abi.ERROR_INVALID_ARGUMENT
	}
	return c, ret
}

// Loads is how busy a GPU is on average between two times in ms since 1970, in percent, also of a GPU in MIG mode, whose
// utilisation no function of NVML tells.
func (d *Device) Loads(from, to int64) profiles.Utilization {
	const most = 60 // samples of a long time
	first, last := from/1000, to/1000
	step := max((last-first+most-1)/most, 1)
	var sum [6]uint64
	var n uint64
	var now profiles.Utilization
	for at := last; at > first || n == 0; at -= step {
		now = d.meter.Course().At(time.Unix(at, 0).Unix()).Utilization
		for i, load := range []profiles.Opt[uint32]{now.GPU, now.Memory, now.Encoder, now.Decoder, now.JPEG, now.OFA} {
			sum[i] += uint64(load.Value)
		}
		n++
	}
	average := func(i int, load profiles.Opt[uint32]) profiles.Opt[uint32] {
		return profiles.Opt[uint32]{Value: uint32(sum[i] / n), Valid: load.Valid}
	}
	return profiles.Utilization{
		GPU: average(0, now.GPU), Memory: average(1, now.Memory), Encoder: average(2, now.Encoder),
		Decoder: average(3, now.Decoder), JPEG: average(4, now.JPEG), OFA: average(5, now.OFA),
	}
}
