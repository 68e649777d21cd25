// Package world runs a whole federation in virtual time: the hosts of the daemons themselves, coordinator.Coordinator
// and agent.Agent, on disks and at a broker that fail by plan.
//
// A world is one thread. Each job of a host is a coroutine (iter.Pull); it runs until it waits, and a heap of events,
// ordered by (time, sequence), says which is next. All chance comes from the seed, so that a Plan (a seed, the size of
// a federation, a script of faults) gives the same run each time, to the byte of its transcript.
//
// Faults: messages are late, lost, doubled, and overtake those of other topics; links are cut, or are silent; the
// broker restarts and forgets part of what it retained; processes are killed; the power goes, at a moment or at the
// n-th operation of a disk, and takes what was not synced, sectors of a file one by one; disks are full, or slow;
// parties with a valid key say what the protocol forbids (liar.go).
//
// The world looks at what the parties say, what stands on their disks and what they tell as events, at each step, and
// holds them to the promises of docs/ARCHITECTURE.md: see invariant_checker.go. When one is broken, Shrink makes the
// script of faults short.
package world
