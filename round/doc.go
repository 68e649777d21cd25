// Package round contains the state machine of the coordinator, which runs rounds of federated averaging. Package
// agentround contains the state machine of an agent. They share only the messages of package wire.
//
// A machine is pure: its host passes events to it and performs the effects that it returns. The whole loop of a host is
//
//	for {
//		for _, e := range machine.Step(now(), event) {
//			perform(e) // in order
//		}
//		deadline, ok := machine.Deadline()
//		event = waitFor(mailbox, deadline, ok) // round.Tick{} when the deadline passes
//	}
//
// Slow work, such as receiving an update or aggregating updates, is an effect. The host reports the result of such work
// by an event that names the round of the work, so that the machine recognises a late result. A Tick may arrive at any
// time.
//
// The machines report events by ReportEvent effects. Metrics, logs and the transcripts of the simulator read the same
// events.
package round
