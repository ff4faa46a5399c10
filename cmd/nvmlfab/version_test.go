package main

import (
	"testing"

	"github.com/nvmlfab/nvmlfab/generated/abi"
	"github.com/stretchr/testify/assert"
)

func TestVersion(t *testing.T) {
	out := nvmlfab(t, "version")
	assert.Zero(t, out.status)
	assert.Empty(t, out.stderr)
	newest := abi.Versions[len(abi.Versions)-1].NVML
	assert.Regexp(t, `^nvmlfab \S+\nNVML [0-9.]+ to `+newest+`: [1-9]\d* symbols, [1-9]\d* implemented\n$`, out.stdout)
}

func TestBuildVersion(t *testing.T) {
	assert.NotEmpty(t, buildVersion())
	t.Cleanup(func() { version = "" })
	version = "1.2.3"
	assert.Equal(t, "1.2.3", buildVersion())
}
