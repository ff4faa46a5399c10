package binding

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/nvmlfab/nvmlfab/generator/model"
	headers "github.com/nvmlfab/nvmlfab/nvml-headers"
)

// ModelDir is where the models are committed, below the root of the source tree.
const ModelDir = "nvml-headers/model"

// Models are the committed models of all headers.
type Models struct {
	Versions []headers.Version // oldest first
	Headers  []*model.Header   // of each version
	Slots    *model.Header     // nvidia-smi's table
}

// ReadModels reads the committed models below root.
func ReadModels(root string) (*Models, error) {
	m := &Models{}
	var err error
	if m.Versions, err = headers.Versions(); err != nil {
		return nil, err
	}
	names := []string{model.SlotsName}
	for _, v := range m.Versions {
		names = append(names, v.NVML)
	}
	list, err := Each(names, func(name string) (*model.Header, error) {
		h, err := model.Read(filepath.Join(root, ModelDir, name+".json"))
		if err != nil {
			err = fmt.Errorf("%w; run go run ./generator --update", err)
		}
		return h, err
	})
	if err != nil {
		return nil, err
	}
	m.Slots, m.Headers = list[0], list[1:]
	return m, nil
}

// Load reads the committed models and numbers below root and binds their symbols.
func Load(root string) (*Models, []*Symbol, error) {
	m, err := ReadModels(root)
	if err != nil {
		return nil, nil, err
	}
	numbers, err := ReadNumbers(filepath.Join(root, NumbersFile))
	if err != nil {
		return nil, nil, err
	}
	symbols, err := Bind(m, numbers)
	return m, symbols, err
}

// Each calls f with every item in parallel and returns the results, or the first error.
func Each[T, R any](items []T, f func(T) (R, error)) ([]R, error) {
	out := make([]R, len(items))
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { out[i], errs[i] = f(item) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
