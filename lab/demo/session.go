package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// await returns when the broker can be reached. Thirteen sessions that all say
// that it cannot would be hard to read.
func (fed *federation) await(ctx context.Context) error {
	conn, err := fed.dial(ctx)
	if err != nil {
		return err
	}
	fed.reached = true
	return conn.Close()
}

// dial returns a session of the demo's own that is up.
func (fed *federation) dial(ctx context.Context) (*mqtt.Session, error) {
	o, _, err := fed.coordinator.Broker.SessionOptions(fed.topics.ClientID(wire.CoordinatorID))
	if err != nil {
		return nil, err
	}
	o.Logger = fed.log
	return dialUp(ctx, o)
}

// dialUp returns a session that is up. A broker that refuses the user is an error, which waiting does not mend.
func dialUp(ctx context.Context, o mqtt.Options) (*mqtt.Session, error) {
	refused := make(chan error, 1)
	o.OnConnectFailure = func(err error) {
		if errors.Is(err, mqtt.ErrRefused) {
			select {
			case refused <- err:
			default: // the first one is enough
			}
		}
	}
	conn, err := mqtt.Dial(context.WithoutCancel(ctx), o)
	if err != nil {
		return nil, err
	}
	for {
		select {
		case <-ctx.Done():
			_ = conn.Close() // which is never an error
			return nil, context.Cause(ctx)
		case err := <-refused:
			_ = conn.Close()
			return nil, fmt.Errorf("%w: give a user and a password that it knows (--username, --password-file)", err)
		case e := <-conn.Events():
			if _, up := e.(mqtt.LinkUp); up {
				return conn, nil
			}
		}
	}
}

// cleanUp stops the embedded broker, or takes what the demo retained at the
// user's broker away again.
func (fed *federation) cleanUp(ctx context.Context) (err error) {
	if fed.site != nil {
		err = fed.site.close()
	}
	switch {
	case fed.server != nil:
		return errors.Join(err, fed.server.Close())
	case fed.reached:
		return errors.Join(err, fed.sweep(context.WithoutCancel(ctx)))
	}
	return err
}

// sweep deletes what the demo's federation retained at a user's broker: the
// announcement, which holds task and model, and the agents' presence.
func (fed *federation) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := fed.dial(ctx)
	if err != nil {
		return fmt.Errorf("messages of the demo (%s and others) are left at the broker: %w", fed.topics.Announcement(),
			err)
	}
	retained := []string{fed.topics.Announcement()}
	for _, a := range fed.agents {
		retained = append(retained, fed.topics.Presence(wire.AgentID(a.ID)))
	}
	for _, topic := range retained {
		if err := conn.Publish(mqtt.Message{Topic: topic, QoS: mqtt.AtMostOnce, Retained: true}); err != nil {
			_ = conn.Close() // the first error is the one to show
			return err
		}
	}
	return conn.Close()
}
