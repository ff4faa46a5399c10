package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInstalledModules: a package puts the kernel modules where dkms looks for the version that dkms.conf names.
func TestInstalledModules(t *testing.T) {
	conf := func(text string) *bundle {
		b := &bundle{version: "1", arch: "amd64"}
		require.NoError(t, b.add(file{path: "kernel/dkms.conf", mode: 0o644, content: []byte(text)}))
		return b
	}
	files, err := conf("# x\nPACKAGE_NAME=\"nvmlfab\"\nPACKAGE_VERSION=\"2.1\"\n").installed()
	require.NoError(t, err)
	assert.Contains(t, files, file{path: "usr/src/nvmlfab-2.1/dkms.conf", mode: 0o644, content: []byte("# x\nPACKAGE_NAME=\"nvmlfab\"\nPACKAGE_VERSION=\"2.1\"\n")})

	for _, text := range []string{"", "PACKAGE_VERSION=\"\"\n", "PACKAGE_VERSION=\"$V\"\n", "#PACKAGE_VERSION=\"1\"\n", "PACKAGE_VERSION=\"../x\"\n"} {
		_, err := conf(text).installed()
		assert.ErrorContains(t, err, "kernel/dkms.conf has no PACKAGE_VERSION", text)
	}
	_, err = (&bundle{}).installed()
	assert.EqualError(t, err, "the release has no kernel/dkms.conf")

	text, err := os.ReadFile("../kernel/dkms.conf")
	require.NoError(t, err)
	_, err = conf(string(text)).dkmsVersion()
	assert.NoError(t, err)
}
