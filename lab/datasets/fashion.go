package datasets

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// FashionFolder is the folder in which Debian's package dataset-fashion-mnist installs its files.
const FashionFolder = "/usr/share/datasets/fashion-mnist"

const (
	pixels        = 28 * 28
	fashionLabels = 10
)

// Fashion is Zalando's Fashion-MNIST data set, read from compressed IDX files. Pixels are from 0 to 1, and classes from
// 0 to 9.
type Fashion struct{ train, test images }

type images struct {
	x []float32 // pixel values with shape [rows, pixels]
	y []float32
}

// ReadFashion reads the four compressed IDX files in the folder.
func ReadFashion(folder string) (*Fashion, error) {
	var f Fashion
	for _, part := range []struct {
		name string
		to   *images
	}{{"train", &f.train}, {"t10k", &f.test}} {
		x, err := idx(filepath.Join(folder, part.name+"-images-idx3-ubyte.gz"), pixels)
		if err != nil {
			return nil, err
		}
		y, err := idx(filepath.Join(folder, part.name+"-labels-idx1-ubyte.gz"), 1)
		if err != nil {
			return nil, err
		}
		if len(x) != pixels*len(y) || slices.Max(y) >= fashionLabels {
			return nil, fmt.Errorf("%s: labels and images do not match: got %d labels (largest class %d) and %d pixels",
				folder, len(y), slices.Max(y), len(x))
		}
		part.to.x, part.to.y = make([]float32, len(x)), make([]float32, len(y))
		for i, v := range x {
			part.to.x[i] = float32(v) / 255
		}
		for i, v := range y {
			part.to.y[i] = float32(v)
		}
	}
	return &f, nil
}

// idx reads a compressed IDX file and returns the bytes of its items. size is the number of bytes per item.
func idx(path string, size int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: install the Debian package dataset-fashion-mnist", err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const bytesOf = 8 // The third byte of an IDX file is the type of the elements; 8 means unsigned bytes.
	if len(all) < 4 || all[2] != bytesOf || len(all) < 4+4*int(all[3]) {
		return nil, fmt.Errorf("%s: not an IDX file of unsigned bytes", path)
	}
	items, body := int(binary.BigEndian.Uint32(all[4:])), all[4+4*int(all[3]):]
	if items == 0 || len(body) != items*size {
		return nil, fmt.Errorf("%s: got %d bytes, want %d items of %d bytes", path, len(body), items, size)
	}
	return body, nil
}

// Split is a method of distributing the training images over devices.
type Split string

// Methods to distribute the training images over devices.
const (
	IID       Split = "iid"       // random distribution: all devices have similar images
	Shards    Split = "shards"    // the images are sorted by class; each device gets two random contiguous parts
	Dirichlet Split = "dirichlet" // the shares of each class are drawn from a symmetric Dirichlet distribution
)

// Problem distributes the training images over devices, with at least one image per device. The metric is the accuracy
// on the test images, and concentration is the parameter of the Dirichlet split.
func (f *Fashion) Problem(model learner.Architecture, by Split, devices int, concentration float64,
	rng *rand.Rand) (*data.Problem[float32], error) {
	parts, err := f.split(by, devices, concentration, rng)
	if err != nil {
		return nil, err
	}
	held := make([]*learner.Samples[float32], devices)
	for k, rows := range parts {
		x, y := make([]float32, 0, len(rows)*pixels), make([]float32, 0, len(rows))
		for _, i := range rows {
			x, y = append(x, f.train.x[i*pixels:][:pixels]...), append(y, f.train.y[i])
		}
		held[k] = learner.NewSamples(pixels, x, y)
	}
	return tested(model, held, learner.NewSamples(pixels, f.test.x, f.test.y))
}

// FashionModel returns softmax regression if hidden is 0, and otherwise a network with one hidden layer of ReLU units.
func FashionModel(hidden int) learner.Architecture {
	a := learner.Architecture{Kind: spec.ModelSoftmax, Inputs: pixels, Outputs: fashionLabels, Risk: spec.LossSoftmax,
		HasBias: true}
	if hidden > 0 {
		a.Kind, a.HiddenUnits, a.Activation = spec.ModelMLP, []int{hidden}, spec.ActivationReLU
	}
	return a
}

func (f *Fashion) split(by Split, devices int, concentration float64, rng *rand.Rand) ([][]int, error) {
	n := len(f.train.y)
	order := rng.Perm(n)
	parts := make([][]int, devices)
	switch by {
	case IID:
		for k := range parts {
			parts[k] = order[k*n/devices : (k+1)*n/devices]
		}
	case Shards:
		slices.SortStableFunc(order, func(a, b int) int { return int(f.train.y[a]) - int(f.train.y[b]) })
		for at, shard := range rng.Perm(2 * devices) {
			parts[at/2] = append(parts[at/2], order[shard*n/(2*devices):(shard+1)*n/(2*devices)]...)
		}
	case Dirichlet:
		gamma := distuv.Gamma{Alpha: concentration, Beta: 1, Src: rng}
		for class := range fashionLabels {
			var of []int
			for _, i := range order {
				if int(f.train.y[i]) == class {
					of = append(of, i)
				}
			}
			shares, all := make([]float64, devices), 0.0
			for k := range shares {
				shares[k] = gamma.Rand()
				all += shares[k]
			}
			from, sum := 0, 0.0
			for k, share := range shares {
				sum += share / all
				to := min(len(of), int(sum*float64(len(of))+0.5))
				parts[k], from = append(parts[k], of[from:to]...), to
			}
		}
	default:
		return nil, fmt.Errorf("unknown split %q, want iid, shards or dirichlet", by)
	}
	for k, p := range parts {
		if len(p) == 0 {
			return nil, errors.New("device " + fmt.Sprint(k) + " has no images: use another seed or fewer devices")
		}
	}
	return parts, nil
}
