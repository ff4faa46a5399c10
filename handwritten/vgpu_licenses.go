package handwritten

import (
	"bytes"
	"encoding/binary"

	"github.com/nvmlfab/nvmlfab/engine"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// expiryStates are the numbers of the reasons for which a licence has no end.
var expiryStates = table[profiles.LicenseExpiry, uint8]{
	{"not_available", abi.GRID_LICENSE_EXPIRY_NOT_AVAILABLE},
	{"invalid", abi.GRID_LICENSE_EXPIRY_INVALID},
	{"not_applicable", abi.GRID_LICENSE_EXPIRY_NOT_APPLICABLE},
	{"permanent", abi.GRID_LICENSE_EXPIRY_PERMANENT},
}

// expiry is when a licence ends.
func expiry(e profiles.Opt[profiles.LicenseExpiry]) abi.GridLicenseExpiry_t {
	t, ok := e.Value.Time()
	if !ok {
		return abi.GridLicenseExpiry_t{Status: expiryStates.Of(e.Value)}
	}
	return abi.GridLicenseExpiry_t{
		Year: uint32(t.Year()), Month: uint16(t.Month()), Day: uint16(t.Day()), Hour: uint16(t.Hour()), Min: uint16(t.Minute()),
		Sec: uint16(t.Second()), Status: abi.GRID_LICENSE_EXPIRY_VALID,
	}
}

// ended says whether a licence has ended.
func ended(s *engine.Snapshot, e profiles.Opt[profiles.LicenseExpiry]) bool {
	end, ends := e.Value.Time()
	return ends && !s.Now().Before(end)
}

// licenseState is the number of the state of a licence. One that has ended leaves the virtual machine unlicensed.
func licenseState(s *engine.Snapshot, state profiles.Opt[string], e profiles.Opt[profiles.LicenseExpiry]) uint32 {
	number := named(state, licenseStates).Or(abi.GRID_LICENSE_STATE_UNKNOWN)
	if number == abi.GRID_LICENSE_STATE_LICENSED && ended(s, e) {
		return abi.GRID_LICENSE_STATE_UNLICENSED_RESTRICTED
	}
	return number
}

// licenseStates are the numbers of the states of a vGPU's licence.
var licenseStates = table[string, uint32]{
	{"unknown", abi.GRID_LICENSE_STATE_UNKNOWN},
	{"uninitialized", abi.GRID_LICENSE_STATE_UNINITIALIZED},
	{"unlicensed_unrestricted", abi.GRID_LICENSE_STATE_UNLICENSED_UNRESTRICTED},
	{"unlicensed_restricted", abi.GRID_LICENSE_STATE_UNLICENSED_RESTRICTED},
	{"unlicensed", abi.GRID_LICENSE_STATE_UNLICENSED},
	{"licensed", abi.GRID_LICENSE_STATE_LICENSED},
}

// VgpuInstanceGetLicenseInfo is the licence of a vGPU.
//
//nvml:symbol nvmlVgpuInstanceGetLicenseInfo nvmlVgpuInstanceGetLicenseInfo_v2
func VgpuInstanceGetLicenseInfo(s *engine.Snapshot, id abi.VgpuInstance_t, info *abi.VgpuLicenseInfo_t) abi.Return {
	v, _, ret := vgpu(s, id)
	switch {
	case ret != abi.SUCCESS:
		return ret
	case !v.VMDriverVersion.Valid:
		return abi.ERROR_DRIVER_NOT_LOADED
	}
	state := licenseState(s, v.License.State, v.License.Expiry)
	*info = abi.VgpuLicenseInfo_t{
		IsLicensed:    uint8(bit(state == abi.GRID_LICENSE_STATE_LICENSED)),
		LicenseExpiry: abi.VgpuLicenseExpiry_t(expiry(v.License.Expiry)), CurrentState: state,
	}
	return abi.SUCCESS
}

// VgpuInstanceGetLicenseStatus says whether a vGPU has a licence.
func VgpuInstanceGetLicenseStatus(s *engine.Snapshot, id abi.VgpuInstance_t) (uint32, abi.Return) {
	var info abi.VgpuLicenseInfo_t
	ret := VgpuInstanceGetLicenseInfo(s, id, &info)
	if ret == abi.ERROR_DRIVER_NOT_LOADED {
		ret = abi.SUCCESS // the header lists no such answer; nobody has asked for a licence yet
	}
	return uint32(info.IsLicensed), ret
}

// licensable are the features of a guest's driver that need a licence. Licensing is not supported outside of guests: there
// drivers answer SUCCESS and an empty list.
func licensable(d *engine.Device, f *abi.GridLicensableFeatures_t) {
	list := d.VGPU.Licensing.Features
	f.IsGridLicenseSupported, f.LicensableFeaturesCount = int32(bit(len(list) > 0)), uint32(len(list))
	for i, feature := range list {
		to := &f.GridLicensableFeatures[i]
		to.FeatureCode = licensableFeatures.Of(feature.Feature)
		state := licenseState(d.Snapshot(), d.VGPU.Licensing.State, feature.Expiry)
		to.FeatureState = bit(feature.Enabled.Value && state == abi.GRID_LICENSE_STATE_LICENSED)
		to.FeatureEnabled = bit(feature.Enabled.Value)
		text(to.ProductName[:], feature.ProductName.Value)
		to.LicenseExpiry = expiry(feature.Expiry)
	}
}

var licensableFeatures = table[string, abi.GridLicenseFeatureCode_t]{
	{"unknown", abi.GRID_LICENSE_FEATURE_CODE_UNKNOWN},
	{"vgpu", abi.GRID_LICENSE_FEATURE_CODE_VGPU},
	{"nvidia_rtx", abi.GRID_LICENSE_FEATURE_CODE_NVIDIA_RTX},
	{"gaming", abi.GRID_LICENSE_FEATURE_CODE_GAMING},
	{"compute", abi.GRID_LICENSE_FEATURE_CODE_COMPUTE},
}

// older moves features to where programs expect them that know the struct of a feature as it was when it had size bytes.
func older(f *abi.GridLicensableFeatures_t, size int) abi.Return {
	now := packed(*f)
	const head = 8
	whole := (len(now) - head) / len(f.GridLicensableFeatures)
	then := make([]byte, len(now))
	copy(then, now[:head])
	for i := range f.GridLicensableFeatures {
		copy(then[head+i*size:], now[head+i*whole:][:size])
	}
	if binary.Read(bytes.NewReader(then), binary.LittleEndian, f) != nil {
		return abi.ERROR_UNKNOWN
	}
	return abi.SUCCESS
}

// DeviceGetGridLicensableFeatures is DeviceGetGridLicensableFeatures_v4 without product names, without whether a feature is in
// use, and without the end of licences.
func DeviceGetGridLicensableFeatures(d *engine.Device, f *abi.GridLicensableFeatures_t) abi.Return {
	licensable(d, f)
	return older(f, 136)
}

// DeviceGetGridLicensableFeatures_v2 is DeviceGetGridLicensableFeatures_v4 without whether a feature is in use, and without the end of licences.
func DeviceGetGridLicensableFeatures_v2(d *engine.Device, f *abi.GridLicensableFeatures_t) abi.Return {
	licensable(d, f)
	return older(f, 264)
}

// DeviceGetGridLicensableFeatures_v3 is DeviceGetGridLicensableFeatures_v4 without the end of licences.
func DeviceGetGridLicensableFeatures_v3(d *engine.Device, f *abi.GridLicensableFeatures_t) abi.Return {
	licensable(d, f)
	return older(f, 268)
}

// DeviceGetGridLicensableFeatures_v4 is what needs a licence in a guest, and whether it has one.
func DeviceGetGridLicensableFeatures_v4(d *engine.Device, f *abi.GridLicensableFeatures_t) abi.Return {
	licensable(d, f)
	return abi.SUCCESS
}
