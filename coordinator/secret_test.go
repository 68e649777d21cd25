package coordinator_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// recorder records all messages that a broker receives.
type recorder struct {
	mu   sync.Mutex
	said []mqtt.Message
}

// record returns a recorder of all messages of a federation.
func record(f *federation) *recorder {
	r, connect := &recorder{}, f.connect
	f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
		return recordedConn{connect(clientID, will), r}
	}
	return r
}

type recordedConn struct {
	mqtt.Conn
	r *recorder
}

func (c recordedConn) Publish(m mqtt.Message) error {
	c.r.mu.Lock()
	c.r.said = append(c.r.said, mqtt.Message{Topic: m.Topic, Payload: bytes.Clone(m.Payload)})
	c.r.mu.Unlock()
	return c.Conn.Publish(m)
}

// secretsOf returns byte strings that the broker must not see, by description. Numbers are included in every encoding
// that a message may use.
func secretsOf(f *federation) map[string][]byte {
	all := map[string][]byte{}
	number := func(what string, x float64) {
		if x != 0 {
			all[what] = binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
		}
	}
	for _, a := range f.agents {
		for _, x := range events[training.LocalTrainingFinished](f, a.id) {
			number(fmt.Sprintf("risk before round %d of %s", x.Round, a.id), x.RiskBefore)
			number(fmt.Sprintf("risk after round %d of %s", x.Round, a.id), x.RiskAfter)
		}
		for _, x := range events[taskdata.RowsLoaded](f, a.id) {
			// The row count may precede the zeros of an empty digest in a hello.
			all[fmt.Sprintf("rows of %s", a.id)] = binary.LittleEndian.AppendUint64(nil, uint64(x.Rows))
		}
	}
	for version, model := range f.models() {
		// Any two consecutive parameters are secret, except before the first round, when they are all equal.
		for at := 0; at+8 <= len(model) && version > 0; at += 4 {
			all[fmt.Sprintf("model %d at %d", version, at)] = model[at : at+8]
		}
	}
	if t, err := wire.DecodeTask(f.task()); err != nil {
		f.t.Error(err)
	} else {
		for j, x := range t.Standardization.Mean {
			number(fmt.Sprintf("mean of column %d", j), x)
		}
		all["a column's name"] = []byte(t.Features[0])
	}
	return all
}

// models returns the parameter vectors of the newest run's models by version.
func (f *federation) models() map[uint64][]byte {
	runs, err := os.ReadDir(f.coord.path("models"))
	if err != nil {
		f.t.Fatal(err)
	}
	models, err := store.LocalDisk.OpenModelFolder(f.coord.path("models", runs[len(runs)-1].Name()))
	if err != nil {
		f.t.Fatal(err)
	}
	versions, err := models.Versions()
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[uint64][]byte{}
	for _, v := range versions {
		file, err := models.Get(v)
		if err != nil {
			f.t.Fatal(err)
		}
		tensors, _, err := store.DecodeSafetensors(file)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, x := range tensors {
			all[v] = append(all[v], x.Data...)
		}
	}
	return all
}

// task returns the encoded current task in the coordinator's folder.
func (f *federation) task() []byte {
	saved, err := store.LocalDisk.NewRecordSlots(f.coord.dir, runs.Task).Load(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return saved.Body
}

// found returns the secrets that occur in messages at the broker, with the topics of these messages.
func (r *recorder) found(secrets map[string][]byte) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	long := map[[8]byte]string{}
	for what, secret := range secrets {
		if len(secret) == 8 {
			long[[8]byte(secret)] = what
			continue
		}
		for _, m := range r.said {
			if bytes.Contains(m.Payload, secret) {
				all = append(all, what+" on "+m.Topic)
				break
			}
		}
	}
	for _, m := range r.said {
		for at := 0; at+8 <= len(m.Payload); at++ {
			if what, is := long[[8]byte(m.Payload[at:])]; is {
				all = append(all, what+" on "+m.Topic)
			}
		}
	}
	return all
}

// forget deletes all blobs at the broker.
func (r *recorder) forget(f *federation) {
	conn := f.broker.Connect("cleaner", nil)
	defer conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.said {
		if strings.Contains(m.Topic, "/m/") {
			if err := conn.Publish(mqtt.Message{Topic: m.Topic, Retained: true}); err != nil {
				f.t.Error(err)
			}
		}
	}
}

