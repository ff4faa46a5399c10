package debian

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDebianSource(t *testing.T) {
	for name, c := range map[string]struct{ targets, want string }{
		"plain":       {"main bookworm http://mirror/debian/\nmain bookworm-updates http://mirror/debian/\n", "http://mirror/debian/"},
		"third party": {"stable bookworm http://other/\nmain bookworm-pgdg http://pg/\nmain trixie http://mirror/debian/\n", "http://mirror/debian/"},
		"security":    {"main bookworm-security http://mirror/debian-security/\n", ""},
		"ubuntu":      {"main noble http://mirror/ubuntu/\n", ""},
		"nothing":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, debianSource(c.targets)) })
	}
}

func TestUnknownName(t *testing.T) {
	_, err := Fetch("nvidia-smi")
	assert.ErrorContains(t, err, "nvidia-smi-550")
}
