package world_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/world"
)

var (
	seeds = flag.Int("seeds", plans, "how many plans are drawn and run")
	first = flag.Uint64("first", 0, "the seed of the first of them")
	show  = flag.Bool("show", false, "write the transcript of the first of them, and run no other")

	update = flag.Bool("update", false, "rewrite testdata/digests, with -seeds 1000")
)

// digestFile contains the digests of the first 1,000 plans, one per line. The digests are the same on all processors. A
// refactoring must not change them. A commit that changes the behaviour also changes the digests, and must name the
// reason.
const digestFile = "testdata/digests"

func readDigests(t *testing.T) []string {
	t.Helper()
	if *update {
		return nil
	}
	text, err := os.ReadFile(digestFile)
	if err != nil {
		t.Fatal(err)
	}
	digests := strings.Fields(string(text))
	if len(digests) != 1000 {
		t.Fatalf("%s has %d digests, want 1000", digestFile, len(digests))
	}
	return digests
}

// TestReplay checks that two runs of the same plan have identical transcripts.
func TestReplay(t *testing.T) {
	seeds := uint64(10)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		var one, two bytes.Buffer
		p := world.NewPlan(seed)
		a, b := world.Run(p, world.Bugs{}, &one), world.Run(p, world.Bugs{}, &two)
		if reflect.DeepEqual(a, b) && bytes.Equal(one.Bytes(), two.Bytes()) {
			continue
		}
		x, y := bytes.Split(one.Bytes(), []byte("\n")), bytes.Split(two.Bytes(), []byte("\n"))
		i := 0
		for i < min(len(x), len(y))-1 && bytes.Equal(x[i], y[i]) {
			i++
		}
		t.Errorf("seed %d: %+v and %+v; they part in line %d:\n%s\n%s", seed, a, b, i+1, x[i], y[i])
	}
}

// TestSeeds runs plans in parallel and compares their digests with the committed digests. If a plan fails, TestSeeds
// reduces the plan with Shrink and prints it as a test case.
func TestSeeds(t *testing.T) {
	if *show {
		p := world.NewPlan(*first)
		t.Logf("%s\n%+v", p.Script(), world.Run(p, world.Bugs{}, t.Output()))
		return
	}
	seeds := *seeds
	if testing.Short() {
		seeds = min(seeds, 10)
	}
	digests, computed := readDigests(t), make([]string, seeds)
	var mu sync.Mutex
	var total world.Result
	next, failed, began := *first, 0, time.Now()
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), seeds) {
		workers.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				mu.Unlock()
				if seed >= *first+uint64(seeds) {
					return
				}
				p := world.NewPlan(seed)
				r := world.Run(p, world.Bugs{}, nil)
				mu.Lock()
				total.Took += r.Took
				total.Events += r.Events
				total.Rounds += r.Rounds
				total.Messages += r.Messages
				total.Balanced += r.Balanced
				total.Drawn += r.Drawn
				total.Folded += r.Folded
				total.LeftOut += r.LeftOut
				total.Clipped += r.Clipped
				total.Refreshed += r.Refreshed
				total.Residuals += r.Residuals
				total.Evaluated += r.Evaluated
				total.Commits += r.Commits
				total.Signed += r.Signed
				total.Verified += r.Verified
				if r.Failure != "" {
					failed++
				}
				few := failed <= 5
				mu.Unlock()
				computed[seed-*first] = r.Digest
				if seed < uint64(len(digests)) && r.Digest != digests[seed] {
					t.Errorf("seed %d: digest %s, want %s: the parties send other messages, or at other times", seed,
						r.Digest, digests[seed])
				}
				if r.Failure != "" {
					t.Errorf("seed %d: %s", seed, r.Failure)
				}
				if r.Failure != "" && few {
					t.Log(world.Shrink(p, world.Bugs{}).Script())
				}
			}
		})
	}
	workers.Wait()
	if *update {
		if err := os.WriteFile(digestFile, []byte(strings.Join(computed, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	real := time.Since(began)
	fmt.Printf("%d plans, %d failed: %d rounds, %d draws and %d folds made again, %d updates refused above, %d "+
		"clipped, %d models standardised again, %d residuals, %d evaluations, %d journals on several machines, "+
		"%d blocks, %d messages, %d events; "+
		"%d signatures made and %d verified; %.0f hours of virtual time in %s, %.0f times as fast\n",
		seeds, failed, total.Rounds, total.Drawn, total.Folded, total.LeftOut, total.Clipped, total.Refreshed,
		total.Residuals, total.Evaluated, total.Commits, total.Balanced, total.Messages, total.Events, total.Signed,
		total.Verified,
		total.Took.Hours(), real.Round(time.Millisecond), total.Took.Seconds()/real.Seconds())
}
