// Package mosquitto embeds the shipped configuration files for a Mosquitto broker, so that tests can run Mosquitto with
// them.
package mosquitto

import _ "embed" // The blank import enables go:embed.

// Conf is the mosquitto.conf for production. Clients authenticate with TLS certificates.
//
//go:embed mosquitto.conf
var Conf []byte

// PlainConf is the mosquitto.conf for a trusted test network. Clients authenticate with passwords, without TLS.
//
//go:embed mosquitto-plain.conf
var PlainConf []byte

// Bridge contains the lines to append to the mosquitto.conf of a site's broker, to connect it to a central broker
// (hub). BridgeACL contains the lines to append to the acl file of the hub.
var (
	//go:embed bridge.conf
	Bridge []byte
	//go:embed bridge.acl
	BridgeACL []byte
)

// DropIn is a systemd drop-in file for Mosquitto's service unit.
//
//go:embed mosquitto.service.d/fedmesh.conf
var DropIn []byte

// Firewall is an nftables configuration that limits the number of connections per source address.
//
//go:embed fedmesh.nft
var Firewall []byte

// RulesPath and RulesService are systemd units that make Mosquitto reload the access rules after the coordinator has
// written them.
var (
	//go:embed fedmesh-acl.path
	RulesPath []byte
	//go:embed fedmesh-acl.service
	RulesService []byte
)

// ACL is a sample of Mosquitto's acl file. acl.RuleTable.MosquittoACLFile generates the real file from the list of
// agents.
//
//go:embed acl
var ACL []byte
