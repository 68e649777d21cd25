// Package store keeps what a daemon must not lose: atomic files, the lock and the boot counter of a state folder,
// checksummed records, slots that are overwritten in place, models at rest, the history for the charts and the ring of
// readings; and the spool of a round's updates, which it may lose.
//
// Durability: a call that promises it returns nil only after fsync of the file's bytes and,
// when a name was created or replaced, of the folder that holds the name (on Windows, which has no fsync of folders,
// and on the few file systems that refuse it, the file's own fsync is all there is). The next Open makes all that a
// crash leaves behind durable before it is shown to anyone: a process that dies between a write and its fsync
// leaves pages that can be read back, but would still be lost in a power cut.
//
// Everything that comes back from the disk is checked: a torn or flipped file is a *CorruptError or is dropped and
// reported, and is never served. A checksum catches accidents, not an attacker who can write to the state folder.
//
// All of it is on an FS. LocalDisk is the disk of this machine; tests, and the world of package lab/world, have file
// systems that fill up, tear what they write and lose power.
//
// The package does not serialise access between processes; the daemon takes Lock on its state folder first.
package store
