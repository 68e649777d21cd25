// Package mqtt connects a host to a broker: a [Session] over MQTT 3.1.1, the
// [Conn] interface that tests implement in memory, and the [Topics] of a
// federation.
//
// Nothing here promises delivery. A broker that acknowledged, a finished
// token and QoS 1 were each measured losing messages while reporting success,
// so a host that needs certainty asks the other end for an answer. A Session
// promises this: no call but Close blocks, every queue is bounded in messages
// and bytes, a message that is dropped is seen by Options.Observe, and after
// each connect the subscriptions are in place before anything else is sent. Nor
// does it trust the broker: a malformed packet ends the link before anything is
// kept of it. A message longer than Options.MaxPacket is discarded while it
// arrives, and the link stays: any publisher can send one.
//
//	s, err := mqtt.Dial(ctx, mqtt.Options{URL: "tcp://broker:1883", ClientID: "fed-a1"})
//	...
//	s.Subscribe(mqtt.AtMostOnce, topics.Round())
//	for event := range s.Events() {
//		switch e := event.(type) {
//		case mqtt.LinkUp: // subscriptions are on their way; say hello
//		case mqtt.LinkDown: // Publish returns ErrDown until the next Up
//		case mqtt.MessageReceived: // e.Topic, e.Payload
//		case mqtt.SubscriptionRefused: // the broker will not let us read e.Filter
//		}
//	}
package mqtt
