//go:build !linux

package api

import "net"

// peerUserName names who is at the other end: only the owner of the state folder can connect.
func peerUserName(net.Conn) string { return "owner of the state folder" }
