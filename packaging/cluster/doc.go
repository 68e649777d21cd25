// Package cluster holds what three coordinators that take turns need beside themselves: the configuration of three
// servers of NATS. It embeds the files, so that tests can run servers and coordinators with them.
package cluster

import _ "embed" // the files

// Conf is nats.conf of the first server.
//
//go:embed nats.conf
var Conf []byte

// Unit runs a server under systemd.
//
//go:embed nats-server.service
var Unit []byte

// Compose runs the servers and the coordinators in containers.
//
//go:embed compose.yml
var Compose []byte
