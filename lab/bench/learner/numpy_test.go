//go:build unix

package learner

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// BenchmarkNumpy compares local steps of fedmesh and of numpy, which run alternately on one core. It prints the median
// CPU time of each step and the median ratio. The environment variable NUMPY_PYTHON names a Python interpreter with
// numpy.
func BenchmarkNumpy(b *testing.B) {
	python := os.Getenv("NUMPY_PYTHON")
	if python == "" {
		b.Skip("NUMPY_PYTHON names no Python with numpy; see make bench-learner")
	}
	other := start(b, python)
	fmt.Println("| model | batch | ours, µs a step | numpy, µs a step | speed, ours ÷ numpy |\n|---|---|---|---|---|")
	for _, widths := range [][]int{{561, 6}, {561, 64, 6}, {784, 200, 200, 10}} {
		for _, batch := range []int{1, 10, 32} {
			race(b, other, widths, batch)
		}
	}
}

// Number of measurements per contestant, and the approximate duration of one measurement.
const (
	turns = 21
	slice = 100 * time.Millisecond
)

func race(b *testing.B, other *numpy, widths []int, batch int) {
	b.Helper()
	own := descent(b, widths, batch)
	ours, theirs := sized(own), sized(func(n int) time.Duration { return other.steps(widths, batch, n) })
	var took, numpys, ratios []float64
	for range turns {
		us := micros(own(ours), ours)
		np := micros(other.steps(widths, batch, theirs), theirs)
		took, numpys, ratios = append(took, us), append(numpys, np), append(ratios, np/us)
	}
	name := strings.Trim(strings.ReplaceAll(fmt.Sprint(widths), " ", "-"), "[]")
	fmt.Printf("| %s | %d | %.1f | %.1f | %.2f |\n", name, batch, median(took), median(numpys), median(ratios))
}

// sized returns the number of steps that take about as long as one measurement should.
func sized(steps func(n int) time.Duration) int {
	steps(2) // Run two steps first, to exclude one-time initialisation from the measurement.
	n := 4
	for steps(n) < slice/4 {
		n *= 2
	}
	return 4 * n
}

func micros(took time.Duration, steps int) float64 {
	return float64(took.Nanoseconds()) / 1e3 / float64(steps)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// descent returns a function that takes n local steps with fedmesh and returns the CPU time that they used.
func descent(b *testing.B, widths []int, batch int) func(n int) time.Duration {
	b.Helper()
	last := len(widths) - 1
	a := learner.Architecture{Inputs: widths[0], HiddenUnits: widths[1:last], Outputs: widths[last],
		Risk:    spec.LossSoftmax,
		HasBias: true, Activation: spec.ActivationReLU}
	m, err := learner.NewModel[float32](a)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const rows = 500
	x, y := make([]float32, rows*a.Inputs), make([]float32, rows)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i] = float32(rng.IntN(a.Outputs))
	}
	w := make([]float32, a.ParameterCount())
	m.InitParameters(w, rng)
	d := learner.Descent[float32]{Model: m, Schedule: learner.StepSizeSchedule{ConstantStepSize: 1e-3},
		Draws: &learner.StepSampler[float32]{GradientConfig: learner.GradientConfig{BatchSize: batch}, Rand: rng,
			Data: learner.NewSamples(a.Inputs, x, y)}}
	return func(n int) time.Duration {
		begin := used(b)
		if _, err := d.Run(w, n, 1, 0, nil); err != nil {
			b.Fatal(err)
		}
		return used(b) - begin
	}
}

// used returns the CPU time that this process has used so far.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// numpy is a running Python process that takes local steps with numpy (script steps.py).
type numpy struct {
	b   *testing.B
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(b *testing.B, python string) *numpy {
	b.Helper()
	cmd := exec.Command(python, "steps.py")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &numpy{b, in, bufio.NewScanner(out)}
}

// steps makes the Python process take local steps, and returns the CPU time that they used.
func (n *numpy) steps(widths []int, batch, steps int) time.Duration {
	n.b.Helper()
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(widths), "[]"), " ", ",")
	if _, err := fmt.Fprintf(n.in, "%s %d %d\n", text, batch, steps); err != nil {
		n.b.Fatal(err)
	}
	if !n.out.Scan() {
		n.b.Fatalf("numpy has ended: %v", n.out.Err())
	}
	seconds, err := strconv.ParseFloat(n.out.Text(), 64)
	if err != nil {
		n.b.Fatal(err)
	}
	return time.Duration(seconds * 1e9)
}
