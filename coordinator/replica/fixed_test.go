package replica

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/observe"
)

// wantPieces checks that the store contains all pieces to which the cluster state (head) refers.
func (p *plant) wantPieces() {
	value, _, err := p.engine.get(headKey)
	if err != nil {
		p.t.Error(err)
		return
	}
	h, err := decodeClusterState(value)
	if err != nil {
		p.t.Error(err)
		return
	}
	var list []byte
	for _, s := range h.FileListPieces {
		piece, _, err := p.engine.get(s.storeKey())
		if err != nil {
			p.t.Error(err)
		}
		list = append(list, piece...)
	}
	files, err := decodeFileList(list)
	if err != nil {
		p.t.Error(err)
	}
	for _, s := range allPieceHashes(files, nil) {
		if piece, _, err := p.engine.get(s.storeKey()); err != nil || verifyPiece(s, piece) != nil {
			p.t.Errorf("the head names a piece that is not there: %v", err)
		}
	}
}

// calmPlant returns a simulated cluster without faults.
func calmPlant(t *testing.T, n int) *plant {
	p := newPlant(t, n, 1)
	for _, m := range p.machines {
		m.calm = true
	}
	return p
}

// TestFolder checks that after a leader has given up leadership, the next leader has an identical folder, except for
// files that are not replicated.
func TestFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 2)
		put := func(i int, name string, content []byte) {
			path := filepath.Join(p.dirs[i], filepath.FromSlash(name))
			err := os.MkdirAll(filepath.Dir(path), 0o700)
			if err = errors.Join(err, os.WriteFile(path, content, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		want := map[string][]byte{"run.a": []byte("1"), "empty": {},
			"history.jsonl":  bytes.Repeat([]byte("line\n"), 1e5),
			"models/7/model": bytes.Repeat([]byte{7}, pieceSize), "audit/1": []byte("x")}
		for name, content := range want {
			put(0, name, content)
		}
		put(0, "spool/1/update", []byte("of this machine"))
		put(1, "run.a", []byte("of another run"))
		put(1, "models/9/old", []byte("of another run"))
		first, err := p.replica(0, 1).AwaitLeadership(t.Context())
		if err != nil || first.Epoch() != 1 {
			t.Fatalf("%v, epoch %d", err, first.Epoch())
		}
		put(0, "run.a", []byte("2"))
		want["run.a"] = []byte("2")
		if err := first.CommitFolderWrite(t.Context(), 5, unchanged); err != nil {
			t.Fatal(err)
		}
		if err := first.StepDown(t.Context(), errTest); err != nil || first.MayPublish() {
			t.Fatalf("%v, or it leads yet", err)
		}
		began := time.Now()
		second, err := p.replica(1, 2).AwaitLeadership(t.Context())
		if err != nil || second.Epoch() != 6 || time.Since(began) > time.Second {
			t.Fatalf("%v, epoch %d, after %v", err, second.Epoch(), time.Since(began))
		}
		for name, content := range want {
			is, err := os.ReadFile(filepath.Join(p.dirs[1], filepath.FromSlash(name)))
			if err != nil || !bytes.Equal(is, content) {
				t.Errorf("%s: %v, or %d bytes differ", name, err, len(is))
			}
		}
		for _, name := range []string{"models/9/old", "spool/1/update"} {
			if _, err := os.Stat(filepath.Join(p.dirs[1], filepath.FromSlash(name))); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is there: %v", name, err)
			}
		}
		if err := first.CommitFolderWrite(t.Context(), 0, unchanged); !errors.Is(err, ErrLost) {
			t.Errorf("the first one has committed: %v", err)
		}
		if err := second.StepDown(t.Context(), errTest); err != nil {
			t.Error(err)
		}
	})
}

// TestPieces checks that pieces without references are removed from the store, even if an earlier leader stopped before
// removing them.
func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 1)
		lead, err := p.replica(0, 1).AwaitLeadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if !p.commit(t.Context(), 0, lead) {
				t.Fatal("not committed")
			}
		}
		if _, err := p.engine.put(PieceHash{1}.storeKey(), []byte("left behind"), 0); err != nil {
			t.Fatal(err)
		}
		if err := lead.StepDown(t.Context(), errTest); err != nil {
			t.Fatal(err)
		}
		if lead, err = p.replica(0, 2).AwaitLeadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		p.wantPieces()
		named := len(lead.referencedPieces)
		if keys := len(p.engine.values) - 1; keys != named {
			t.Errorf("%d pieces are there, %d are named", keys, named)
		}
		if err := lead.StepDown(t.Context(), errTest); err != nil {
			t.Error(err)
		}
	})
}

// TestDamage checks that a replica reports an error and does not lead if the stored folder is damaged.
func TestDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 2)
		lead, err := p.replica(0, 1).AwaitLeadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.commit(t.Context(), 0, lead)
		if err := lead.StepDown(t.Context(), errTest); err != nil {
			t.Fatal(err)
		}
		for key, v := range p.engine.values {
			if key != headKey {
				v.bytes[0] ^= 1
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		said := &events{}
		r := p.replica(1, 2)
		r.cfg.Observer = said
		if _, err := r.AwaitLeadership(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if !said.failing {
			t.Error("it has not said so")
		}
	})
}

type events struct{ failing bool }

func (f *events) Observe(x observe.Event) {
	if _, is := x.(StoreFailing); is {
		f.failing = true
	}
}

