package datasets

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if strings.HasSuffix(path, ".gz") {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(data)
		_ = w.Close()
		data = b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestHAR checks that the moments for the standardisation are computed only from people with a device, even for a
// constant column. The rows of all other people must be the test set.
func TestHAR(t *testing.T) {
	text := "subject,test,label,f1,f2\n1,0,1,1,5\n1,0,6,3,5\n3,1,2,1,5\n3,0,2,3,5\n2,0,3,900,5\n"
	for _, name := range []string{"har.csv", "har.csv.gz"} {
		p, err := HAR(write(t, filepath.Join(t.TempDir(), name), []byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		rows := p.Loader(nil)
		if all := rows(0).Samples.All(); p.Agents != 2 || !slices.Equal(all.X, []float32{-1, 0, 1, 0}) ||
			!slices.Equal(all.Y, []float32{0, 5}) {
			t.Errorf("%d agents, the first has %+v", p.Agents, all)
		}
		if all := rows(1).Samples.All(); !slices.Equal(all.Y, []float32{1, 1}) {
			t.Errorf("the second has %+v", all)
		}
		w := make([]float64, 6*3)
		w[2*2] = 1 // Predict class 2 from the first feature, which is limited to 6.
		if got := p.Metrics[0].Of(w); got != 1 {
			t.Errorf("accuracy %v on the stranger's row", got)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"subject,test,label,f1\n1,0,7,1\n", `line 2: invalid label "7", want 1 to 6`},
		{"subject,test,label\n1,0,1\n", "no feature columns"},
		{"subject,test,label,f1\n1,0,1,x\n", "line 2"},
		{"subject,test,label,f1\n1,0,1,2\n", "no rows of training subjects"},
		{"subject,test,label,f1\n2,0,1,2\n", "no rows of training subjects"},
	} {
		if _, err := HAR(write(t, filepath.Join(t.TempDir(), "x.csv"), []byte(c.text))); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

// idxOf returns an IDX file with the given bytes and dimensions.
func idxOf(data []byte, dimensions ...int) []byte {
	b := []byte{0, 0, 8, byte(len(dimensions))}
	for _, n := range dimensions {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return append(b, data...)
}

// fashionFolder writes n images into a folder. Image number i has the class i mod 10, and the value of its first pixel
// is i.
func fashionFolder(t *testing.T, n int) string {
	dir := t.TempDir()
	for _, part := range []string{"train", "t10k"} {
		x, y := make([]byte, n*pixels), make([]byte, n)
		for i := range n {
			x[i*pixels], y[i] = byte(i), byte(i%10)
		}
		write(t, filepath.Join(dir, part+"-images-idx3-ubyte.gz"), idxOf(x, n, 28, 28))
		write(t, filepath.Join(dir, part+"-labels-idx1-ubyte.gz"), idxOf(y, n))
	}
	return dir
}

// TestFashionSplits checks that each split assigns every image to exactly one device.
func TestFashionSplits(t *testing.T) {
	f, err := ReadFashion(fashionFolder(t, 200))
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []Split{IID, Shards, Dirichlet} {
		p, err := f.Problem(FashionModel(0), by, 10, 1, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			t.Fatal(err)
		}
		seen, sizes, kinds := map[float32]int{}, map[int]int{}, 0
		rows := p.Loader(nil)
		for k := range p.Agents {
			s := rows(k).Samples
			sizes[s.Len()]++
			of := map[float32]bool{}
			for i := range s.Len() {
				x, y := s.Row(i)
				seen[x[0]]++
				of[y] = true
			}
			kinds = max(kinds, len(of))
		}
		for image, n := range seen {
			if n != 1 {
				t.Errorf("%s: image %v is at %d devices", by, image, n)
			}
		}
		even := len(sizes) == 1
		if len(seen) != 200 || even != (by != Dirichlet) || (kinds <= 4) != (by == Shards) {
			t.Errorf("%s: %d images, sizes %v, up to %d classes", by, len(seen), sizes, kinds)
		}
		if p.Metrics[0].Of(make([]float64, p.Model.ParameterCount())) != 0.1 {
			t.Error("without a model all images are of class 0, a tenth of them")
		}
	}
	if _, err := f.split("halves", 10, 1, rand.New(rand.NewPCG(1, 2))); err == nil {
		t.Error("a split of no name")
	}
}

func TestFashionFiles(t *testing.T) {
	for name, text := range map[string][]byte{
		"t10k-labels-idx1-ubyte.gz":  idxOf([]byte{10, 0}, 2),
		"train-labels-idx1-ubyte.gz": idxOf([]byte{1}, 1),
		"train-images-idx3-ubyte.gz": idxOf(make([]byte, 3), 2, 28, 28),
		"t10k-images-idx3-ubyte.gz":  []byte("no IDX"),
	} {
		dir := fashionFolder(t, 2)
		write(t, filepath.Join(dir, name), text)
		if _, err := ReadFashion(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := ReadFashion(t.TempDir()); err == nil || !strings.Contains(err.Error(), "dataset-fashion-mnist") {
		t.Errorf("no files: %v", err)
	}
}
