package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// open opens a store on the given servers.
func open(t testing.TB, n *brokers.NATS, bucket string) *KeyValueStore {
	t.Helper()
	var urls []string
	for _, node := range n.Nodes {
		urls = append(urls, "nats://"+node.Client)
	}
	s, err := Open(Options{URLs: urls, Bucket: bucket, StreamReplicas: len(n.Nodes),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// patience is the maximum time that the tests wait for a server to start.
const patience = 2 * time.Minute

// TestStore checks that the store satisfies the contract of replica.KeyValueStore on one server.
func TestStore(t *testing.T) {
	n := brokers.NewNATS(t, 1, 0, "")
	n.Start(t)
	s := open(t, n, "store")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, replica.ErrNone) {
		t.Errorf("get of nothing: %v", err)
	}
	large := bytes.Repeat([]byte{1}, replica.MaxValue)
	first, err := s.Put(ctx, "a", large, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, "a", []byte("x"), 0); !errors.Is(err, replica.ErrConflict) {
		t.Errorf("put where a value is: %v", err)
	}
	second, err := s.Put(ctx, "a", []byte("2"), first)
	if err != nil || second <= first {
		t.Errorf("put: %v, revision %d after %d", err, second, first)
	}
	if _, err := s.Put(ctx, "a", []byte("3"), first); !errors.Is(err, replica.ErrConflict) {
		t.Errorf("put in the place of an old value: %v", err)
	}
	if value, revision, err := s.Get(ctx, "a"); err != nil || string(value) != "2" || revision != second {
		t.Errorf("get: %q, %d, %v", value, revision, err)
	}
	if _, err := s.Put(ctx, "piece.b", nil, 0); err != nil {
		t.Error(err)
	}
	keys, err := s.Keys(ctx)
	if err != nil || len(keys) != 2 || !slices.Contains(keys, "a") || !slices.Contains(keys, "piece.b") {
		t.Errorf("keys: %q, %v", keys, err)
	}
	for range 2 { // the second time, the key has no value
		if err := s.Remove(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := s.Get(ctx, "a"); !errors.Is(err, replica.ErrNone) {
		t.Errorf("get of what is removed: %v", err)
	}
	if _, err := s.Put(ctx, "a", []byte("4"), 0); err != nil {
		t.Errorf("put after the removal: %v", err)
	}
	n.Nodes[0].Kill()
	short, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if _, err := s.Put(short, "a", []byte("5"), 0); err == nil || errors.Is(err, replica.ErrConflict) {
		t.Errorf("put without a server: %v", err)
	}
	n.Start(t)
	testkit.Until(t, "the value is there after the restart", func() bool {
		value, _, err := s.Get(ctx, "a")
		return err == nil && string(value) == "4"
	})
}

var errTest = errors.New("the test is over")

// leads records whether leadership was lost.
type leads struct {
	mu   sync.Mutex
	lost bool
}

// over reports whether leadership was lost since the last call.
func (l *leads) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = false
	return lost
}

func (l *leads) Observe(f observe.Event) {
	if _, is := f.(replica.LeadershipLost); is {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = true
	}
}

// TestNodes kills each of three servers in turn while a leader commits. The leader must keep its leadership or regain
// it, and the next leader must find all commits.
func TestNodes(t *testing.T) {
	n := brokers.NewNATS(t, 3, 0, "")
	n.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	heard := &leads{}
	make := func(name string) (*replica.Replica, string) {
		dir := t.TempDir()
		return replica.New(replica.Config{Store: open(t, n, "nodes"), Name: name, Instance: rand.Uint64(),
			Runtime: host.RealTimeRuntime{}, Observer: heard, Folder: replica.ReplicatedFolder{Disk: store.LocalDisk,
				Dir:          dir,
				IsReplicated: func(string) bool { return true }}}), dir
	}
	first, dir := make("first")
	lead, err := first.AwaitLeadership(ctx)
	if err != nil {
		t.Fatal(err)
	}
	number, committed := 0, 0
	commit := func() {
		if heard.over() {
			t.Log("the lead is lost, and taken again")
			if lead, err = first.AwaitLeadership(ctx); err != nil {
				t.Fatal(err)
			}
		}
		number++
		content := append(bytes.Repeat([]byte{byte(number)}, 300_000), fmt.Sprint(number)...)
		err := lead.CommitFolderWrite(ctx, 0, func() error {
			return os.WriteFile(filepath.Join(dir, "number"), content, 0o600)
		})
		if err != nil && !errors.Is(err, replica.ErrLost) {
			t.Fatalf("commit %d: %v", number, err)
		}
		if err == nil {
			committed = number
		}
	}
	for i, node := range n.Nodes {
		commit()
		node.Kill()
		for range 10 {
			commit()
		}
		node.Rejoin(t)
		t.Logf("server %d was killed; %d are committed", i+1, committed)
	}
	for commit(); committed != number; commit() {
	}
	if err := lead.StepDown(ctx, errTest); err != nil {
		t.Fatal(err)
	}
	second, there := make("second")
	if lead, err = second.AwaitLeadership(ctx); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(there, "number"))
	if err != nil || !bytes.HasSuffix(content, fmt.Append(nil, number)) {
		t.Errorf("the second one finds %d bytes, %v", len(content), err)
	}
	if err := lead.StepDown(ctx, errTest); err != nil {
		t.Error(err)
	}
}
