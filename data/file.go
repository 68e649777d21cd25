package data

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fedmesh/fedmesh/learner"
)

// OpenFile opens a file, which may be compressed (.gz).
func OpenFile(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if !compressed(path) {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		_ = f.Close() // the first error is the one to show
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return unzipped{z, f}, nil
}

func compressed(path string) bool { return strings.HasSuffix(path, ".gz") }

// unzipped is a compressed file.
type unzipped struct {
	io.Reader
	io.Closer
}

// ReadFile reads all rows of a CSV file, which may be compressed.
func ReadFile[T learner.Float](path string, features []string, target string) (*learner.Samples[T], error) {
	r, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadCSV[T](r, path, features, target, Filter{})
}
