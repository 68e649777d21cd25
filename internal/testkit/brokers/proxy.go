package brokers

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy that can limit the rate in each direction. With a rate limit it uses small socket buffers, so
// that little data is queued in the proxy.
type Proxy struct {
	Address string // address to which clients connect

	listener       net.Listener
	target         string
	bytesPerSecond int // rate limit in bytes per second; 0 means no limit
	stop           chan struct{}
	running        sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed to resume forwarding; nil while the proxy is not frozen
}

// NewProxy starts a TCP proxy that forwards connections to address. The proxy stops at the end of the test.
func NewProxy(t testing.TB, address string) *Proxy { return startProxy(t, address, 0) }

// NewSlowProxy starts a TCP proxy in front of a broker and returns the proxy's address. The proxy forwards at most rate
// bytes per second in each direction.
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

// Freeze stops forwarding but keeps all connections open. Data sent in the meantime is delayed until Unfreeze.
func (l *Proxy) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen == nil {
		l.frozen = make(chan struct{})
	}
}

// Unfreeze resumes forwarding after Freeze. Delayed data is forwarded first.
func (l *Proxy) Unfreeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		close(l.frozen)
		l.frozen = nil
	}
}

// waitUnfrozen blocks while the proxy is frozen. waitUnfrozen returns false if the proxy is stopped.
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

// wakeupTolerance is the maximum delay of a timer that forward compensates. A busy host may fire timers late, and this
// must not reduce the rate of the proxy.
const wakeupTolerance = 250 * time.Millisecond

// forward copies data from one connection to the other. forward waits between chunks if the rate is limited.
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
				// After an idle period, restart the schedule so that the proxy does not exceed the rate limit.
				free = now
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
