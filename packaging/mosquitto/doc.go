// Package mosquitto holds the configuration of a Mosquitto broker that we
// ship. It embeds the files, so that a test can run Mosquitto with them.
package mosquitto

import _ "embed" // the files

// Conf is mosquitto.conf for production: TLS with client certificates.
//
//go:embed mosquitto.conf
var Conf []byte

// PlainConf is mosquitto.conf for a trusted bench: passwords, no TLS.
//
//go:embed mosquitto-plain.conf
var PlainConf []byte

// Bridge is appended to the mosquitto.conf of a site's broker, and BridgeACL to the acl of the hub that it is bridged
// to.
var (
	//go:embed bridge.conf
	Bridge []byte
	//go:embed bridge.acl
	BridgeACL []byte
)

// DropIn is for Mosquitto's unit under systemd.
//
//go:embed mosquitto.service.d/fedmesh.conf
var DropIn []byte

// Firewall bounds the connections of each source, for nftables.
//
//go:embed fedmesh.nft
var Firewall []byte

// RulesPath and RulesService are units of systemd that have Mosquitto read the rules that the coordinator has written.
var (
	//go:embed fedmesh-acl.path
	RulesPath []byte
	//go:embed fedmesh-acl.service
	RulesService []byte
)

// ACL is a sample of the acl file. A real one is written from the list of
// agents, by acl.RuleTable's Mosquitto.
//
//go:embed acl
var ACL []byte
