// Package world simulates a whole federation in virtual time. It runs the daemons' own code, coordinator.Coordinator
// and agent.Agent, with simulated disks and a simulated broker that fail according to a plan.
//
// A world runs in one thread. Each job of a daemon is a coroutine (iter.Pull) that runs until it waits. A heap of
// events, ordered by (time, sequence), determines the next job. All randomness comes from the seed. Therefore a Plan (a
// seed, the size of a federation and a list of faults) always gives the same transcript, byte for byte.
//
// Faults affect all parts of a federation. Messages are delayed, lost, duplicated or reordered across topics. Links
// break or become silent. The broker restarts and forgets some retained messages. Processes are killed. A power cut, at
// a given time or at the n-th operation of a disk, discards unsynced data, sector by sector. Disks are full or slow.
// Parties with a valid key violate the protocol (liar.go).
//
// At each step, the world checks messages, disks and events against the invariants of docs/ARCHITECTURE.md
// (invariant_checker.go). If an invariant is violated, Shrink reduces the list of faults.
package world
