// Package broker is an MQTT broker within the process: mochi-mqtt behind a
// listener of our own.
//
// Used as it comes, mochi writes to a client while it holds a lock that the
// publisher's goroutine needs too, so one client that stops reading stops
// everybody: measured, a healthy subscriber waited 66 s. Here each connection
// has a bounded queue with a writer of its own, and one that does not read is
// closed. Mochi also forgets retained messages after a day, takes packets of
// any size before anyone has logged in, and waits for ever for a CONNECT;
// none of that happens here.
//
// It keeps nothing on disk: a coordinator publishes again what it retained.
package broker
