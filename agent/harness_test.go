package agent_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fiveRows returns five rows with y = 2a − b.
func fiveRows([]string, string) (*learner.Samples[float32], error) {
	return learner.NewSamples(2, []float32{1, 0, 0, 1, 1, 1, 2, 1, 1, 2}, []float32{2, -1, 1, 3, 0}), nil
}

// scene contains one agent and simulates the agent's broker and coordinator.
type scene struct {
	t      *testing.T
	topics mqtt.Topics
	cfg    agent.Config
	part   any // additional part of the agent; nil if there is none
	key    ed25519.PrivateKey
	events chan mqtt.Event
	host   *agent.Agent // the agent that was started last
	cancel context.CancelFunc
	done   chan error
	serial uint64
	epoch  wire.Epoch // epoch of the simulated coordinator
	run    wire.RunID
	keys   seals   // current keys of the simulated coordinator
	known  []seals // all keys with which the test may open the agent's messages

	announced []byte // encoding of the newest announcement

	mu         sync.Mutex
	said       []mqtt.Message
	subscribed []string
	ever       []string // all topics to which the agent has ever subscribed
	observed   []any
	pauses     []time.Duration
	will       func() mqtt.Message
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, topics: hosts.TopicsOf(t, "plant"), key: hosts.TestKey(wire.CoordinatorID), epoch: 1, run: 5,
		events: make(chan mqtt.Event)}
	s.cfg = hosts.Agent(t, "plant", "press", 0)
	s.cfg.BootEpoch, s.cfg.TaskData.MinRows, s.cfg.TaskData.Source, s.cfg.Training.DeclaredStepTime = 0, 0,
		data.MemorySource(fiveRows),
		time.Second
	s.cfg.Observer = testkit.Observer(s.keep)
	s.keys = s.seals(wire.SealSecret{42})
	return s
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// start starts the agent and connects it. Its local steps take their declared time, unless the test replaces the
// trainer.
func (s *scene) start() {
	s.t.Helper()
	s.cfg.BootEpoch++
	s.cfg.Rand = newRand()
	cfg := s.cfg
	if cfg.Training.Trainer == nil {
		cfg.Training.Trainer = slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: cfg.Training.DeclaredStepTime}
	}
	a, err := agent.New(cfg, func(will func() mqtt.Message) (mqtt.Conn, error) {
		w := will()
		s.will = will
		s.said = append(s.said, w)
		return s, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.part != nil {
		a.AddPart(s.part)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.host, s.cancel, s.done = a, cancel, make(chan error, 1)
	go func() { s.done <- a.Run(ctx) }()
	s.tell(mqtt.LinkUp{})
	s.t.Cleanup(s.stop)
}

func (s *scene) stop() {
	if s.done == nil {
		return
	}
	s.cancel()
	if err := <-s.done; err != nil {
		s.t.Error(err)
	}
	s.done = nil
}

// The following methods implement mqtt.Conn, because the scene is also the agent's simulated broker connection.

func (s *scene) Publish(m mqtt.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, m)
	return nil
}

func (s *scene) Subscribe(_ mqtt.QoS, filters ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribed = append(s.subscribed, filters...)
	s.ever = append(s.ever, filters...)
}

// asked returns the number of times that the agent has subscribed to a topic.
func (s *scene) asked(topic string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.subscribed {
		if f == topic {
			n++
		}
	}
	return n
}

func (s *scene) Unsubscribe(filters ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribed = slices.DeleteFunc(s.subscribed, func(f string) bool { return slices.Contains(filters, f) })
}

func (s *scene) DisconnectFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = append(s.pauses, d)
}

// paused returns the durations for which the agent has disconnected on purpose.
func (s *scene) paused() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pauses)
}

func (s *scene) Events() <-chan mqtt.Event { return s.events }
func (s *scene) Close() error              { return nil }

// keep records an event.
func (s *scene) keep(event observe.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed = append(s.observed, event)
}

// tell sends the agent a connection event and waits until the agent has handled it.
func (s *scene) tell(e mqtt.Event) {
	s.events <- e
	synctest.Wait()
}

func (s *scene) send(topic string, payload []byte) {
	s.tell(mqtt.MessageReceived{Message: mqtt.Message{Topic: topic, Payload: payload}})
}

// direct sends the agent a message about round r.
func (s *scene) direct(t wire.MessageType, r wire.RoundID, body []byte) {
	s.send(s.topics.CoordinatorToAgent("press"), s.message(s.header(t, r), body))
}

// message returns a signed message to the agent. The message is encrypted if its type requires this.
func (s *scene) message(h wire.Header, body []byte) []byte { return s.sign(s.keys.sealed(h, body)) }

