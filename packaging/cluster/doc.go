// Package cluster embeds the configuration of three NATS servers, in which several coordinators store their shared
// state. Tests use the embedded files.
package cluster

import _ "embed" // The blank import enables go:embed.

// Conf is the configuration file nats.conf of the first server.
//
//go:embed nats.conf
var Conf []byte

// Unit is the systemd unit of a NATS server.
//
//go:embed nats-server.service
var Unit []byte

// Compose is a compose file that runs the NATS servers and the coordinators in containers.
//
//go:embed compose.yml
var Compose []byte
