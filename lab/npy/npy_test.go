package npy_test

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/lab/npy"
)

func written[T npy.Element](t *testing.T, data []T, shape ...int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := npy.Write(&b, data, shape...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBytes checks that Write produces the same bytes as numpy.save (numpy 2.1).
func TestBytes(t *testing.T) {
	header := func(text string) string {
		return "\x93NUMPY\x01\x00\x76\x00" + text + strings.Repeat(" ", 117-len(text)) + "\n"
	}
	for _, tt := range []struct{ got, want string }{
		{string(written(t, []float64{1.5, -2}, 2)),
			header("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }") +
				"\x00\x00\x00\x00\x00\x00\xf8\x3f\x00\x00\x00\x00\x00\x00\x00\xc0"},
		{string(written(t, []float32{1}, 1, 1)), header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }") +
			"\x00\x00\x80\x3f"},
		{string(written(t, []int64{-1})), header("{'descr': '<i8', 'fortran_order': False, 'shape': (), }") +
			"\xff\xff\xff\xff\xff\xff\xff\xff"},
		{string(written(t, []uint8{}, 0, 3)), header("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3), }")},
	} {
		if tt.got != tt.want {
			t.Errorf("wrote\n%q, want\n%q", tt.got, tt.want)
		}
	}
}

func TestReadWhatWasWritten(t *testing.T) {
	data := []float64{1, math.Pi, math.Copysign(0, -1), math.MaxFloat64, 5e-324, 1.0 / 3}
	got, shape, err := npy.Read[float64](bytes.NewReader(written(t, data, 2, 3)))
	if err != nil || !slices.Equal(shape, []int{2, 3}) || !slices.Equal(got, data) {
		t.Errorf("read %v of shape %v, %v", got, shape, err)
	}
	whole := []int64{math.MinInt64, 0, math.MaxInt64}
	if got, _, err := npy.Read[int64](bytes.NewReader(written(t, whole, 3))); err != nil || !slices.Equal(got, whole) {
		t.Errorf("read %v, %v", got, err)
	}
	if got, _, err := npy.Read[float64](bytes.NewReader(written(t, []uint8{0, 1, 255}, 3))); err != nil ||
		!slices.Equal(got, []float64{0, 1, 255}) {
		t.Errorf("bytes read as floats: %v, %v", got, err)
	}
}

func TestBadFiles(t *testing.T) {
	good := string(written(t, []float64{1, 2}, 2))
	for what, file := range map[string]string{
		"not an npy file": "PK\x03\x04 and so on",
		"invalid header":  good[:40],
		"ends after 1":    good[:len(good)-3],
		"Fortran order":   strings.Replace(good, "False", "True ", 1),
		"big-endian":      strings.Replace(good, "<f8", ">f8", 1),
		"number type":     strings.Replace(good, "<f8", "<c8", 1),
		"too large":       strings.Replace(good, "(2,), }        ", "(2, 9999999999)", 1),
		"lacks descr":     strings.Replace(good, "descr", "dscre", 1),
	} {
		if _, _, err := npy.Read[float64](strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q, got %v", what, err)
		}
	}
}

// TestNumpy checks that numpy can read files from Write, and that Read can read files from numpy.
func TestNumpy(t *testing.T) {
	python := testkit.NumpyPython(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.npy"), written(t, []float64{1, 2, 3, 4, 5, 6}, 2, 3),
		0o600); err != nil {
		t.Fatal(err)
	}
	script := "import numpy as np; a = np.load('a.npy'); assert a.shape == (2, 3) and a[1, 0] == 4, a; " +
		"np.save('b.npy', 2 * a.astype('f4'))"
	cmd := exec.Command(python, "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "b.npy"))
	if err != nil {
		t.Fatal(err)
	}
	if got, shape, err := npy.Read[float64](bytes.NewReader(b)); err != nil || !slices.Equal(shape, []int{2, 3}) ||
		got[5] != 12 {
		t.Errorf("read %v of shape %v, %v", got, shape, err)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	_ = npy.Write(&b, []float64{1, 2}, 2)
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, file []byte) {
		// Read must not panic, and must not allocate much more memory than the file contains.
		_, _, _ = npy.Read[float64](bytes.NewReader(file))
	})
}
