// Package dataset reads the daemons' local data from files.
package dataset

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fedmesh/fedmesh/learner"
)

// CSV is a CSV file with named columns, plain or (.gz) compressed.
type CSV struct {
	Path   string
	Filter learner.Filter
}

// Load reads the task's columns of the rows that the filter selects.
func (c CSV) Load(features []string, target string) (*learner.Samples[float32], error) {
	f, err := os.Open(c.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(c.Path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Path, err)
		}
		r = z
	}
	return learner.ReadCSV[float32](r, c.Path, features, target, c.Filter)
}
