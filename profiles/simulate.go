package profiles

// DynamicMetrics makes readings change over time.
type DynamicMetrics struct {
	// Seed selects the course: another seed gives other readings.
	Seed Opt[int64] `yaml:"seed"`
	// Temperature makes the temperature change.
	Temperature DynamicTemperature `yaml:"temperature"`
	// Power makes the power change.
	Power DynamicPower `yaml:"power"`
	// Utilization makes the utilisation change.
	Utilization DynamicUtilization `yaml:"utilization"`
}

// DynamicTemperature makes the temperature change.
type DynamicTemperature struct {
	// BaseC is the lowest temperature, in °C.
	BaseC Opt[int32] `yaml:"base_c"`
	// VarianceC is the greatest noise, up and down, in °C.
	VarianceC Opt[int32] `yaml:"variance_c" range:"0..1000"`
	// RampC is how much the temperature rises, in °C: in a wave, or with the load.
	RampC Opt[int32] `yaml:"ramp_c" range:"0..1000"`
	// RampPeriodSec is the wave's period, in s, at most an hour; without it the temperature follows a load that
	// changes.
	RampPeriodSec Opt[uint32] `yaml:"ramp_period_sec"`
}

// DynamicPower makes the power change.
type DynamicPower struct {
	// BaseMW is the middle of the range, in mW.
	BaseMW Opt[uint32] `yaml:"base_mw"`
	// VarianceMW is the greatest distance from the middle, in mW: with the load if that changes, otherwise as noise.
	VarianceMW Opt[uint32] `yaml:"variance_mw"`
}

// DynamicUtilization makes the utilisation change.
type DynamicUtilization struct {
	// Pattern is the shape of the load: anywhere in its range, at its lower or upper end, in bursts, up and down in a ramp, busy with
	// a pause at the end of each period as in training, or as busy as requests come in.
	Pattern Opt[string] `yaml:"pattern" enum:"steady,idle,busy,burst,ramp,training,inference"`
	// GPUMin is the GPU's lowest load, in percent.
	GPUMin Opt[uint32] `yaml:"gpu_min" range:"0..100"`
	// GPUMax is the GPU's highest load, in percent.
	GPUMax Opt[uint32] `yaml:"gpu_max" range:"0..100"`
	// MemoryMin is the memory's lowest load, in percent.
	MemoryMin Opt[uint32] `yaml:"memory_min" range:"0..100"`
	// MemoryMax is the memory's highest load, in percent.
	MemoryMax Opt[uint32] `yaml:"memory_max" range:"0..100"`
	// BurstPeriodSec is the length of a burst and of a pause, of the way up or down a ramp, or of a period of training with its pause,
	// in s, at most half an hour.
	BurstPeriodSec Opt[uint32] `yaml:"burst_period_sec"`
}

// GPM is performance monitoring.
type GPM struct {
	// Supported says that the GPU has it; from Hopper on when absent.
	Supported Opt[bool] `yaml:"supported"`
	// PCIeTxMiBPerSec is what the GPU sends at full load, in MiB/s.
	PCIeTxMiBPerSec Opt[uint64] `yaml:"pcie_tx_mib_per_sec"`
	// PCIeRxMiBPerSec is what the GPU receives at full load, in MiB/s.
	PCIeRxMiBPerSec Opt[uint64] `yaml:"pcie_rx_mib_per_sec"`
	// Streaming says that the counters run all the time, not just while a program samples.
	Streaming Opt[Enabled] `yaml:"streaming"`
}

// Failure makes a GPU fail.
type Failure struct {
	// Mode is how it fails: what its functions answer instead of a value, or, for ecc_uncorrectable, an error in its memory.
	Mode Opt[string] `yaml:"mode" enum:"healthy,lost,fallen_off_bus,ecc_uncorrectable,not_ready,reset_required,no_permission,timeout,unknown_error"`
	// Probability is the chance of failing at a call, 0 to 1.
	Probability Opt[float64] `yaml:"probability" range:"0..1"`
	// AfterCalls is the number of calls after which it fails.
	AfterCalls Opt[int64] `yaml:"after_calls" range:"0..1000000000000"`
	// Seed decides at which call it fails.
	Seed Opt[int64] `yaml:"seed"`
	// Xid is the error that goes with it, which event sets receive when it is set while programs run.
	Xid Xid `yaml:"xid"`
}

// Fails reports whether the GPU fails at some time.
func (f Failure) Fails() bool { return f.Mode.Valid && f.Mode.Value != "healthy" }

// Loses reports whether the GPU gets lost at some time.
func (f Failure) Loses() bool { return f.Mode.Value == "lost" || f.Mode.Value == "fallen_off_bus" }

// Waits reports whether the GPU does not fail from the start.
func (f Failure) Waits() bool { return f.AfterCalls.Value > 0 || f.Probability.Valid }

// Xid is an Xid error.
type Xid struct {
	// Code is its number.
	Code Opt[uint64] `yaml:"code"`
}

// NVLinkError makes link errors grow.
type NVLinkError struct {
	// Rate is the growth of the error counters, per second.
	Rate Opt[float64] `yaml:"rate" range:"0..1000000000"`
	// Links are the links that have errors; all when empty.
	Links []uint32 `yaml:"links"`
}
