//go:build !linux

package api

import "net"

// peer names who is at the other end: only the owner of the state folder can connect.
func peer(net.Conn) string { return "owner of the state folder" }
