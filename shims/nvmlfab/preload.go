package main

import (
	"os"

	"github.com/nvmlfab/nvmlfab/shims/stage"
)

// temporary writes a tree for this process, and takes it away when the process has ended.
func temporary(tree *stage.Tree) (string, error) {
	dir, err := os.MkdirTemp("", "nvmlfab-*")
	if err != nil {
		return "", err
	}
	return dir, tree.Write(dir)
}
