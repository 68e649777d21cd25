// Package broker is an embedded MQTT broker: mochi-mqtt with a custom listener.
//
// By default, mochi writes to a client while holding a lock that the publisher's goroutine also needs, so one client
// that stops reading blocks all others. In a measurement a healthy subscriber waited 66 s. Here each connection has a
// bounded queue with its own writer, and a client that does not read is disconnected. Mochi also deletes retained
// messages after a day, accepts packets of any size before login, and waits for CONNECT without a timeout. This package
// prevents these three problems.
//
// With TLS, client certificates and the rules of package acl as Options.Allow, the broker enforces the same access
// rules as Mosquitto with the files of packaging/mosquitto: a device can read and write only its own topics. With the
// quota of package acl no device can fill the memory with retained messages, which Mosquitto cannot prevent. Retained
// messages are kept in memory and, if a folder is given, on disk.
//
// Memory grows with the retained messages, by up to 8 MiB for each slow client, and by up to 256 messages for each QoS
// 1 subscriber that does not acknowledge. It was measured to stay within GOMEMLIMIT for 50 clients that pull a model of
// 40 MB. GOMEMLIMIT was the size of the retained messages, plus 8 MiB for each slow client, plus 48 MiB.
package broker
