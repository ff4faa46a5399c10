package engine

import "github.com/nvmlfab/nvmlfab/profiles"

// Device is a GPU as one snapshot shows it.
type Device struct {
	view
	*profiles.Device
	meter meter
	fault *fault
}
