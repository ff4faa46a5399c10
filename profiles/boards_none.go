//go:build bootstrap

package profiles

// shipped is empty while the boards are being compiled, so that stale ones cannot stand in the way.
var shipped map[string]func() *Board
