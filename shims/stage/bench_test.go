package stage

import (
	"testing"

	"github.com/nvmlfab/nvmlfab/profiles"
)

func BenchmarkNew(b *testing.B) {
	board, _ := profiles.Shipped("h100")
	for b.Loop() {
		New(board, Options{CPUs: []uint32{0, 1}})
	}
}
