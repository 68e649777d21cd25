// Package notify reports the state of a service to systemd: sd_notify(3) and the watchdog of systemd.service(5).
package notify

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Socket is a connection to systemd's notification socket. A nil *Socket is valid and discards all messages, for
// processes that were not started by systemd.
type Socket struct{ conn net.Conn }

// Open connects to the notification socket with the given name, the value of $NOTIFY_SOCKET. If name is empty, it
// returns nil.
func Open(name string) (*Socket, error) {
	if name == "" {
		return nil, nil
	}
	if name[0] == '@' { // "@" marks an abstract socket
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

// WatchdogInterval returns the watchdog interval of process pid, from $WATCHDOG_USEC and $WATCHDOG_PID. The process
// must send WATCHDOG=1 at least that often. 0 means no watchdog.
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
