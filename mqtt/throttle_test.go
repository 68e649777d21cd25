package mqtt_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"github.com/fedmesh/fedmesh/mqtt"
)

// slowLine forwards connections at so many bytes per second each way. Its own
// buffers are small: a thin line, not a deep one.
type slowLine struct {
	listener net.Listener
	target   string
	rate     int
	stop     chan struct{}
	running  sync.WaitGroup
}

func startSlowLine(t *testing.T, url string, rate int) (slowURL string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLine{listener: listener, target: strings.TrimPrefix(url, "tcp://"), rate: rate, stop: make(chan struct{})}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		close(l.stop)
		_ = listener.Close()
		l.running.Wait()
	})
	return "tcp://" + listener.Addr().String()
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
		if now := time.Now(); free.Before(now) {
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

// R13: megabytes over a line of 20 kB/s, with a keepalive of 60 s and 30 s for
// the answer to a ping, and all times divided by 30: 600 kB/s, 2 s and 1 s. A
// message of 60 KiB takes 3.1 s, here 0.1 s: less than a quarter of the 30 s,
// as R13 wants. A ping waits for what the kernel holds ahead of it: twice
// sendBuffer, 256 KiB or 13 s, here 0.4 s.
const (
	slowRate      = 30 * 20_000
	slowKeepAlive = 2 * time.Second
	slowMessage   = 60 << 10
)

// stays publishes n messages on a slow line, or from elsewhere to one, at most
// window ahead of what was received, and counts their arrival. Any Down fails.
func stays(t *testing.T, from, to mqtt.Conn, n, window int) {
	t.Helper()
	to.Subscribe(mqtt.AtMostOnce, "x")
	settle(t, to)
	for sent, got := 0, 0; got < n; got++ {
		for ; sent < min(n, got+window); sent++ {
			publish(t, from, mqtt.Message{Topic: "x", Payload: make([]byte, slowMessage)})
		}
		if m := received(t, to); len(m.Payload) != slowMessage {
			t.Fatalf("message %d has %d bytes", got, len(m.Payload))
		}
	}
	settle(t, from) // no Down before its own message
}

func TestR13SlowUpload(t *testing.T) {
	t.Parallel()
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(b.stop)
	// All at once, 3 MiB: were they all in the kernel, a ping after 2 s would
	// have to wait for 3 s more.
	slow := dial(t, mqtt.Options{URL: startSlowLine(t, b.url(), slowRate), ClientID: "slow", KeepAlive: slowKeepAlive})
	stays(t, slow, dial(t, mqtt.Options{URL: b.url(), ClientID: "fast"}), 3<<20/slowMessage, 1000)
}

func TestR13SlowDownload(t *testing.T) {
	t.Parallel()
	b := newEmbedded(t, 128<<10)
	b.start(t)
	t.Cleanup(b.stop)
	// A window of 4, as pulling keeps one: 12.3 s at 20 kB/s, here 0.4 s. What
	// the broker has queued for us is ahead of its answer to a ping.
	slow := dial(t, mqtt.Options{URL: startSlowLine(t, b.url(), slowRate), ClientID: "slow", KeepAlive: slowKeepAlive})
	stays(t, dial(t, mqtt.Options{URL: b.url(), ClientID: "fast"}), slow, 2<<20/slowMessage, 4)
}

// R13: what a broker that stops reading leaves in the kernel is seconds of
// even a slow line, not minutes.
func TestR13ShortQueue(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	var reading atomic.Bool
	f := startFake(t, func(_ net.Conn, p packets.ControlPacket) packets.ControlPacket {
		if _, ok := p.(*packets.PublishPacket); ok && !reading.Swap(true) {
			<-stop
		}
		return usual(p)
	})
	t.Cleanup(func() { close(stop) })
	counts := newCounter()
	s := dial(t, mqtt.Options{URL: f.url(), ClientID: "s", WriteTimeout: time.Second, Observe: counts.observe})
	const n = 8 << 20 / (slowMessage + 100)
	for range n {
		publish(t, s, mqtt.Message{Topic: "x", Payload: make([]byte, slowMessage)})
	}
	wantDown(t, s)
	eventually(t, "every message has a fate", func() bool { return counts.get(outgoing) == n })
	// 256 KiB of ours and what the broker's side takes in before it is read.
	if written := (n - counts.get(outgoingDropped)) * slowMessage; written > 600_000 {
		t.Errorf("%d bytes in the kernel: half a minute at 20 kB/s", written)
	}
}
