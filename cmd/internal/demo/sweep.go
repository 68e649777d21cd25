package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// sweep deletes what the demo's federation retained at a user's broker: the
// announcement, which holds task and model, and the agents' presence.
func (fed *federation) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := mqtt.NewTopics("", fed.name)
	if err != nil {
		return err
	}
	conn, err := mqtt.Dial(context.WithoutCancel(ctx), mqtt.Options{
		URL: fed.coordinator.Broker.URL, ClientID: topics.ClientID(wire.CoordinatorID),
	})
	if err != nil {
		return err
	}
	retained := []string{topics.Round()}
	for _, a := range fed.agents {
		retained = append(retained, topics.Presence(wire.AgentID(a.ID)))
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("messages of the demo (%s and others) are left at the broker: %w", topics.Round(), ctx.Err())
		case e := <-conn.Events():
			if _, up := e.(mqtt.Up); !up {
				continue
			}
			for _, topic := range retained {
				if err := conn.Publish(mqtt.Message{Topic: topic, QoS: mqtt.AtLeastOnce, Retained: true}); err != nil {
					return err
				}
			}
			return conn.Close()
		}
	}
}
