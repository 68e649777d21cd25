package datacheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/cmd/internal/logging"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// patience is how long the broker may take to answer.
const patience = 5 * time.Second

// mostTask bounds a task that is fetched, in bytes.
const mostTask = 4 << 20

// Announced returns the task that the coordinator announces, as the broker retains it. The session has a client id of
// its own, so that the agent may run; the user is the agent's, so that the broker's rules let it read.
func Announced(ctx context.Context, s *settings.Agent) (*Task, error) {
	key, err := keys.Parse(s.Identity.CoordinatorKey)
	if err != nil {
		return nil, fmt.Errorf("identity.coordinator_key: %w", err)
	}
	topics, err := mqtt.NewTopics(s.Broker.Prefix, s.Federation)
	if err != nil {
		return nil, err
	}
	o, _, err := s.Uplink().Session(topics.ClientID(wire.AgentID(s.ID)))
	if err != nil {
		return nil, err
	}
	if o.ClientID == "" {
		return nil, fmt.Errorf("id: %q is none of an agent", s.ID)
	}
	o.ClientID += "-check"
	warning := new(logging.Last)
	o.Logger, o.MaxReconnectDelay = slog.New(warning), time.Second
	conn, err := mqtt.Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f := &fetch{conn: conn, topics: topics, open: func(p []byte) (wire.Announcement, error) {
		e, err := wire.Open(p)
		if err == nil && (e.Federation != wire.Federation(s.Federation) || e.Sender != wire.CoordinatorID) {
			err = fmt.Errorf("it is of %s in the federation %s", e.Sender, e.Federation)
		}
		if err == nil {
			err = e.Verify(key)
		}
		if err != nil {
			return wire.Announcement{}, fmt.Errorf("the announcement on %s: %w: is identity.coordinator_key the "+
				"coordinator's?", topics.Round(), err)
		}
		return wire.DecodeAnnouncement(e.Body)
	}, key: func(group uint64) (wire.SealKey, error) { return agent.GroupKey(store.Machine, s.StateDir, group) }}
	blob, err := f.run(ctx)
	if errors.Is(err, errNoLink) {
		err = fmt.Errorf("the broker %s cannot be asked: %s", o.URL, warning.Text("no answer"))
	}
	if err != nil {
		return nil, err
	}
	t, err := wire.DecodeTask(blob)
	return &Task{t, "the broker " + o.URL}, err
}

var errNoLink = errors.New("no link")

// fetch reads the retained announcement, and the task that it names.
type fetch struct {
	conn   mqtt.Conn
	topics mqtt.Topics
	open   func(p []byte) (wire.Announcement, error)
	key    func(group uint64) (wire.SealKey, error)
	up     bool
	puller *transfer.Puller // nil before the announcement has come
	hash   string
	blob   []byte
}

// run returns the task's bytes.
func (f *fetch) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	f.conn.Subscribe(mqtt.AtMostOnce, f.topics.Round())
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for f.blob == nil {
		var err error
		select {
		case <-ctx.Done():
			err = fmt.Errorf("the task has not come within %v: %w", 4*patience, ctx.Err())
		case e := <-f.conn.Events():
			if _, up := e.(mqtt.Up); up {
				f.up = true
				timer.Reset(patience)
			}
			err = f.hear(e)
		case <-timer.C:
			switch {
			case !f.up:
				err = errNoLink
			case f.puller == nil:
				err = fmt.Errorf("nothing is retained on %s: no coordinator has announced a task, or the broker "+
					"withholds it", f.topics.Round())
			default:
				err = f.step(transfer.Tick{})
			}
		}
		if err != nil {
			return nil, err
		}
		if f.puller != nil {
			if at, due := f.puller.Deadline(); due {
				timer.Reset(time.Until(at))
			}
		}
	}
	return f.blob, nil
}

// hear takes an event of the connection.
func (f *fetch) hear(e mqtt.Event) error {
	switch e := e.(type) {
	case mqtt.SubscribeRefused:
		return fmt.Errorf("the broker refuses the topic %s", e.Filter)
	case mqtt.Received:
		kind, _, id, part, _ := f.topics.Parse(e.Topic)
		switch {
		case kind == mqtt.KindBlob && f.puller != nil && id == f.hash:
			return f.step(transfer.Part{Name: part, Payload: e.Payload})
		case kind != mqtt.KindRound || f.puller != nil || len(e.Payload) == 0:
			return nil
		}
		a, err := f.open(e.Payload)
		if err != nil {
			return err
		}
		if !a.Task.Present() {
			return errors.New("the coordinator announces no task at this moment")
		}
		cfg := transfer.DefaultPullerConfig()
		cfg.MaxBytes = mostTask
		if a.Task.Group != 0 {
			key, err := f.key(a.Task.Group)
			switch {
			case err != nil:
				return fmt.Errorf("the task is sealed: %w: start agentd, which asks the coordinator for it", err)
			case len(a.Task.Sealed) == 0:
				cfg.Seal = key.Blob(a.Task.Hash)
			default:
				if a.Task, err = a.Task.Open(key); err != nil {
					return fmt.Errorf("the task cannot be opened: %w", err)
				}
			}
		}
		f.hash = a.Task.Hash.Topic()
		f.puller = transfer.NewPuller(cfg, a.Task, rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)))
		return f.step(transfer.Start{})
	}
	return nil
}

// step gives the puller an event, and does what it asks for.
func (f *fetch) step(ev transfer.PullEvent) error {
	for _, e := range f.puller.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.Subscribe:
			f.conn.Subscribe(mqtt.AtMostOnce, f.parts(e.Parts)...)
		case transfer.Unsubscribe:
			f.conn.Unsubscribe(f.parts(e.Parts)...)
		case transfer.Open:
			return f.step(transfer.Opened{Blob: e.Manifest.Hash, Data: transfer.NewMemory(int(e.Manifest.Length))})
		case transfer.Done:
			f.blob = bytes.Join(e.Data.(*transfer.Memory).Pieces(), nil)
		case transfer.Failed:
			return fmt.Errorf("the task cannot be fetched: %w", e.Err)
		}
	}
	return nil
}

func (f *fetch) parts(names []string) []string {
	topics := make([]string, len(names))
	for i, name := range names {
		topics[i] = f.topics.Blob(f.hash, name)
	}
	return topics
}
