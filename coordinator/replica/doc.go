// Package replica keeps a coordinator's state folder on several machines, so that another coordinator goes on when the
// one that leads is gone. It needs an engine that keeps values under keys with compare-and-set (Store); package
// jetstream is one.
//
// One value, the head, says who leads, in which epoch, and what the folder holds. The leader replaces it by
// compare-and-set: with each commit, and every 2.5 s to show that it is there. Nobody else writes it but to take over.
// So the write that makes a state count, the lease and the fence are one and the same: a leader that another one has
// followed cannot commit any more, whatever its clock says.
//
// A replica that stands by reads the head each second. When it has not changed for 15 s by the replica's own clock, it
// replaces that very head, with the epoch raised by one. A leader that has not replaced the head for 10 s, counted from
// the moment at which it began to, says nothing more to devices: see Lead.Holds.
//
// The folder's files are cut into pieces, which are kept under their SHA-256, and are there before the head that names
// them.
package replica
