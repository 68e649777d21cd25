package acltest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// Attempt tries once to connect to the broker. If the connection fails, Attempt returns the logged error message and a
// nil session.
func Attempt(t *testing.T, o mqtt.Options) (failure string, s *mqtt.Session) {
	t.Helper()
	failures := make(chan string, 100)
	o.Logger = slog.New(warnings{slog.DiscardHandler, failures})
	s, err := mqtt.Dial(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-s.Events():
		if e == (mqtt.LinkUp{}) {
			return "", s
		}
		t.Fatalf("the first event is %#v", e)
	case failure = <-failures:
	case <-time.After(mqtttest.Patience):
		t.Fatal("the attempt to connect takes too long")
	}
	_ = s.Close()
	return failure, nil
}

// warnings is a log handler that sends each message of level Warn or above to a channel.
type warnings struct {
	slog.Handler
	to chan<- string
}

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	select {
	case w.to <- r.Message:
	default: // The channel is full: discard the message.
	}
	return nil
}
