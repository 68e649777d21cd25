//go:build linux

package sim

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// cost is the time of some rounds in seconds: elapsed time, and processor time of all cores.
type cost struct{ wall, processor float64 }

// measured returns the cost of do.
func measured(b *testing.B, do func()) cost {
	b.Helper()
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	from, before := time.Now(), used()
	do()
	return cost{time.Since(from).Seconds(), used() - before}
}

// numpyRounds starts Python with numpy and returns a function that runs the given number of rounds there.
func numpyRounds(b *testing.B, python string, agents, inputs, threads int) func(rounds int) cost {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), python, "testdata/rounds.py", strconv.Itoa(agents), strconv.Itoa(inputs))
	cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS="+strconv.Itoa(threads))
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil || cmd.Start() != nil {
		b.Fatalf("%s does not start: %v, %v", python, inErr, outErr)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return func(rounds int) (c cost) {
		_, err := io.WriteString(in, strconv.Itoa(rounds)+"\n")
		if err == nil {
			_, err = fmt.Fscan(out, &c.wall, &c.processor)
		}
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
}

// BenchmarkNumpy compares the simulator with a numpy program that is vectorised over the agents. The two programs take
// turns. Each round has 100 agents with one local step on new samples of a linear model in float64.
//
// x_numpy is the ratio of rounds per second, and x_numpy_cpu is the ratio of rounds per second of CPU time. Both ratios
// are medians of at least five turns. On a busy machine, use x_numpy_cpu. The environment variable NUMPY names a Python
// interpreter with numpy.
func BenchmarkNumpy(b *testing.B) {
	python := os.Getenv("NUMPY")
	if python == "" {
		b.Skip("NUMPY names no Python with numpy: make bench-sim")
	}
	const agents = 100
	for _, size := range []struct{ inputs, rounds int }{{10, 5000}, {10_000, 30}} {
		for _, cores := range []int{1, 2} {
			b.Run(fmt.Sprintf("d%d/cores%d", size.inputs, cores), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				e := Default()
				e.Agents, e.Participants.Count, e.StepSize.Constant, e.Data.Inputs = agents, agents, 1e-5, size.inputs
				f := newRun[float64](b, e, cores)
				there := numpyRounds(b, python, agents, size.inputs, cores)
				there(1)
				var own, other [2][]float64
				i := 0
				for turn := range max(b.N, 5) {
					a := measured(b, func() {
						for range size.rounds {
							i++
							if err := f.step(i); err != nil {
								b.Fatal(err)
							}
						}
					})
					n := there(size.rounds)
					if turn > 0 { // the first turn is a warm-up
						own[0], own[1] = append(own[0], a.wall), append(own[1], a.processor)
						other[0], other[1] = append(other[0], n.wall), append(other[1], n.processor)
					}
				}
				b.ReportMetric(median(other[0])/median(own[0]), "x_numpy")
				b.ReportMetric(median(other[1])/median(own[1]), "x_numpy_cpu")
				b.ReportMetric(float64(size.rounds)/median(own[0]), "rounds/s")
				b.ReportMetric(1e6*median(own[1])/float64(size.rounds), "µs_cpu/round")
			})
		}
	}
}
