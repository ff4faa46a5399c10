package change

import (
	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/nvmlfab/nvmlfab/profiles"
)

// put is the common end of NVML's setters: the keys get these values until the GPU is reset or they are set again.
func (t *Tx) put(i int, keys profiles.Settings) abi.Return {
	if t.Set(i, BySetter, 0, keys) != nil {
		return abi.ERROR_INVALID_ARGUMENT
	}
	return abi.SUCCESS
}

// enabled is the word for a state that NVML knows; false for any other number.
func enabled(state abi.EnableState_t) (word string, ok bool) {
	switch state {
	case abi.FEATURE_DISABLED:
		return "disabled", true
	case abi.FEATURE_ENABLED:
		return "enabled", true
	}
	return "", false
}

// PersistenceMode switches the persistence mode, in which the driver stays loaded without clients.
func (t *Tx) PersistenceMode(i int, state abi.EnableState_t) abi.Return {
	word, ok := enabled(state)
	d, err := t.Device(i)
	switch {
	case !ok:
		return abi.ERROR_INVALID_ARGUMENT
	case err != nil || !d.PersistenceMode.Valid:
		return abi.ERROR_NOT_SUPPORTED
	}
	return t.put(i, profiles.Settings{"persistence_mode": word})
}
