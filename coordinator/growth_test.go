package coordinator_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// grown is a data file that grows. Each call appends a complete row and the first half of the next row.
type grown struct {
	path string
	rest []string
}

func (g *grown) grow(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(g.path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		half := len(g.rest[1]) / 2
		_, err = f.WriteString(g.rest[0] + "\n" + g.rest[1][:half])
		g.rest = append([]string{g.rest[1][half:]}, g.rest[2:]...)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestGrowingFiles checks that agents whose data files grow train on the new rows and never send an update that is
// refused. The agents' weights depend on their row counts, and some hellos are lost.
func TestGrowingFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 4))
		f := newFederation(t, 3, memory.Options{Drop: func(string) bool { return rng.Float64() < 0.1 }})
		f.cfg.Round.MaxAggregations = 40
		var files []*grown
		for i, a := range f.agents {
			lines := strings.Split(string(rowsOf(uint64(i), 5000)), "\n")
			g := &grown{path: filepath.Join(t.TempDir(), "rows.csv"), rest: lines[21:]}
			if err := os.WriteFile(g.path, []byte(strings.Join(lines[:21], "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			a.file, files = data.Config{CSVPath: g.path}, append(files, g)
		}
		s := newStranger(f)
		f.start()
		for len(events[round.RunFinished](f)) == 0 {
			wait(500 * time.Millisecond)
			for _, g := range files {
				g.grow(t)
			}
			s.listen()
		}
		for _, u := range events[round.UpdateRefused](f) {
			if u.Reason == wire.RefuseMalformed {
				t.Errorf("refused: %+v", u)
			}
		}
		rows := map[wire.AgentID][]uint64{} // row counts in the updates of each agent
		for _, m := range s.heard {
			if e, err := f.reveal(m); err == nil && e.Type == wire.TypeUpdate {
				if u, err := wire.DecodeUpdate(e.Body); err == nil {
					rows[e.Sender] = append(rows[e.Sender], u.Samples)
				}
			}
		}
		if len(rows) != 3 {
			t.Errorf("updates of %d agents", len(rows))
		}
		for id, n := range rows {
			first, last := n[0], n[len(n)-1]
			t.Logf("%s: from %d to %d rows", id, first, last)
			if last < first+100 {
				t.Errorf("%s: the first update is of %d rows, the last of %d, want 100 more", id, first, last)
			}
		}
	})
}