// TestBrokerLearnsNothing checks that no message of a run contains a secret: parameters, moments, risks or row counts.
// An agent that sends an unencrypted hello receives no answer and can decrypt nothing.
func TestBrokerLearnsNothing(t *testing.T) {
	for _, tt := range []struct {
		name      string
		hidden    []uint32
		openHello bool
	}{{"inline", nil, false}, {"pulled", []uint32{128, 128}, false}, {"a hello without a seal", nil, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Round.MaxAggregations = 3
				if tt.hidden != nil {
					f.cfg.Task.Model.HiddenUnits, f.cfg.Task.Training.StepSize = tt.hidden, 0.01
				}
				for i, a := range f.agents {
					a.data = rowsOf(uint64(i), 0x1321+i*7) // these row counts occur nowhere else
					a.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: time.Second,
						ReadMetrics: func() (all []wire.ReportMetric) {
							for _, x := range events[training.LocalTrainingFinished](f, a.id) {
								all = []wire.ReportMetric{{ID: 9, Value: x.RiskBefore}}
							}
							return all
						}}
				}
				f.enrol("old")
				r, s := record(f), newStranger(f)
				var log bytes.Buffer
				f.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
				f.start()
				if tt.openHello {
					f.until(time.Hour, "opened", func() bool { return len(events[round.RoundOpened](f)) > 0 })
					s.listen()
					hello := wire.Hello{FollowedAnnouncement: s.open.Digest(), Samples: 10}
					s.say(f.topics.AgentToCoordinator("old"), wire.SignEnvelope(nil, s.as("old", wire.TypeHello),
						hello.Body(),
						hosts.TestKey("old")))
				}
				f.finished(time.Hour)
				f.stop()
				secrets := secretsOf(f)
				if len(secrets) < 20 {
					t.Fatalf("%d secrets only", len(secrets))
				}
				if found := r.found(secrets); len(found) > 0 {
					t.Errorf("%d secrets are open, such as %s", len(found), found[0])
				}
				dropped := slices.ContainsFunc(events[coordinator.MessageDropped](f),
					func(d coordinator.MessageDropped) bool {
						return d.Agent == "old" && d.Reason == devices.DropSealed
					})
				if dropped != tt.openHello {
					t.Errorf("a hello without a seal was dropped: %t", dropped)
				}
				f.wantQuiet(log.String())
			})
		})
	}
}

// wantQuiet checks that no key occurs in the log or in an event, and therefore in no status or metric.
func (f *federation) wantQuiet(log string) {
	f.t.Helper()
	var b strings.Builder
	b.WriteString(log)
	f.mu.Lock()
	for _, h := range f.log {
		fmt.Fprintf(&b, "%+v %#v\n", h.event, h.event)
	}
	f.mu.Unlock()
	said := b.String()
	if !strings.Contains(said, "round") {
		f.t.Error("nothing is told")
	}
	keys := [][]byte{}
	for _, secret := range f.secrets() {
		group, err := secret.GroupSealKey()
		if err != nil {
			f.t.Fatal(err)
		}
		keys = append(keys, secret[:], group[:])
		for _, a := range f.agents {
			pair, err := secret.AgentSealKeys(f.public(a.id))
			if err != nil {
				f.t.Fatal(err)
			}
			keys = append(keys, pair.FromAgentKey[:], pair.ToAgentKey[:])
		}
	}
	for _, k := range keys {
		list := strings.Trim(fmt.Sprintf("%d", k[:8]), "[]")
		for _, form := range []string{fmt.Sprintf("%x", k[:8]), base64.StdEncoding.EncodeToString(k)[:10], list,
			strings.ReplaceAll(list, " ", ","), strings.TrimSuffix(fmt.Sprintf("%#v", k[:8])[len("[]byte{"):], "}")} {
			if strings.Contains(strings.ToLower(said), strings.ToLower(form)) {
				f.t.Errorf("a key is told, as %s", form)
			}
		}
	}
}

