package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// await waits until the broker accepts a connection. Without this check, the coordinator and all twelve agents would
// report an unreachable broker.
func (fed *federation) await(ctx context.Context) error {
	conn, err := fed.dial(ctx)
	if err != nil {
		return err
	}
	fed.reached = true
	return conn.Close()
}

// dial returns a connected session with the coordinator's client id.
func (fed *federation) dial(ctx context.Context) (*mqtt.Session, error) {
	o, _, err := fed.coordinator.Broker.SessionOptions(fed.topics.ClientID(wire.CoordinatorID))
	if err != nil {
		return nil, err
	}
	o.Logger = fed.log
	return dialUp(ctx, o)
}

// dialUp waits until a session is connected and returns it. If the broker rejects the credentials, dialUp fails without
// a retry.
func dialUp(ctx context.Context, o mqtt.Options) (*mqtt.Session, error) {
	refused := make(chan error, 1)
	o.OnConnectFailure = func(err error) {
		if errors.Is(err, mqtt.ErrRefused) {
			select {
			case refused <- err:
			default: // Only the first failure is reported.
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
			_ = conn.Close() // Close always returns nil.
			return nil, context.Cause(ctx)
		case err := <-refused:
			_ = conn.Close()
			return nil, fmt.Errorf("%w: set --username and --password-file to valid credentials", err)
		case e := <-conn.Events():
			if _, up := e.(mqtt.LinkUp); up {
				return conn, nil
			}
		}
	}
}

// cleanUp stops the embedded broker. On a broker of the user it deletes the retained messages of the demo.
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

// sweep deletes the federation's retained messages from a user's broker: the announcement, which contains task and
// model, and the agents' presence.
func (fed *federation) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := fed.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot delete the retained messages of the demo (%s and others) from the broker: %w",
			fed.topics.Announcement(), err)
	}
	retained := []string{fed.topics.Announcement()}
	for _, a := range fed.agents {
		retained = append(retained, fed.topics.Presence(wire.AgentID(a.ID)))
	}
	for _, topic := range retained {
		if err := conn.Publish(mqtt.Message{Topic: topic, QoS: mqtt.AtMostOnce, Retained: true}); err != nil {
			_ = conn.Close() // Ignore this error, because the first error is returned.
			return err
		}
	}
	return conn.Close()
}
