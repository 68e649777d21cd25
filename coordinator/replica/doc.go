// Package replica replicates a coordinator's state folder on several machines, so that another coordinator continues if
// the leader fails. It requires a key-value store with compare-and-set ([KeyValueStore]), such as package jetstream.
//
// One value, the head, contains the leader, its epoch and the contents of the folder. The leader replaces it by
// compare-and-set with each commit, and every 2.5 s as a heartbeat. Other replicas write it only to take over. So the
// same write commits the state, renews the lease and fences earlier leaders: a deposed leader cannot commit, whatever
// its clock shows.
//
// A standby replica reads the head every second. If the head has not changed for 15 s on the replica's own clock, the
// replica replaces it and raises the epoch by one. A leader stops sending to devices 10 s after it began its last
// successful write of the head: see [Leadership.MayPublish].
//
// The folder's files are split into pieces, which are stored under their SHA-256 before the head refers to them.
package replica
