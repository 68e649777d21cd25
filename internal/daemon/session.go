package daemon

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Dial opens a session with the broker. The end of ctx does not close it: the owner publishes its goodbye first.
func Dial(ctx context.Context, b *settings.Broker, t mqtt.Topics, clientID string, log *slog.Logger,
	traffic func(mqtt.ObservedMessage, mqtt.TopicKind),
	more func(*mqtt.Options)) (mqtt.Conn, error) {
	o, warning, err := b.SessionOptions(clientID)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		log.Warn(warning)
	}
	o.Logger = log
	o.Observe = func(x mqtt.ObservedMessage) {
		kind, _, _, _, _ := t.Parse(x.Topic) // a foreign topic has KindUnknown
		traffic(x, kind)
	}
	more(&o)
	return mqtt.Dial(context.WithoutCancel(ctx), o)
}

// BrokerOf returns what the doctor examines at a broker for a device or the coordinator.
func DoctorBroker(b *settings.Broker, t mqtt.Topics, id wire.AgentID) (d doctor.Broker, err error) {
	d.Options, _, err = b.SessionOptions(t.ClientID(id))
	d.LoopTopic = t.SelfTest(id)
	return d, err
}

// SelfTestTime is how long a message may take to the broker and back, the wait in the queue included.
func SelfTestTime(b *settings.Broker) time.Duration { return 2 * b.KeepAlive }

// Unlock unlocks the state folder. The process is ending, so an error is only logged.
func Unlock(l *store.DirLock, log *slog.Logger) {
	if err := l.Unlock(); err != nil {
		log.Warn("the state folder could not be unlocked", "err", err)
	}
}

// RandomBytes makes key material.
func RandomBytes(b []byte) { crand.Read(b) } // never fails

// NewRand returns a generator for jitter and nonces, seeded by the system.
func NewRand() *rand.Rand {
	var seed [16]byte
	crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
}

// Observer is an agent.Observer, or a coordinator.Observer.
type Observer[F, R any] interface {
	Observe(F)
	ObserveRound(R)
}

// Observers passes each fact to every observer that is not nil.
type Observers[F, R any] []Observer[F, R]

// Observe implements Observer.
func (all Observers[F, R]) Observe(fact F) {
	for _, o := range all {
		if o != nil {
			o.Observe(fact)
		}
	}
}

// ObserveRound implements Observer.
func (all Observers[F, R]) ObserveRound(fact R) {
	for _, o := range all {
		if o != nil {
			o.ObserveRound(fact)
		}
	}
}

// MakeFolder makes the state folder.
func MakeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

// CommandTime is how long a command may wait for the coordinator, which may be busy with a large model.
const CommandTime = 20 * time.Second
