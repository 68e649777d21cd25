// Package crowd runs, in its tests, a federation of a million agents in virtual time. An agent that is not drawn to
// answer is a small struct, which does with an announcement what the agent's machine would do; one that is drawn is
// that machine (round.ReplacedAgent), until it has no part in a round any more. The coordinator is its machine
// (round.CoordinatorMachine). Nothing is signed: what would be is counted.
package crowd
