// Package replica replicates a coordinator's state folder on several machines, so that another coordinator continues if
// the leader fails. It requires a key-value store with compare-and-set ([KeyValueStore]), such as package jetstream.
//
// One value in the store, the head, contains the leader, its epoch and the contents of the folder. The leader replaces
// the head by compare-and-set with each commit, and every 2.5 s as a heartbeat. Other replicas write the head only to
// take over. So one write commits the state, renews the lease and fences off earlier leaders: a deposed leader cannot
// commit, whatever its clock shows.
//
// A standby replica reads the head every second. If the head has not changed for 15 s on the replica's own clock, the
// replica replaces the head and raises the epoch by one. A leader stops sending to devices 10 s after it began its last
// successful write of the head: see [Leadership.MayPublish].
//
// The files of the folder are split into pieces. Each piece is stored under its SHA-256 hash before the head refers to
// it.
package replica
