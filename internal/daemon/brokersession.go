package daemon

import (
	"context"
	"log/slog"

	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// DialBroker opens a session with broker b. The session stays open when ctx ends, so that the caller can publish a
// final message before closing it.
func DialBroker(ctx context.Context, b *settings.Broker, t mqtt.Topics, clientID string, log *slog.Logger,
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
	o.ObserveMessage = func(x mqtt.ObservedMessage) {
		kind, _, _, _, _ := t.ParseTopic(x.Topic) // a topic outside the federation has KindUnknown
		traffic(x, kind)
	}
	more(&o)
	return mqtt.Dial(context.WithoutCancel(ctx), o)
}

// DoctorBrokerTarget returns the settings with which the doctor examines the broker of a device or of the coordinator.
func DoctorBrokerTarget(b *settings.Broker, t mqtt.Topics, id wire.AgentID) (d doctor.BrokerTarget, err error) {
	d.Options, _, err = b.SessionOptions(t.ClientID(id))
	d.SelfTestTopic = t.SelfTest(id)
	return d, err
}
