package api

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerUserName returns the user id of the process at the other end of a Unix socket, for example "uid 1000".
func peerUserName(c net.Conn) string {
	name := "unknown user"
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return name
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return name
	}
	_ = raw.Control(func(fd uintptr) { // on an error the name stays unknown
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			name = "uid " + strconv.FormatUint(uint64(cred.Uid), 10)
		}
	})
	return name
}
