//go:build plugin

package main

import _ "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin" // which go.mod keeps for this
