package brokers

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections, at so many bytes per second each way if it is slow. Its
// own buffers are small then: a thin line, not a deep one.
type Proxy struct {
	Address string // where to connect

	listener       net.Listener
	target         string
	bytesPerSecond int // 0 = as fast as it goes
	stop           chan struct{}
	running        sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed when it is mended; nil while it is not cut
}

// NewProxy puts a line between an address and the one that it has, for as long as the test runs.
func NewProxy(t testing.TB, address string) *Proxy { return startProxy(t, address, 0) }

// NewSlowProxy puts a line that carries rate bytes a second, each way, between a
// broker's address and the one that it returns, for as long as the test runs.
func NewSlowProxy(t testing.TB, address string, rate int) (slow string) {
	return startProxy(t, address, rate).Address
}

func startProxy(t testing.TB, address string, rate int) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Proxy{Address: listener.Addr().String(), listener: listener, target: address, bytesPerSecond: rate,
		stop: make(chan struct{})}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		close(l.stop)
		_ = listener.Close()
		l.running.Wait()
	})
	return l
}

// Freeze has the line carry nothing, and close nothing: what is sent waits.
func (l *Proxy) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

// Unfreeze has it carry again, and what has waited first.
func (l *Proxy) Unfreeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// waitUnfrozen returns when the line is not cut, and false if the test is over before.
func (l *Proxy) waitUnfrozen() bool {
	for {
		l.mu.Lock()
		cut := l.frozen
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

func (l *Proxy) accept() {
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
			if l.bytesPerSecond == 0 {
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

// wakeupTolerance is how late a busy host may be woken without the line being slower.
const wakeupTolerance = 250 * time.Millisecond

// forward sends each piece when the line is free again after the one before.
func (l *Proxy) forward(to, from net.Conn) {
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
		if !l.waitUnfrozen() {
			return
		}
		if l.bytesPerSecond > 0 {
			if now := time.Now(); free.Before(now.Add(-wakeupTolerance)) {
				free = now // an idle line saves up nothing
			}
			free = free.Add(time.Duration(n) * time.Second / time.Duration(l.bytesPerSecond))
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
