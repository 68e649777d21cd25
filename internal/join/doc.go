// Package join makes a machine a device of a federation: it makes the device's keys, exchanges a token for a
// certificate with the coordinator, and writes what agentd needs. docs/PROTOCOL.md, section 14, is the exchange.
//
// Whenever it is killed, the same again ends well: keys and answer are kept in a folder of their own until all files
// are in their place.
package join
