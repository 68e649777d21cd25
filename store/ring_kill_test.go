package store

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ringEnv is the environment variable with the folder of a ring that a test process fills until it is killed.
const ringEnv = "FEDMESH_TEST_RING"

// fillIfAsked fills a ring until the process is killed, if ringEnv is set. It prints the last entry number of each
// acknowledged batch.
func fillIfAsked() {
	dir := os.Getenv(ringEnv)
	if dir == "" {
		return
	}
	r, found, err := LocalDisk.OpenRing(dir, killedRing)
	if err == nil && found.SetAsideErrors != nil {
		err = fmt.Errorf("found %+v", found)
	}
	for i := 0; err == nil; i++ {
		if err = r.Append(numbered(r.NextEntryNumber(), 1+i%7)); err == nil {
			_, err = fmt.Println(r.NextEntryNumber() - 1)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// killedRing has small limits, so that segments are removed often.
var killedRing = RingLimits{MaxBytes: MinRingBytes, MaxEntries: 2000}

// TestRingKilled repeatedly kills a process that fills a ring, at 50 different moments. No acknowledged entry may be
// lost, no entry may be stored twice, and no segment may be renamed.
func TestRingKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := filepath.Join(t.TempDir(), "ring")
	rnd := rand.New(rand.NewPCG(5, 6))
	acknowledged, begun := uint64(0), uint64(0)
	for point := range 50 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), ringEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines, left := bufio.NewScanner(out), 1+rnd.IntN(200)
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &acknowledged); err != nil {
				t.Fatal(err)
			}
			if left--; left == 0 { // entries that are acknowledged before the process exits are read as well
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || acknowledged == begun {
			t.Fatalf("the process ended with %v at entry %d", err, acknowledged)
		}
		begun = acknowledged
		r, found := mustOpenRing(t, LocalDisk, dir, killedRing)
		got, _, err := readNumbers(t, r, RingPosition{})
		if last := r.NextEntryNumber() - 1; err != nil || found.SetAsideErrors != nil || last < acknowledged ||
			last > acknowledged+7 ||
			len(got) == 0 || got[len(got)-1] != last || last-got[0] != uint64(len(got))-1 ||
			len(got) < min(int(last), killedRing.MaxEntries*segmentsPerFullRing/(segmentsPerFullRing+2)) {
			t.Fatalf("point %d: %d is acknowledged, %d entries up to %d are read, %v; found %+v", point, acknowledged,
				len(got), last, err, found)
		}
		mustCloseRing(t, r)
	}
}
