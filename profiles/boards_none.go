//go:build bootstrap

package profiles

// shipped is empty while the boards are being compiled, since the present literals may not compile any more.
var shipped map[string]func() *Board
