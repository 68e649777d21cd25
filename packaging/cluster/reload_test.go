package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fedmesh/fedmesh/coordinator/replica"
)

// TestAccountComesLater runs a coordinator for which the servers have no account. The coordinator must connect after
// the account has been added and the servers have reloaded their configuration.
func TestAccountComesLater(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	thrice, closed := make(chan struct{}), make(chan struct{})
	s := p.store(t, p.as(p.authority.Issue(t, "plant_9-coordinator")),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		// called after all servers have rejected the client
		nats.CustomReconnectDelay(func(attempts int) time.Duration {
			if attempts == 3 {
				close(thrice)
			}
			return 100 * time.Millisecond
		}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-thrice:
	case <-closed:
		t.Fatal("it has given up")
	case <-ctx.Done():
		t.Fatal("it does not try again")
	}
	if _, _, err := s.Get(ctx, "head"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("it does not say why it cannot read: %v", err)
	}
	for _, node := range p.Nodes {
		text, err := os.ReadFile(filepath.Join(node.Dir, "nats.conf"))
		if err != nil {
			t.Fatal(err)
		}
		node.Write(t, "nats.conf", []byte(strings.Replace(string(text), `"CN=plant_7-`, `"CN=plant_9-`, 1)))
		node.Signal(t, syscall.SIGHUP)
	}
	for {
		_, _, err := s.Get(ctx, "head")
		if errors.Is(err, replica.ErrNone) {
			return
		}
		if ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
			t.Fatal(err)
		}
	}
}
