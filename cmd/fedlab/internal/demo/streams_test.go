package demo

import (
	"math"
	"testing"
	"time"
)

// TestRunStreams is what `make demo-streams` promises: from raw readings the federation is as good as with rows that
// were made beforehand.
func TestRunStreams(t *testing.T) {
	t.Parallel() // it waits for its stations, and for the agents' disks
	o := Defaults()
	o.Streams = true
	r, _ := runJSON(t, o)
	if want := promised(t, "federated: 50 rounds"); !(math.Abs(r.Federated-want) <= 0.01) {
		t.Errorf("R² %.4f; the rows of the other demo give %.3f", r.Federated, want)
	}
}

// The stations' raw hours make the rows that the demo of streams waits for, of its own quarter each.
func TestStreams(t *testing.T) {
	streams, err := readStreams()
	if err != nil {
		t.Fatal(err)
	}
	f, err := writeStreams(t.TempDir(), streams)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.stations) != stations || len(f.features) != 34 {
		t.Errorf("%d stations, features %q", len(f.stations), f.features)
	}
	for i, s := range streams {
		n := len(s.train)
		if long := s.train[n-1].at.Sub(s.train[0].at); long != time.Duration(n-1)*time.Hour || n > 100*24 ||
			!s.train[n-1].at.Before(heldFrom.Add(4*time.Hour)) || f.rows[i] < 800 || f.rows[i] > n-30 {
			t.Errorf("%s: %d hours in %v make %d rows", s.station, n, long, f.rows[i])
		}
	}
	b, err := baselines(f)
	if err != nil {
		t.Fatal(err)
	}
	if b.Central < 0.63 || b.Central > 0.65 || b.Persistence < 0.5 {
		t.Errorf("baselines %+v", b)
	}
}
