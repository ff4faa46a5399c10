package vgpuctl

// Exported for the tests of this package.
var (
	Apply     = (*Device).apply
	ErrNotYet = errNotYet
)