// revoked removes agent a3 from the list after two rounds. If down is true, the coordinator is not running meanwhile.
// Otherwise the coordinator is killed at its n-th step (event or message) after the removal; n = 0 means that it is not
// killed.
func revoked(t *testing.T, down bool, n int) (killed bool) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 4, memory.Options{})
		f.cfg.Round.Quorum, f.cfg.Round.Gather.MinAgents, f.cfg.Round.Gather.TargetAgents = 3, 3, 0
		f.cfg.Round.PauseBetweenRounds = time.Minute
		s := newStranger(f)
		f.start()
		f.until(time.Hour, "closed", func() bool { return len(events[round.RoundClosed](f)) == 2 })
		s.listen()
		had, came := f.secrets(), len(events[fetch.GroupKeyReceived](f, "a3"))
		keys := maps.Clone(f.keys)
		delete(keys, "a3")
		f.keys, f.cfg.Agents = keys, enrolled.NewListFromKeys(keys)
		dead := make(chan struct{}, 1)
		if n > 0 {
			var gate sync.Mutex
			f.coord.moment = func(any) {
				gate.Lock()
				defer gate.Unlock()
				if n--; n == 0 {
					f.coord.kill()
					dead <- struct{}{}
				}
			}
		}
		if down {
			f.coord.kill()
			f.coord.again()
		} else if err := f.host.SetAgents(context.Background(), f.cfg.Agents); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			select {
			case <-dead:
				killed = true
				wait(time.Second)
				f.coord.again()
			case <-time.After(10 * time.Minute):
			}
		}()
		<-over
		f.finished(time.Hour)
		s.listen()
		s.wantLocked(had)
		if now := events[fetch.GroupKeyReceived](f, "a3"); len(now) != came || came == 0 {
			t.Errorf("the revoked device was given %d keys, and had %d", len(now)-came, came)
		}
	})
	return killed
}

// wantLocked checks that the last model is encrypted with a key that the removed device does not have, and that rounds
// continue.
func (s *stranger) wantLocked(had []wire.SealSecret) {
	t := s.f.t
	t.Helper()
	if s.ann.Phase != wire.PhaseFinished || s.ann.BaseModel.GroupKeyID == 0 {
		t.Fatalf("announced: phase %s, group %d", s.ann.Phase, s.ann.BaseModel.GroupKeyID)
	}
	opens := func(secret wire.SealSecret) error {
		group, err := secret.GroupSealKey()
		if err == nil {
			_, err = s.ann.BaseModel.OpenSealed(group)
		}
		return err
	}
	for _, secret := range had {
		if opens(secret) == nil {
			t.Error("the key from before the device was revoked opens the last model")
		}
	}
	if err := opens(s.f.secrets()[0]); err != nil {
		t.Errorf("the present key does not open it: %v", err)
	}
	for _, c := range events[round.RoundClosed](s.f) {
		if c.Round > 3 && (c.AcceptedUpdates != 3 || c.ClosedByDeadline) {
			t.Errorf("%+v", c)
		}
	}
}

// TestRevokedOpensNothing checks that a removed device cannot decrypt later models, even if the coordinator was down
// meanwhile. Its requests for the key are not answered. Other agents continue.
func TestRevokedOpensNothing(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) { revoked(t, down, 0) })
	}
}

// TestRevokedAndKilled checks that a removed device cannot decrypt later models if the coordinator is killed after the
// removal.
func TestRevokedAndKilled(t *testing.T) {
	stride := 3
	if testing.Short() {
		stride = 29
	}
	n := 1
	for ; revoked(t, false, n) && !t.Failed(); n += stride {
	}
	if n < 30 {
		t.Errorf("killed at %d moments only", n)
	}
}

// TestRepublishedSealed checks that a restarted coordinator publishes a model with exactly the same encrypted bytes,
// and that a key is on disk before it is announced.
func TestRepublishedSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		large(f)
		f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.PauseBetweenRounds = false, 3, time.Minute
		r := record(f)
		announced := 0
		f.coord.moment = func(m any) {
			x, is := m.(mqtt.Message)
			if e, err := wire.ParseEnvelope(x.Payload); is && err == nil && e.Type == wire.TypeAnnouncement {
				a, err := wire.DecodeAnnouncement(e.Body)
				if err != nil {
					t.Error(err)
				}
				public, err := f.secrets()[0].PublicKey()
				if err != nil || public != a.SealPublicKey {
					t.Errorf("the key %x is announced, and %x is on disk: %v", a.SealPublicKey[:4], public[:4], err)
				}
				announced++
			}
		}
		f.start()
		f.until(time.Hour, "closed", func() bool { return len(events[round.RoundClosed](f)) == 2 })
		wait(time.Second) // it publishes the model; the next round opens in a minute
		f.coord.kill()
		wait(time.Second)
		r.forget(f)
		f.coord.again()
		f.finished(time.Hour)
		parts, twice := map[string][]byte{}, 0
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, m := range r.said {
			if !strings.Contains(m.Topic, "/m/") || len(m.Payload) == 0 {
				continue
			}
			if before, is := parts[m.Topic]; is {
				twice++
				if !bytes.Equal(before, m.Payload) {
					t.Errorf("%s was published with other bytes", m.Topic)
				}
			}
			parts[m.Topic] = m.Payload
		}
		if twice == 0 || announced == 0 {
			t.Errorf("%d parts were published twice, %d announcements", twice, announced)
		}
	})
}
