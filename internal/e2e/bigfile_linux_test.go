package e2e

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/lab/launch"
)

// bigFile is an agent whose data file is larger than its memory limit.
type bigFile struct {
	megabytes int64
	zipped    bool
	inputs    bool // true if the file contains sensor readings, from which the agent makes rows
	// start starts a command with an optional memory limit, and end checks its memory usage.
	start func(cmd *exec.Cmd)
	end   func()
}

const bigColumns = 16

// learn runs an agent until the rounds are finished. It returns the agent's peak anonymous memory, which excludes
// cached files.
func (b *bigFile) learn(t *testing.T) (anonymous float64) {
	t.Helper()
	f := newFederation(t, brokers.OpenMosquitto(t))
	name := "one.csv"
	if b.zipped {
		name += ".gz"
	}
	line := f.AddAgent(t, "one", "")
	text, err := os.ReadFile(f.Path("one.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write(t, "one.yaml", strings.Replace(string(text), "data: {csv: "+f.Path("one.csv")+"}",
		"data: {csv: "+f.Path(name)+", time: t}\nevaluation: {held_out: 0.2}", 1))
	rows := b.write(t, f.Path(name))
	f.ConfigureCoordinator(t, b.task(), line, `{participants: 1, quorum: 1, rounds: 20, deadline: 20m, `+
		`gather: {target: 1, minimum: 1, within: 20m, spread: 10ms}}`)
	agent := exec.Command(filepath.Join(string(programs), "agentd"), "run", "--config", f.Path("one.yaml"))
	b.start(agent)
	p := testkit.Start(t, agent)
	lead := f.Daemon(t, "coordinator", "coordinator")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-p.Ended:
				return
			case <-time.After(20 * time.Millisecond):
				anonymous = max(anonymous, float64(launch.Memory(agent.Process.Pid, "status", "RssAnon")))
			}
		}
	}()
	p.AwaitFor(t, 20*time.Minute, "local data fit the task")
	lead.AwaitFor(t, 20*time.Minute, "run finished version=20")
	p.Stop(t, syscall.SIGTERM, 0)
	b.tell(t, rows, p.Log())
	b.end()
	<-done
	lead.Stop(t, syscall.SIGTERM, 0)
	return anonymous
}

func (b *bigFile) task() string {
	var names []string
	for i := range bigColumns {
		names = append(names, fmt.Sprintf("x%d", i))
	}
	inputs, target := "", "y"
	if b.inputs {
		inputs, target = "grid: {step: 1s}, inputs: [", "y in 2s"
		for _, name := range append(slices.Clone(names), "y") {
			inputs += "{name: " + name + "}, "
		}
		inputs = strings.TrimSuffix(inputs, ", ") + "], "
	}
	return fmt.Sprintf("{name: big, %sfeatures: [%s], target: %s, batch_size: 32, standardize: true, "+
		"steps: {budget: 100ms, max: 200}}", inputs, strings.Join(names, ", "), target)
}

// write creates the data file and returns the number of rows in it.
func (b *bigFile) write(t *testing.T, path string) (rows int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var to io.Writer = f
	var z *gzip.Writer
	if b.zipped {
		z, _ = gzip.NewWriterLevel(f, gzip.BestSpeed) // NewWriterLevel fails only for an invalid level
		to = z
	}
	w := bufio.NewWriterSize(to, 1<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	text := []byte("t")
	for i := range bigColumns {
		text = fmt.Appendf(text, ",x%d", i)
	}
	text = append(text, ",y\n"...)
	for n := int64(0); n < b.megabytes<<20; rows++ {
		written, err := w.Write(text)
		if n += int64(written); err != nil {
			t.Fatal(err)
		}
		text = strconv.AppendInt(text[:0], int64(rows), 10)
		y := 0.1 * rng.NormFloat64()
		for i := range bigColumns {
			x := rng.NormFloat64()
			y += x * float64(i-5) / 10
			text = strconv.AppendFloat(append(text, ','), x, 'f', 4, 64)
		}
		text = append(strconv.AppendFloat(append(text, ','), y, 'f', 4, 64), '\n')
	}
	err = w.Flush()
	if z != nil {
		err = errors.Join(err, z.Close())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return rows - 1
}

var (
	fitTook     = regexp.MustCompile(` local data fit the task .* took=(\S+)`)
	trainedTook = regexp.MustCompile(` local training finished .* took=(\S+)`)
)

// tell logs how long each phase of the agent's work took.
func (b *bigFile) tell(t *testing.T, rows int, log string) {
	t.Helper()
	durations := func(of *regexp.Regexp) (all []time.Duration) {
		for _, m := range of.FindAllStringSubmatch(log, -1) {
			d, err := time.ParseDuration(m[1])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		return all
	}
	fit, trained := durations(fitTook), durations(trainedTook)
	if len(fit) != 2 || len(trained) < 10 {
		t.Fatalf("the data were read %d times, and %d rounds trained:\n%s", len(fit), len(trained), log)
	}
	sorted := slices.Sorted(slices.Values(trained))
	t.Logf("%d MB of text, compressed %t, readings %t: %d rows are read in %v, and standardised in %v; "+
		"a round's local work takes %v the first time, then %v (median of the first %d)", b.megabytes, b.zipped,
		b.inputs, rows, fit[0], fit[1], trained[0], sorted[len(sorted)/2], len(sorted))
}

// TestLargeFile checks that an agent trains on a file that does not fit into memory, and keeps only a small part of it
// in memory.
func TestLargeFile(t *testing.T) {
	for _, b := range []bigFile{{megabytes: 30}, {megabytes: 30, zipped: true, inputs: true}} {
		b.start = func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "GOMEMLIMIT=20MiB") }
		b.end = func() {}
		if most := b.learn(t); most > 30e6 {
			t.Errorf("%+v: %.1f MB of memory", b, most/1e6)
		} else {
			t.Logf("%.1f MB of memory", most/1e6)
		}
	}
}
