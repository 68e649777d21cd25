package brokers

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Line forwards connections, at so many bytes per second each way if it is slow. Its
// own buffers are small then: a thin line, not a deep one.
type Line struct {
	Address string // where to connect

	listener net.Listener
	target   string
	rate     int // 0 = as fast as it goes
	stop     chan struct{}
	running  sync.WaitGroup

	mu  sync.Mutex
	cut chan struct{} // closed when it is mended; nil while it is not cut
}

// NewLine puts a line between an address and the one that it has, for as long as the test runs.
func NewLine(t testing.TB, address string) *Line { return newLine(t, address, 0) }

// SlowLine puts a line that carries rate bytes a second, each way, between a
// broker's address and the one that it returns, for as long as the test runs.
func SlowLine(t testing.TB, address string, rate int) (slow string) {
	return newLine(t, address, rate).Address
}

func newLine(t testing.TB, address string, rate int) *Line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{Address: listener.Addr().String(), listener: listener, target: address, rate: rate,
		stop: make(chan struct{})}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		close(l.stop)
		_ = listener.Close()
		l.running.Wait()
	})
	return l
}

// Cut has the line carry nothing, and close nothing: what is sent waits.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == nil {
		l.cut = make(chan struct{})
	}
}

// Mend has it carry again, and what has waited first.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		close(l.cut)
		l.cut = nil
	}
}

// whole returns when the line is not cut, and false if the test is over before.
func (l *Line) whole() bool {
	for {
		l.mu.Lock()
		cut := l.cut
		l.mu.Unlock()
		if cut == nil {
			return true
		}
		select {
		case <-cut:
		case <-l.stop:
			return false
		}
	}
}

func (l *Line) accept() {
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
			if l.rate == 0 {
				break
			}
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
func (l *Line) forward(to, from net.Conn) {
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
		if !l.whole() {
			return
		}
		if l.rate > 0 {
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
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}
