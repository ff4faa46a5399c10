package profiles

// InfiniBand is the machine's InfiniBand adapters.
type InfiniBand struct {
	// Enabled says that there are any. Without it there are if HCAs, HCACount or HCAsPerGPU gives any.
	Enabled Opt[bool] `yaml:"enabled"`
	// HCAProperties hold for every adapter that does not say otherwise.
	HCAProperties
	// HCAsPerGPU is the number of adapters for each GPU; 1 if nothing gives a number.
	HCAsPerGPU Opt[uint32] `yaml:"hcas_per_gpu" range:"0..64"`
	// HCACount is the number of adapters; it wins over HCAsPerGPU.
	HCACount Opt[uint32] `yaml:"hca_count" range:"0..4096"`
	// GUIDPrefix are the upper digits of GUIDs, in hexadecimal. The others are made from the machine's name.
	GUIDPrefix Opt[GUIDPrefix] `yaml:"guid_prefix"`
	// NodeName is the machine's name in the fabric, which GUIDs are made of too; by default the host's name.
	NodeName Opt[string] `yaml:"node_name" longest:"64"`
	// HCAs are the adapters one by one, in the order of their PCI addresses. They win over HCACount and HCAsPerGPU.
	HCAs []HCA `yaml:"hcas"`
}

// HCAProperties are what can be said of all adapters or of one.
type HCAProperties struct {
	// HCAType is the adapter's type: MT and its PCI device id in decimal, such as MT4129.
	HCAType Opt[HCAType] `yaml:"hca_type"`
	// FWVersion is the firmware's version, such as 28.41.1000.
	FWVersion Opt[string] `yaml:"fw_version" form:"version" longest:"20"`
	// HWRev is the hardware's revision, in hexadecimal.
	HWRev Opt[HWRev] `yaml:"hw_rev"`
	// BoardID is the adapter's board id (PSID), such as MT_0000000838.
	BoardID Opt[string] `yaml:"board_id" longest:"16"`
	// NodeDescTemplate is the node description, with {node_name}, {name} and {idx} to be filled in.
	NodeDescTemplate Opt[string] `yaml:"node_desc_template" longest:"64"`
	// LinkLayer is InfiniBand or Ethernet.
	LinkLayer Opt[string] `yaml:"link_layer" enum:"InfiniBand,Ethernet"`
	// RateGbps is a port's rate, in Gbit/s.
	RateGbps Opt[uint32] `yaml:"rate_gbps" range:"2..1600"`
	// Lanes is the number of lanes that the rate is spread over: 1, 2 or 4; 4 by default.
	Lanes Opt[uint32] `yaml:"lanes" range:"1..4"`
	// Ports is the number of ports of an adapter; 1 by default, as of every function of today's adapters.
	Ports Opt[uint32] `yaml:"ports" range:"1..9"`
	// PortState is a port's logical state. Without it the state is what the fabric makes of it.
	PortState Opt[string] `yaml:"port_state" enum:"ACTIVE,INIT,ARMED,DOWN"`
	// PhysState is a port's physical state, such as LinkUp. Without it the state follows from the logical state.
	PhysState Opt[string] `yaml:"phys_state" enum:"LinkUp=link_up,Polling,Disabled,Sleep,PortConfigurationTraining=training,LinkErrorRecovery,PhyTest"`
}

// HCA is one InfiniBand adapter, which is one PCI function.
type HCA struct {
	// Name is the device's name, such as mlx5_0.
	Name Opt[string] `yaml:"name" longest:"19"`
	// BusID is the adapter's PCI address.
	BusID Opt[BusID] `yaml:"bus_id"`
	// NetDevice is the name of the adapter's network interface, such as ibp24s0.
	NetDevice Opt[string] `yaml:"net_device" longest:"15"`
	// GPU is the index of the GPU with which the adapter shares a PCIe switch.
	GPU Opt[uint32] `yaml:"gpu"`
	// NodeGUID is the adapter's GUID.
	NodeGUID Opt[GUID] `yaml:"node_guid"`
	// SysImageGUID is the GUID that all functions of a card have in common.
	SysImageGUID Opt[GUID] `yaml:"sys_image_guid"`
	// HCAProperties are the adapter's own.
	HCAProperties
}
