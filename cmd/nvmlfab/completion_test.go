package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestComplete(t *testing.T) {
	for line, want := range map[string]string{
		"|":                            "version profiles run status set unset fail heal reset events process mig play trace capture doctor stage unstage cdi fakegpu completion",
		"pr|":                          "profiles process",
		"profiles |":                   "list show validate import schema",
		"profiles show t|":             "t4 t4-vgpu-host",
		"status --|":                   "--help --root --run --output --watch --every",
		"status -o |":                  "table json",
		"status --output=j|":           "--output=json",
		"run --profile gb|":            "gb10 gb200 gb300",
		"run --profile t4 -- |":        "",
		"set --gpu a|":                 "all",
		"set --gpu 0,|":                "", // filled in below
		"set --gpu 0 utilization.g|":   "utilization.gpu=",
		"set system.init|":             "system.init_failure=",
		"set utilization.g|":           "",
		"unset --gpu 0 utilization.g|": "utilization.gpu",
		"fail --gpu 3 fal|":            "fallen-off-bus",
		"fail dri|":                    "driver-not-loaded",
		"heal lo|":                     "lost",
		"heal fl|":                     "flapping",
		"fail --ib mlx5_0 fa|":         "",
		"fail --ib mlx5_0 link|":       "link-down",
		"fail --ib mlx5_7,le|":         "mlx5_7,leaf01",
		"fail --ib mlx5_1|":            "mlx5_1",
		"fail --speed N|":              "NDR",
		"run --ib f|":                  "full",
		"events send --gpu 1 x|":       "xid",
		"play t|":                      "thermal-runaway training-epoch",
		"completion |":                 "bash fish zsh",
	} {
		words := strings.Split(strings.TrimSuffix(line, "|"), " ")
		out := nvmlfab(t, append([]string{"complete", "--"}, words...)...)
		assert.Zero(t, out.status, line)
		assert.Empty(t, out.stderr)
		got := strings.Join(strings.Fields(out.stdout), " ")
		if line == "set --gpu 0,|" {
			assert.Contains(t, got, "0,1 0,2")
			assert.NotContains(t, got, "all")
			continue
		}
		assert.Equal(t, want, got, line)
	}
}
