package profiles

// Unit is an S-class unit: a chassis of its own with GPUs, as they were sold until 2010.
type Unit struct {
	// Name is the product name.
	Name string `yaml:"name" longest:"95" required:"yes"`
	// ID is the product's identifier.
	ID string `yaml:"id" longest:"95"`
	// Serial is the serial number.
	Serial string `yaml:"serial" longest:"95"`
	// FirmwareVersion is the firmware's version.
	FirmwareVersion string `yaml:"firmware_version" longest:"95"`
	// IntakeC is the temperature of the air that enters, in °C.
	IntakeC Opt[uint32] `yaml:"intake_c"`
	// ExhaustC is the temperature of the air that leaves, in °C.
	ExhaustC Opt[uint32] `yaml:"exhaust_c"`
	// BoardC is the temperature of the unit's board, in °C.
	BoardC Opt[uint32] `yaml:"board_c"`
	// PSU is the power supply.
	PSU UnitPSU `yaml:"psu"`
	// Fans are the fans.
	Fans []UnitFan `yaml:"fans"`
	// Amber says why the light at the front is amber. It is green when absent.
	Amber Opt[string] `yaml:"amber" longest:"255"`
	// Devices are the indices of the GPUs that the unit carries.
	Devices []uint32 `yaml:"devices"`
}

// UnitPSU is a unit's power supply.
type UnitPSU struct {
	// State says how it is, such as Normal.
	State Opt[string] `yaml:"state" longest:"255"`
	// CurrentA is the current, in A.
	CurrentA Opt[uint32] `yaml:"current_a"`
	// VoltageV is the voltage, in V.
	VoltageV Opt[uint32] `yaml:"voltage_v"`
	// PowerW is the power, in W.
	PowerW Opt[uint32] `yaml:"power_w"`
}

// UnitFan is one of a unit's fans.
type UnitFan struct {
	// SpeedRPM is its speed, in rounds per minute.
	SpeedRPM uint32 `yaml:"speed_rpm" required:"yes"`
	// Failed says that it has failed.
	Failed bool `yaml:"failed"`
}
