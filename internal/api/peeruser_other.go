//go:build !linux

package api

import "net"

// peerUserName returns a fixed name, since only the owner of the state folder can connect.
func peerUserName(net.Conn) string { return "owner of the state folder" }
