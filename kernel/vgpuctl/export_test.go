package vgpuctl

// What tests need of this package that nobody else does.
var (
	Apply     = (*Device).apply
	ErrNotYet = errNotYet
)
