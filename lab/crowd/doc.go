// Package crowd simulates a federation of a million agents in virtual time. An agent that does not respond to the
// current round is a small struct. An agent that responds runs the real state machine (agentround.Machine) until it
// leaves the round. The coordinator is also the real state machine (round.CoordinatorMachine). Messages are not signed;
// the simulation only counts the signatures.
package crowd
