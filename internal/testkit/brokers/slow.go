package brokers

import (
	"net"
	"sync"
	"testing"
	"time"
)

// slowLine forwards connections at this many bytes per second each way. Its own
// buffers are small: a thin line, not a deep one.
type slowLine struct {
	listener net.Listener
	target   string
	rate     int
	stop     chan struct{}
	running  sync.WaitGroup
}

// SlowLine puts a line that carries rate bytes a second, each way, between a
// broker's address and the one that it returns, for as long as the test runs.
func SlowLine(t testing.TB, address string, rate int) (slow string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLine{listener: listener, target: address, rate: rate, stop: make(chan struct{})}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		close(l.stop)
		_ = listener.Close()
		l.running.Wait()
	})
	return listener.Addr().String()
}

func (l *slowLine) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		for _, c := range []net.Conn{near, far} {
			_ = c.(*net.TCPConn).SetReadBuffer(16 << 10)
			_ = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
		}
		l.running.Go(func() { l.forward(near, far) })
		l.running.Go(func() { l.forward(far, near) })
		l.running.Go(func() {
			<-l.stop
			_ = near.Close()
			_ = far.Close()
		})
	}
}

// late is how late a busy host may be woken without the line being slower.
const late = 250 * time.Millisecond

// forward sends each piece when the line is free again after the one before.
func (l *slowLine) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 4<<10)
	free := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		if now := time.Now(); free.Before(now.Add(-late)) {
			free = now // an idle line saves up nothing
		}
		free = free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		timer.Reset(time.Until(free))
		select {
		case <-timer.C:
		case <-l.stop:
			return
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}
