package datacheck

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/cmd/internal/keys"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

var key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// agentAt is an agent of that coordinator, at a broker.
func agentAt(url string) *settings.Agent {
	s := settings.DefaultAgent()
	s.Federation, s.ID, s.Broker.URLs = "air", "a", config.OneOrMore{url}
	s.Identity.CoordinatorKey = keys.Format(keys.Public(key))
	return &s
}

// wideTask is a task with this many features.
func wideTask(features int) *wire.Task {
	t := &wire.Task{Name: "wide", Target: "y", Model: wire.Model{Outputs: 1, Activation: spec.ActivationTanh,
		Risk: spec.RiskSquared}, Training: wire.Training{Exchange: spec.ExchangeParameters, MaxSteps: 1, MinSteps: 1}}
	for i := range features {
		t.Features = append(t.Features, fmt.Sprintf("feature %d %s", i, strings.Repeat("x", 32)))
	}
	return t
}

// announce retains a task at a broker, within the announcement or beside it.
func announce(t *testing.T, url string, key ed25519.PrivateKey, task *wire.Task, inline bool) {
	t.Helper()
	topics, err := mqtt.NewTopics("", "air")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: url, ClientID: topics.ClientID(wire.CoordinatorID)})
	if err != nil {
		t.Fatal(err)
	}
	for e := range conn.Events() {
		if _, up := e.(mqtt.Up); up {
			break
		}
	}
	publish := func(topic string, payload []byte) {
		if err := conn.Publish(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce,
			Retained: true}); err != nil {
			t.Fatal(err)
		}
	}
	blob := task.Append(nil)
	ref, parts, err := transfer.Publish(blob, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	if inline {
		ref.Manifest, ref.Inline = wire.Digest{}, blob
	} else {
		for part, message := range parts {
			publish(topics.Blob(ref.Hash.Topic(), part), message)
		}
	}
	a := wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindTraining, Task: ref}
	publish(topics.Round(), wire.Seal(nil, wire.Header{Type: wire.TypeAnnouncement, Federation: "air",
		Sender: wire.CoordinatorID, Root: 1, Epoch: 1, Run: 1, Round: 1, Sequence: 1}, a.Body(), key))
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnnounced(t *testing.T) {
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	for name, tt := range map[string]struct {
		key    ed25519.PrivateKey
		inline bool
		wide   int
		says   string
	}{
		"inline":      {key, true, 3, ""},
		"in chunks":   {key, false, 3000, ""},
		"another key": {other, true, 3, "is identity.coordinator_key the coordinator's?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := broker.Start(broker.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			task := wideTask(tt.wide)
			announce(t, b.URL(), tt.key, task, tt.inline)
			got, err := Announced(t.Context(), agentAt(b.URL()))
			switch {
			case tt.says != "":
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q", err, tt.says)
				}
			case err != nil:
				t.Error(err)
			case !bytes.Equal(got.Append(nil), task.Append(nil)):
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestNotAnnounced: the error says why there is no task.
func TestNotAnnounced(t *testing.T) {
	b, err := broker.Start(broker.Options{Authenticate: func(_, _, _ string) bool { return true },
		Allow: func(_, topic string, _ bool) bool { return !strings.HasSuffix(topic, "/round") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	empty, err := broker.Start(broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = empty.Close() })
	refused := agentAt(b.URL())
	refused.Broker.Username = "air-a-check" // this broker wants the client id
	nobody, noKey := agentAt("tcp://"+brokers.FreeAddress(t)), agentAt(empty.URL())
	noKey.Identity.CoordinatorKey = ""
	for says, s := range map[string]*settings.Agent{
		"the broker refuses the topic fl/v1/air/round": refused,
		"connection refused":                           nobody,
		"nothing is retained on fl/v1/air/round":       agentAt(empty.URL()),
		"identity.coordinator_key":                     noKey,
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			if _, err := Announced(t.Context(), s); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		})
	}
}
