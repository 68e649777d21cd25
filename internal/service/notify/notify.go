// Package notify reports the state of a service to systemd: sd_notify(3) and the watchdog of systemd.service(5).
package notify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Socket is the socket on which systemd listens. The nil Socket belongs to a process that systemd did not start, and
// drops every message.
type Socket struct{ conn net.Conn }

// Open connects to the socket that systemd names in $NOTIFY_SOCKET; it returns
// nil if that is empty.
func Open(name string) (*Socket, error) {
	if name == "" {
		return nil, nil
	}
	if name[0] == '@' { // an abstract one
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &Socket{conn}, nil
}

// Send sends assignments such as READY=1, all in one message.
func (s *Socket) Send(assignments ...string) error {
	if s == nil {
		return nil
	}
	_, err := s.conn.Write([]byte(strings.Join(assignments, "\n")))
	return err
}

// StatusAssignment is the assignment of a line for people, as systemctl status shows it.
func StatusAssignment(line string) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(line)
}

// WatchdogInterval returns how often systemd wants to be told WATCHDOG=1, from
// $WATCHDOG_USEC and $WATCHDOG_PID as process pid finds them; 0 = never.
func WatchdogInterval(usec, forPID string, pid int) (time.Duration, error) {
	if usec == "" || forPID != "" && forPID != strconv.Itoa(pid) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(time.Duration(1<<63-1)/time.Microsecond) {
		return 0, fmt.Errorf("WATCHDOG_USEC is %q, want microseconds", usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}
