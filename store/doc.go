// Package store keeps the files of a daemon: atomically replaced files, the lock and the boot counter of a state
// folder, checksummed records, record slots that are overwritten in place, models, the history of rounds for the
// charts, the ring (bounded log) of sensor readings, and the spool (folder) with the updates of a round. Only the spool
// may lose data.
//
// Durability: a durable call returns nil only after it has fsynced the file, and the folder if it created or replaced a
// name. Windows, and some other file systems, cannot fsync a folder; there only the file is fsynced. A process that
// dies between a write and its fsync leaves pages that can be read but may still be lost in a power cut. The next Open
// therefore makes recovered data durable before it returns the data.
//
// All data read from the disk is verified. A torn or corrupted file is a *CorruptError or is dropped and reported; its
// content is never returned. The checksums detect accidents, not an attacker who can write to the state folder.
//
// All functions use an FS. LocalDisk is the disk of this machine. Tests, and package lab/world, use file systems that
// fill up, tear writes and lose power.
//
// The package does not synchronise several processes. The daemon calls LockStateFolder first.
package store
