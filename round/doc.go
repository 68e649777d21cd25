// Package round holds the two machines that run a round of federated
// averaging: Coordinator, the parameter server's side, and Agent, a device's.
//
// Both are pure: events go in, effects come out, and the host around them does
// everything else. The whole loop of a host is
//
//	for {
//		for _, e := range machine.Step(now(), event) {
//			perform(e) // in order
//		}
//		deadline, ok := machine.Deadline()
//		event = waitFor(mailbox, deadline, ok) // round.Tick{} when the deadline passes
//	}
//
// Heavy work (fetching, training, folding) is an effect, and its result comes
// back as an event that names the round it belongs to, so that a late result
// is recognised. A Tick may come at any time.
//
// The machines tell what happens in events (Report effects). Metrics, logs and the
// simulator's transcript all read the same events; the machines know none of
// them.
package round
