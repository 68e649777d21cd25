package demo

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// slowNetwork is a TCP proxy in front of a broker that delays each connection by a different time.
type slowNetwork struct {
	listener net.Listener
	target   string
	delays   *rand.Rand // only used by the goroutine that accepts connections
	running  sync.WaitGroup
	ended    chan struct{}
}

// newSlowNetwork starts a slow network in front of a broker. The seed determines the delays. The order of connections
// determines which client gets which delay.
func newSlowNetwork(t *testing.T, brokerURL string, seed uint64) *slowNetwork {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &slowNetwork{
		listener: l, target: strings.TrimPrefix(brokerURL, "tcp://"), delays: rand.New(rand.NewPCG(seed, 0)),
		ended: make(chan struct{}),
	}
	n.running.Go(n.accept)
	t.Cleanup(func() {
		close(n.ended)
		_ = l.Close()
		n.running.Wait()
	})
	return n
}

func (n *slowNetwork) url() string { return "tcp://" + n.listener.Addr().String() }

func (n *slowNetwork) accept() {
	for {
		near, err := n.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", n.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		delay := time.Duration(n.delays.Int64N(int64(15 * time.Millisecond)))
		n.running.Go(func() { n.forward(near, far, 0) })
		n.running.Go(func() { n.forward(far, near, delay) })
	}
}

// forward copies data with a delay until one of the connections is closed or the test ends.
func (n *slowNetwork) forward(to, from net.Conn, delay time.Duration) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		k, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-time.After(delay):
		case <-n.ended:
			return
		}
		if _, err := to.Write(buffer[:k]); err != nil {
			return
		}
	}
}