// TestAnswerLost checks that a leader recognises its own write of the cluster state if the answer to the write was
// lost, and continues to lead.
func TestAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 1)
		s := &deaf{machine: p.machines[0]}
		r := p.replica(0, 1)
		r.cfg.Store = s
		lead, err := r.AwaitLeadership(t.Context())
		if err != nil || s.lost != 1 || lead.Epoch() != 2 { // epoch 2, because the replica took over from itself
			t.Fatalf("%v, %d answers lost, epoch %d", err, s.lost, lead.Epoch())
		}
		for range 5 {
			before := s.lost
			if s.next = true; !p.commit(t.Context(), 0, lead) || s.lost == before {
				t.Fatal("not committed, or no answer was lost")
			}
		}
		if err := lead.StepDown(t.Context(), errTest); err != nil {
			t.Error(err)
		}
	})
}

// deaf is a store that loses the answer to the first write of the cluster state, and to later writes on request.
type deaf struct {
	*machine
	next  bool
	lost  int
	heard func() // called when an answer is lost; may be nil
}

func (d *deaf) Put(ctx context.Context, key string, b []byte, revision uint64) (uint64, error) {
	now, err := d.machine.Put(ctx, key, b, revision)
	if key == headKey && err == nil && (d.next || d.lost == 0) {
		d.next = false
		d.lost++
		if d.heard != nil {
			d.heard()
		}
		return 0, errCut
	}
	return now, err
}

func unchanged() error { return nil }

var errTest = errors.New("the test is over")

// TestTakeCutShort checks that if a replica is stopped while it restores the folder, the incomplete folder is not
// committed, not even when the replica gives up leadership.
func TestTakeCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 3)
		first, err := p.replica(0, 1).AwaitLeadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 4 { // the fourth file is stored in pieces
			p.commit(t.Context(), 0, first)
		}
		if err := first.StepDown(t.Context(), errTest); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := p.replica(1, 2)
		slow := &slowPieces{machine: p.machines[1]}
		r.cfg.Store = slow
		go func() {
			<-time.After(30*time.Second +
				storeRetryDelay/2) // the leader renews its lease and then waits before its next attempt
			slow.ends.Store(true)
			cancel()
		}()
		if _, err := r.AwaitLeadership(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		third, err := p.replica(2, 3).AwaitLeadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := p.number(2); n != 4 {
			t.Errorf("the third one finds %d, want 4", n)
		}
		if err := third.StepDown(t.Context(), errTest); err != nil {
			t.Error(err)
		}
	})
}

// slowPieces is a store that returns the list of files but no pieces of files.
type slowPieces struct {
	*machine
	given int
	ends  atomic.Bool
}

func (s *slowPieces) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	if _, is := pieceHashFromKey(key); is && !s.ends.Load() {
		if s.given++; s.given > 1 {
			return nil, 0, errCut
		}
	}
	return s.machine.Get(ctx, key)
}

// TestUnknownCommit checks that leadership is not lost if a commit is cancelled while its result is unknown.
func TestUnknownCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 2)
		r := p.replica(0, 1)
		d := &deaf{machine: p.machines[0], lost: 1}
		r.cfg.Store = d
		lead, err := r.AwaitLeadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.commit(t.Context(), 0, lead)
		ctx, cancel := context.WithCancel(t.Context())
		d.next, d.heard = true, cancel
		if err := lead.CommitFolderWrite(ctx, 0, func() error { return p.write(0, 2) }); !errors.Is(err,
			context.Canceled) {
			t.Errorf("error %v", err)
		}
		<-time.After(TTL)
		if !lead.MayPublish() || !p.commit(t.Context(), 0, lead) {
			t.Error("the lead is lost")
		}
		if err := lead.StepDown(t.Context(), errTest); err != nil {
			t.Fatal(err)
		}
		second, err := p.replica(1, 2).AwaitLeadership(t.Context())
		if err != nil || p.number(1) != 3 {
			t.Errorf("%v; the second one finds %d, want 3", err, p.number(1))
		}
		if err := second.StepDown(t.Context(), errTest); err != nil {
			t.Error(err)
		}
	})
}

// TestQuiet checks that a leader stops publishing to devices before it writes the cluster state that gives up
// leadership.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := calmPlant(t, 1)
		w := &watched{machine: p.machines[0]}
		r := p.replica(0, 1)
		r.cfg.Store = w
		lead, err := r.AwaitLeadership(t.Context())
		if err != nil || !lead.MayPublish() {
			t.Fatalf("%v, or it does not lead", err)
		}
		w.put = func(h *ClusterState) {
			if h.Leader == "" && lead.MayPublish() {
				t.Error("it would speak, and another one may lead")
			}
			w.gone = w.gone || h.Leader == ""
		}
		if err := lead.StepDown(t.Context(), errTest); err != nil || !w.gone {
			t.Errorf("%v, or no head was put that gives the lead away", err)
		}
	})
}

// watched is a store that calls the function put before each write of the cluster state.
type watched struct {
	*machine
	put  func(*ClusterState)
	gone bool
}

func (w *watched) Put(ctx context.Context, key string, b []byte, revision uint64) (uint64, error) {
	if h, err := decodeClusterState(b); key == headKey && err == nil && w.put != nil {
		w.put(h)
	}
	return w.machine.Put(ctx, key, b, revision)
}
