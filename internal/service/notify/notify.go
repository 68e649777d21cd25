// Package notify reports the state of a service to systemd: sd_notify(3) and the watchdog of systemd.service(5).
package notify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Socket is a connection to systemd's notification socket. A nil *Socket is valid and discards all messages. It is used
// in processes that systemd has not started.
type Socket struct{ conn net.Conn }

// Open connects to the notification socket with the given name, the value of $NOTIFY_SOCKET. If name is empty, it
// returns nil.
func Open(name string) (*Socket, error) {
	if name == "" {
		return nil, nil
	}
	if name[0] == '@' { // "@" is the prefix of an abstract socket
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return &Socket{conn}, nil
}

// Send sends assignments such as READY=1 in a single message.
func (s *Socket) Send(assignments ...string) error {
	if s == nil {
		return nil
	}
	_, err := s.conn.Write([]byte(strings.Join(assignments, "\n")))
	return err
}

// StatusAssignment returns the assignment that sets the status line shown by `systemctl status`.
func StatusAssignment(line string) string {
	return "STATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(line)
}

// WatchdogInterval returns the watchdog interval of process pid. The process must send WATCHDOG=1 at least once per
// interval. An interval of 0 means that no watchdog is configured. usec and forPID are the values of $WATCHDOG_USEC and
// $WATCHDOG_PID.
func WatchdogInterval(usec, forPID string, pid int) (time.Duration, error) {
	if usec == "" || forPID != "" && forPID != strconv.Itoa(pid) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(time.Duration(1<<63-1)/time.Microsecond) {
		return 0, fmt.Errorf("the environment variable WATCHDOG_USEC is %q, but must be a number of microseconds", usec)
	}
	return time.Duration(n) * time.Microsecond, nil
}
