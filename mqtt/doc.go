// Package mqtt connects a host to a broker. It provides a [Session] over MQTT 3.1.1, the [Conn] interface that tests
// implement in memory, and the [Topics] of a federation.
//
// The package does not guarantee delivery. In measurements, acknowledgements, completed tokens and QoS 1 each reported
// success for messages that were lost. A host that needs certainty must therefore request an answer from the receiver.
//
// A Session guarantees that no call except Close blocks, that every queue is bounded in messages and bytes, and that
// Options.ObserveMessage is called for each dropped message. After each connect the subscriptions are sent before
// anything else. A malformed packet ends the link before any of it is stored. A message longer than Options.MaxPacket
// is discarded while it arrives and the link stays open, because any publisher can send one.
//
//	s, err := mqtt.Dial(ctx, mqtt.Options{URL: "tcp://broker:1883", ClientID: "fed-a1"})
//	...
//	s.Subscribe(mqtt.AtMostOnce, topics.Announcement())
//	for event := range s.Events() {
//		switch e := event.(type) {
//		case mqtt.LinkUp: // subscriptions are being sent; send the hello
//		case mqtt.LinkDown: // Publish returns ErrDown until the next LinkUp
//		case mqtt.MessageReceived: // e.Topic, e.Payload
//		case mqtt.SubscriptionRefused: // the broker refused e.Filter
//		}
//	}
package mqtt
