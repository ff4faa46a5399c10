package engine

import (
	"github.com/nvmlfab/nvmlfab/engine/host"
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles/words"
)

// instead is a function of a device.
type instead struct {
	function int
	device   uint32
}

// errorsByName are NVML's errors by the words of a profile's answers.
var errorsByName = words.Table[string, abi.Return]{
	{"unknown_error", abi.ERROR_UNKNOWN}, {"not_supported", abi.ERROR_NOT_SUPPORTED}, {"no_permission", abi.ERROR_NO_PERMISSION},
	{"reset_required", abi.ERROR_RESET_REQUIRED}, {"lost", abi.ERROR_GPU_IS_LOST}, {"not_ready", abi.ERROR_NOT_READY},
	{"timeout", abi.ERROR_TIMEOUT}, {"no_data", abi.ERROR_NO_DATA}, {"in_use", abi.ERROR_IN_USE}, {"memory", abi.ERROR_MEMORY},
	{"invalid_state", abi.ERROR_INVALID_STATE},
}

// answersOf are the errors that the profile lets functions of devices answer; nil if there are none.
func answersOf(devices []*Device) (all map[instead]abi.Return) {
	for _, d := range devices {
		for _, a := range d.Answers {
			number, ok := a.Function.Number()
			if !ok { // the answer of a field
				continue
			}
			if all == nil {
				all = map[instead]abi.Return{}
			}
			all[instead{number, d.Index}] = errorsByName.Of(a.Error)
		}
	}
	return all
}

// Instead is what a function answers in place of a value, if the profile says so of the GPU that its first argument stands for.
func (s *Snapshot) Instead(function uint32, handle func() uintptr) (abi.Return, bool) {
	if s.instead == nil {
		return 0, false
	}
	key, ok := s.key(handle())
	if !ok || key.Kind != host.Device {
		return 0, false
	}
	ret, ok := s.instead[instead{int(function), key.Device}]
	return ret, ok
}

// AnswerOfField is the error that the profile lets a field have, by the driver's number of the field.
func (d *Device) AnswerOfField(field uint32) (abi.Return, bool) {
	for _, a := range d.Answers {
		if a.Field.Valid && a.Field.Value == field {
			return errorsByName.Of(a.Error), true
		}
	}
	return 0, false
}
