package datacheck

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

var (
	key   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	other = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
)

// agentAt returns the settings of an agent that connects to the broker at url and accepts the test coordinator's key.
func agentAt(url string) *settings.Agent {
	s := settings.DefaultAgent()
	s.Federation, s.ID, s.Broker.URLs = "air", "a", config.OneOrMore{url}
	s.Identity.CoordinatorKey = keys.FormatPublic(keys.Public(key))
	return &s
}

// wideTask returns a task with the given number of features.
func wideTask(features int) *wire.Task {
	t := &wire.Task{Name: "wide", TargetColumn: "y", Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh,
		Risk: spec.LossSquared}, Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters,
		MaxLocalSteps: 1,
		MinLocalSteps: 1}}
	for i := range features {
		t.Features = append(t.Features, fmt.Sprintf("feature %d %s", i, strings.Repeat("x", 32)))
	}
	return t
}

// announce publishes a retained announcement of a task in federation air. The task is inline in the announcement or a
// separate blob.
func announce(t *testing.T, url string, key ed25519.PrivateKey, task *wire.Task, inline bool) {
	t.Helper()
	announceTo(t, url, "air", key, task, inline)
}

// announceTo publishes a retained announcement of a task in the given federation.
func announceTo(t *testing.T, url, federation string, key ed25519.PrivateKey, task *wire.Task, inline bool) {
	t.Helper()
	topics, err := mqtt.NewTopics("", federation)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := mqtt.Dial(t.Context(), mqtt.Options{URL: url, ClientID: topics.ClientID(wire.CoordinatorID)})
	if err != nil {
		t.Fatal(err)
	}
	for e := range conn.Events() {
		if _, up := e.(mqtt.LinkUp); up {
			break
		}
	}
	publish := func(topic string, payload []byte) {
		if err := conn.Publish(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce,
			Retained: true}); err != nil {
			t.Fatal(err)
		}
	}
	blob := task.AppendEncoding(nil)
	ref, parts, err := transfer.BlobMessages(blob, wire.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	if inline {
		ref.ManifestHash, ref.Inline = wire.Digest{}, blob
	} else {
		for part, message := range parts {
			publish(topics.BlobPart(ref.Hash.TopicLevel(), part), message)
		}
	}
	a := wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindTraining, Task: ref}
	publish(topics.Announcement(), wire.SignEnvelope(nil, wire.Header{Type: wire.TypeAnnouncement,
		Federation: wire.FederationName(federation), Sender: wire.CoordinatorID, Root: 1, Epoch: 1, Run: 1, Round: 1,
		Sequence: 1}, a.Body(), key))
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAnnounced(t *testing.T) {
	for name, tt := range map[string]struct {
		key    ed25519.PrivateKey
		inline bool
		wide   int
		says   string
	}{
		"inline":      {key, true, 3, ""},
		"in chunks":   {key, false, 3000, ""},
		"another key": {other, true, 3, "signed with a key that this device does not accept"},
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
			got, err := FetchAnnouncedTask(t.Context(), agentAt(b.URL()))
			switch {
			case tt.says != "":
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want %q", err, tt.says)
				}
			case err != nil:
				t.Error(err)
			case !bytes.Equal(got.AppendEncoding(nil), task.AppendEncoding(nil)):
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestAnnouncedToJoined checks that a device that was enrolled with a token accepts the keys in its newest root
// document (list of trusted keys).
func TestAnnouncedToJoined(t *testing.T) {
	b := start(t, broker.Options{})
	announce(t, b.URL(), key, wideTask(3), true)
	s, dir := agentAt(b.URL()), t.TempDir()
	s.StateDir, s.Identity.CoordinatorKey = dir, ""
	s.Identity.RootFile = filepath.Join(dir, "root.file")
	rootKey := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{5}, ed25519.SeedSize))
	first := rootOf(rootKey, other, wire.FirstRootVersion)
	if err := os.WriteFile(s.Identity.RootFile, first, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := (*MissingTaskError)(nil)
	if _, err := FetchAnnouncedTask(t.Context(), s); !errors.As(err, &missing) ||
		missing.Reason != announcement.UntrustedKey {
		t.Fatalf("the root document names another key: %v, want a Missing with %s", err, announcement.UntrustedKey)
	}
	anchor := sha256.Sum256(first)
	next := rootOf(rootKey, key, wire.FirstRootVersion+1)
	if err := store.LocalDisk.SaveRecord(filepath.Join(dir, "root"), 2, append(anchor[:], next...)); err != nil {
		t.Fatal(err)
	}
	if task, err := FetchAnnouncedTask(t.Context(), s); err != nil || task.Name != "wide" {
		t.Errorf("the newest root document names the coordinator's key: %v, error %v", task, err)
	}
}

// rootOf returns a root document (list of trusted keys) that names one coordinator key and is signed with the key root.
func rootOf(root, coordinator ed25519.PrivateKey, version wire.RootVersion) []byte {
	d := &wire.RootDocument{Federation: "air", Version: version, CoordinatorKey: wire.SigningPublicKeyOf(coordinator)}
	var before ed25519.PrivateKey
	if version > wire.FirstRootVersion {
		before = root
	}
	d.Sign(root, before)
	return d.Bytes()
}

func start(t *testing.T, o broker.Options) *broker.Server {
	t.Helper()
	b, err := broker.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestNotAnnounced checks that the error for a missing announcement contains the reason and the remedy.
func TestNotAnnounced(t *testing.T) {
	anyone := func(_, _, _ string) bool { return true }
	refusing := start(t, broker.Options{Authenticate: anyone,
		Allow: func(_, topic string, _ bool) bool { return !strings.HasSuffix(topic, "/round") }})
	empty, others, same := start(t, broker.Options{}), start(t, broker.Options{}), start(t, broker.Options{})
	announceTo(t, others.URL(), "mill", other, wideTask(3), true)
	announceTo(t, same.URL(), "airs", key, wideTask(3), true)
	announceTo(t, same.URL(), "mill", other, wideTask(3), true)
	refused := agentAt(refusing.URL())
	refused.Broker.Username = "air-a-check" // this broker requires user name and client id to be equal
	unreachable, noKey := agentAt("tcp://"+brokers.FreeAddress(t)), agentAt(empty.URL())
	noKey.Identity.CoordinatorKey = ""
	for name, tt := range map[string]struct {
		s          *settings.Agent
		says, mend string
		reason     announcement.MissingReason // reason for the missing announcement; empty if another error is expected
	}{
		"refused": {refused, "the broker rejected the subscription to fl/v1/air/round",
			"coordinator acl", announcement.AccessDenied},
		"unreachable": {unreachable, "connection refused", "", ""},
		"none": {agentAt(empty.URL()), "the broker has no announcement of federation air",
			"start the coordinator", announcement.NotRetained},
		"others": {agentAt(others.URL()), "other federations at this broker: mill", "broker.prefix",
			announcement.NotRetained},
		"federation": {agentAt(same.URL()), "announces federation airs, but agentd.yaml has federation: air",
			"set federation: airs", announcement.OtherFederation},
		"no key": {noKey, "identity.coordinator_key", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := FetchAnnouncedTask(t.Context(), tt.s)
			missing := (*MissingTaskError)(nil)
			switch {
			case err == nil || !strings.Contains(err.Error(), tt.says):
				t.Errorf("%v, want %q", err, tt.says)
			case errors.As(err, &missing) != (tt.reason != ""):
				t.Errorf("error %T, want reason %q", err, tt.reason)
			case missing != nil && (missing.Reason != tt.reason || !strings.Contains(missing.Remedy, tt.mend)):
				t.Errorf("reason %s, remedy %q; want %s, %q", missing.Reason, missing.Remedy, tt.reason, tt.mend)
			}
		})
	}
}

// TestWithheld checks the error for a broker that accepts the subscription although its access rules forbid it, as
// Mosquitto does.
func TestWithheld(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "acl")
	if err := os.WriteFile(file, []byte("topic readwrite elsewhere/#\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	missing := (*MissingTaskError)(nil)
	_, err := FetchAnnouncedTask(t.Context(), agentAt(brokers.OpenMosquitto(t, "acl_file "+file)))
	if !errors.As(err, &missing) || missing.Reason != announcement.AccessDenied ||
		!strings.Contains(missing.Remedy, "systemctl reload mosquitto") {
		t.Errorf("%v, want a Missing with %s", err, announcement.AccessDenied)
	}
}
