// Package broker is an MQTT broker within the process: mochi-mqtt behind a
// listener of our own.
//
// Used as it comes, mochi writes to a client while it holds a lock that the
// publisher's goroutine needs too, so one client that stops reading stops
// everybody: measured, a healthy subscriber waited 66 s. Here each connection
// has a bounded queue with a writer of its own, and one that does not read is
// closed. Mochi also forgets retained messages after a day, takes packets of
// any size before anyone has logged in, and waits for a CONNECT without a limit;
// none of that happens here.
//
// With TLS and client certificates, and the rules of package acl as
// Options.Allow, it holds what Mosquitto holds with the files of
// packaging/mosquitto: a device can read and write its own topics only. With
// the quota of package acl no device fills the memory with what it has retained,
// which Mosquitto cannot prevent. Retained messages are kept in memory and, if
// given a folder, on disk.
//
// Memory grows with what is retained, by up to 8 MiB for each client that is
// slow, and by up to 256 messages for each that reads with QoS 1 and does not
// acknowledge. With GOMEMLIMIT at the size of what is retained, 8 MiB for each
// client that may be slow at a time, and 48 MiB, it was measured to hold for
// 50 clients that pull a model of 40 MB.
package broker
