//go:build unix

package rule

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkAddScaled compares the vector loop in assembly, and the version of the loop in Go, with a loop by a C
// compiler (gcc -O3 -march=native), if available. It uses one vector of d elements repeatedly, and different vectors of
// 400 MB in total. The metric of-C is the CPU time of the C loop divided by the CPU time of the measured loop.
func BenchmarkAddScaled(b *testing.B) {
	compiled := filepath.Join(b.TempDir(), "scale")
	if out, err := exec.Command("gcc", "-O3", "-march=native", "-ffp-contract=off", "-o", compiled,
		"testdata/scale.c").CombinedOutput(); err != nil {
		b.Skipf("no C compiler: %v\n%s", err, out)
	}
	for _, size := range []struct {
		name      string
		d, inputs int
	}{{"hot/1e3", 1e3, 1}, {"hot/1e5", 1e5, 1}, {"hot/1e6", 1e6, 1}, {"cold/1e5", 1e5, 1000}, {"cold/1e6", 1e6, 100}} {
		v := make([]float32, size.d*size.inputs)
		for i := range v {
			v[i] = float32(i) / float32(len(v))
		}
		acc := make([]float64, size.d)
		race := func(name string, add func(acc []float64, f float64, v []float32)) {
			b.Run(name+"/"+size.name, func(b *testing.B) {
				var ours, c []float64
				for b.Loop() { // Measure the loops alternately.
					out, err := exec.Command(compiled, strconv.Itoa(size.d), strconv.Itoa(size.inputs),
						"0.1").Output()
					if err != nil {
						b.Fatal(err)
					}
					x, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
					if err != nil {
						b.Fatal(err)
					}
					c = append(c, x)
					begin, rounds := processorTime(b), 0
					took := time.Duration(0)
					for ; took < 100*time.Millisecond; took = processorTime(b) - begin {
						for in := range slices.Chunk(v, size.d) {
							add(acc, 0.5, in)
						}
						rounds++
					}
					ours = append(ours, float64(took.Nanoseconds())/float64(rounds*len(v)))
				}
				slices.Sort(ours)
				slices.Sort(c)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(ours[0], "ns/element")
				b.ReportMetric(c[0]/ours[0], "of-C")
			})
		}
		race("fast", addScaled[float32])
		race("go", addScaledGo[float32])
	}
}

// processorTime returns the CPU time that this process has used. Wall-clock time would include the time of other
// processes.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