func (s *scene) header(t wire.MessageType, r wire.RoundID) wire.Header {
	s.serial++
	return wire.Header{Root: wire.FirstRootVersion,
		Type: t, Federation: "plant", Sender: wire.CoordinatorID, Epoch: s.epoch, Run: s.run, Round: r,
		Sequence: s.serial}
}

// sign returns a signed message that is not encrypted.
func (s *scene) sign(h wire.Header, body []byte) []byte {
	return wire.SignEnvelope(nil, h, body, s.key)
}

// taskOf returns a linear-regression task with two features and 3 local steps.
func taskOf(name string) wire.Task {
	return wire.Task{
		Name: name, Features: []string{"a", "b"}, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1, NormalizesStepSize: true,
			StepTimeBudgetMillis: 3000,
			MinLocalSteps:        1, MaxLocalSteps: 10},
	}
}

func inline(p []byte) wire.BlobRef {
	return wire.BlobRef{Hash: wire.BlobDigest(p), Length: uint32(len(p)), Inline: p}
}

// training returns the announcement of a training round whose base model has the parameters base.
func (s *scene) training(t wire.Task, base ...float32) wire.Announcement {
	p, err := task.Compile[float32](t)
	if err != nil {
		s.t.Fatal(err)
	}
	return wire.Announcement{
		Attempt: 1, Phase: wire.PhaseOpen, Kind: wire.KindTraining, Task: inline(t.AppendEncoding(nil)),
		BaseModel: inline(wire.AppendVector(nil, base)), UpdateSchema: p.UpdateSchema(wire.KindTraining).Hash(),
		RoundTimeoutMillis: 60000, SealPublicKey: s.keys.public,
	}
}

// idle returns the announcement that the coordinator publishes between two rounds.
func (s *scene) idle() wire.Announcement {
	return wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindTraining, SealPublicKey: s.keys.public}
}

// announce sends the announcement of a round and returns its digest.
func (s *scene) announce(r wire.RoundID, a wire.Announcement) wire.Digest {
	s.announced = s.sign(s.header(wire.TypeAnnouncement, r), a.Body())
	s.send(s.topics.Announcement(), s.announced)
	return sha256.Sum256(s.announced[:wire.HeaderSize])
}

func (s *scene) invite(r wire.RoundID, announcement wire.Digest) {
	s.direct(wire.TypeInvitation, r,
		(&wire.Invitation{Agent: "press", Announcement: announcement, RemainingMillis: 60000, StepSizeWeight: 1,
			MustSendUpdate: true}).Body())
}

// heard returns the messages of one type that the agent has sent, oldest first. It decrypts encrypted messages.
func (s *scene) heard(t wire.MessageType) []wire.Envelope { return s.heardBy(t, s.known...) }

// heardBy returns the messages of type t that the agent has sent unencrypted or encrypted for one of the keys, oldest
// first. The test fails if the agent has sent an unencrypted message of a type that requires encryption.
func (s *scene) heardBy(t wire.MessageType, keys ...seals) (all []wire.Envelope) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.said {
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil {
			continue
		}
		if e.Type.MustBeSealed() {
			s.t.Errorf("the agent has sent an unsealed %s", e.Type)
		}
		for _, k := range keys {
			if e.Type == wire.TypeSealed && wire.IsSealedToKey(e.Body, k.public) {
				if e, err = k.pair.FromAgentKey.OpenMessage(e); err != nil {
					s.t.Error(err)
				}
			}
		}
		if e.Type == t {
			all = append(all, e)
		}
	}
	return all
}

// update returns the newest update that the agent has offered.
func (s *scene) update() (wire.Envelope, wire.Update) {
	s.t.Helper()
	all := s.heard(wire.TypeUpdate)
	if len(all) == 0 {
		s.t.Fatal("no update was offered")
	}
	u, err := wire.DecodeUpdate(all[len(all)-1].Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return all[len(all)-1], u
}

// declined returns the agent's reasons for declining, one reason per announcement, without repetitions.
func (s *scene) declined() string {
	var all []string
	last := wire.InvitationDeclined{}
	for _, e := range s.heard(wire.TypeInvitationDeclined) {
		d, err := wire.DecodeInvitationDeclined(e.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		if d != last {
			all = append(all, d.Reason.String())
		}
		last = d
	}
	return strings.Join(all, " ")
}

// eventsOf returns the recorded events of one type.
func eventsOf[F any](s *scene) (all []F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.observed {
		if x, ok := f.(F); ok {
			all = append(all, x)
		}
	}
	return all
}

func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
