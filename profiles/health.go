package profiles

// ECC is ECC mode and errors.
type ECC struct {
	// ModeCurrent is the mode in force.
	ModeCurrent Opt[Enabled] `yaml:"mode_current"`
	// ModePending is the mode after the next reset.
	ModePending Opt[Enabled] `yaml:"mode_pending"`
	// DefaultMode is the mode that the board is delivered with.
	DefaultMode Opt[Enabled] `yaml:"default_mode"`
	// Errors counts errors by memory location.
	Errors ECCErrors `yaml:"errors"`
	// SRAM counts errors of the SRAM on the chip.
	SRAM ECCSRAM `yaml:"sram"`
	// ChannelRepairPending says that a memory channel waits for repair.
	ChannelRepairPending Opt[bool] `yaml:"channel_repair_pending"`
	// TPCRepairPending says that a TPC waits for repair.
	TPCRepairPending Opt[bool] `yaml:"tpc_repair_pending"`
	// UnrepairableMemory says that memory is beyond repair.
	UnrepairableMemory Opt[bool] `yaml:"unrepairable_memory"`
}

// ECCErrors counts errors by memory location.
type ECCErrors struct {
	// Volatile counts since the driver was loaded.
	Volatile ECCErrorCounts `yaml:"volatile"`
	// Aggregate counts over the board's life.
	Aggregate ECCErrorCounts `yaml:"aggregate"`
}

// ECCErrorCounts counts errors by severity.
type ECCErrorCounts struct {
	// SingleBit counts corrected errors.
	SingleBit ECCMemoryErrors `yaml:"single_bit"`
	// DoubleBit counts uncorrected errors.
	DoubleBit ECCMemoryErrors `yaml:"double_bit"`
}

// ECCMemoryErrors counts errors by memory location.
type ECCMemoryErrors struct {
	// DeviceMemory counts errors of the GPU's memory.
	DeviceMemory Opt[uint64] `yaml:"device_memory"`
	// L1Cache counts errors of the L1 cache.
	L1Cache Opt[uint64] `yaml:"l1_cache"`
	// L2Cache counts errors of the L2 cache.
	L2Cache Opt[uint64] `yaml:"l2_cache"`
	// RegisterFile counts errors of the register file.
	RegisterFile Opt[uint64] `yaml:"register_file"`
	// TextureMemory counts errors of the texture memory.
	TextureMemory Opt[uint64] `yaml:"texture_memory"`
	// TextureSHM counts errors of the texture memory that is shared.
	TextureSHM Opt[uint64] `yaml:"texture_shm"`
	// CBU counts errors of the convergence barrier units.
	CBU Opt[uint64] `yaml:"cbu"`
	// SRAM counts errors of the SRAM on the chip, on boards before Ampere: those have no ECC.SRAM.
	SRAM Opt[uint64] `yaml:"sram"`
	// Total counts errors of all locations.
	Total Opt[uint64] `yaml:"total"`
}

// ECCSRAM counts errors of the SRAM on the chip.
type ECCSRAM struct {
	// Volatile counts since the driver was loaded.
	Volatile SRAMCounts `yaml:"volatile"`
	// Aggregate counts over the board's life.
	Aggregate SRAMCounts `yaml:"aggregate"`
	// UncorrectableSources says where the aggregate uncorrectable errors were.
	UncorrectableSources SRAMSources `yaml:"uncorrectable_sources"`
	// ThresholdExceeded says that the board has more errors than it may have.
	ThresholdExceeded Opt[bool] `yaml:"threshold_exceeded"`
}

// SRAMCounts counts SRAM errors by severity.
type SRAMCounts struct {
	// Correctable counts corrected errors.
	Correctable Opt[uint64] `yaml:"correctable"`
	// UncorrectableParity counts parity errors.
	UncorrectableParity Opt[uint64] `yaml:"uncorrectable_parity"`
	// UncorrectableSECDED counts errors that SEC-DED found and could not correct.
	UncorrectableSECDED Opt[uint64] `yaml:"uncorrectable_secded"`
}

// SRAMSources counts uncorrectable SRAM errors by unit.
type SRAMSources struct {
	// L2 counts errors of the L2 cache.
	L2 Opt[uint64] `yaml:"l2"`
	// SM counts errors of the SMs.
	SM Opt[uint64] `yaml:"sm"`
	// Microcontroller counts errors of the microcontrollers.
	Microcontroller Opt[uint64] `yaml:"microcontroller"`
	// PCIe counts errors of the PCIe unit.
	PCIe Opt[uint64] `yaml:"pcie"`
	// Other counts errors of everything else.
	Other Opt[uint64] `yaml:"other"`
}

// ResetStatus says what a GPU has to be reset for.
type ResetStatus struct {
	// Required says that the GPU works again only after a reset.
	Required Opt[bool] `yaml:"required"`
	// DrainAndReset says that the GPU ought to be reset when its programs have ended.
	DrainAndReset Opt[bool] `yaml:"drain_and_reset"`
}

// RetiredPages are the memory pages taken out of use.
type RetiredPages struct {
	// SingleBitRetirement are pages with several corrected errors.
	SingleBitRetirement Retirement `yaml:"single_bit_retirement"`
	// DoubleBitRetirement are pages with an uncorrected error.
	DoubleBitRetirement Retirement `yaml:"double_bit_retirement"`
	// PendingBlacklist says that pages wait to be listed.
	PendingBlacklist Opt[bool] `yaml:"pending_blacklist"`
	// PendingRetirement says that pages wait for the next reset.
	PendingRetirement Opt[bool] `yaml:"pending_retirement"`
}

// Retirement is the pages retired for one cause.
type Retirement struct {
	// Count is their number.
	Count Opt[uint32] `yaml:"count"`
	// Addresses are their addresses.
	Addresses []Address `yaml:"addresses"`
}

// RemappedRows are the memory rows replaced by spare ones.
type RemappedRows struct {
	// Correctable counts rows replaced after corrected errors.
	Correctable Opt[uint32] `yaml:"correctable"`
	// Uncorrectable counts rows replaced after uncorrected errors.
	Uncorrectable Opt[uint32] `yaml:"uncorrectable"`
	// CorrectableInactive counts such rows whose replacement is not in use.
	CorrectableInactive Opt[uint32] `yaml:"correctable_inactive"`
	// UncorrectableInactive counts such rows whose replacement is not in use.
	UncorrectableInactive Opt[uint32] `yaml:"uncorrectable_inactive"`
	// Pending says that rows wait for the next reset.
	Pending Opt[bool] `yaml:"pending"`
	// FailureOccurred says that a replacement once failed.
	FailureOccurred Opt[bool] `yaml:"failure_occurred"`
	// AvailabilityHistogram counts banks by the spare rows that they have left.
	AvailabilityHistogram RowRemapHistogram `yaml:"availability_histogram"`
}

// RowRemapHistogram counts memory banks by the spare rows that they have left.
type RowRemapHistogram struct {
	// Max counts banks with all their spare rows.
	Max Opt[uint32] `yaml:"max"`
	// High counts banks with many.
	High Opt[uint32] `yaml:"high"`
	// Partial counts banks with some.
	Partial Opt[uint32] `yaml:"partial"`
	// Low counts banks with few.
	Low Opt[uint32] `yaml:"low"`
	// None counts banks with none.
	None Opt[uint32] `yaml:"none"`
}
