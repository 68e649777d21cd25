package mqtt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// pieces is a connection to a broker whose bytes arrive in the given pieces.
type pieces struct {
	net.Conn
	left    [][]byte
	written bytes.Buffer
}

func (c *pieces) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.left[0])
	if c.left[0] = c.left[0][n:]; len(c.left[0]) == 0 {
		c.left = c.left[1:]
	}
	return n, nil
}

func (c *pieces) Write(p []byte) (int, error)      { return c.written.Write(p) }
func (c *pieces) SetWriteDeadline(time.Time) error { return nil }
func (c *pieces) Close() error                     { return nil }

// published returns a PUBLISH packet as sent by a broker.
func published(topic string, payload int, qos byte, id uint16) []byte {
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload, p.Qos, p.MessageID = topic, bytes.Repeat([]byte{0x30}, payload), qos, id
	var wire bytes.Buffer
	_ = p.Write(&wire)
	return wire.Bytes()
}

// arrived contains the results of reading a byte stream through a linkConn.
type arrived struct {
	delivered, oversized []string
	paho, written        string
	err                  error
}

func (a arrived) String() string {
	return fmt.Sprintf("delivered %q, oversized %q, paho %q, written %q, error %v", a.delivered, a.oversized, a.paho,
		a.written, a.err)
}

func arrivedIn(chunks ...[]byte) (a arrived) {
	conn := &pieces{left: chunks}
	c := newLinkConn(conn, &Options{MaxPacket: guardMost, WriteTimeout: time.Minute}, func(m Message) {
		a.delivered = append(a.delivered, fmt.Sprintf("%.8s %d", m.Topic, len(m.Payload)))
	}, func(t ObservedMessage) {
		if !t.IsIncoming || !t.IsDropped || t.ExceededSizeLimit != guardMost {
			panic(fmt.Sprintf("%+v", t))
		}
		a.oversized = append(a.oversized, fmt.Sprintf("%.8s %d of %d", t.Topic, t.PayloadBytes, t.OversizedPacketSize))
	})
	paho, err := io.ReadAll(iotest.OneByteReader(c)) // like paho, never read bytes of two packets with one call
	a.paho, a.written, a.err = string(paho), conn.written.String(), err
	return a
}

// oversizedStream returns a stream with oversized messages before, between and after other packets, and the expected
// result.
func oversizedStream() ([]byte, arrived) {
	stream := slices.Concat([]byte(connack), published("camera", 2500, 0, 0), published("hall", 3, 0, 0),
		published("camera", 990, 1, 0x0102), published("hall", 4, 1, 0x0103), []byte("\xd0\x00"),
		published("hall", 990, 0, 0), published(strings.Repeat("t", 1200), 0, 1, 0x0104),
		published("camera", 4000, 1, 0x0105), []byte("\xb0\x02\x00\x07"), published("hall", 5, 0, 0))
	return stream, arrived{
		delivered: []string{"hall 3", "hall 4", "hall 990", "hall 5"},
		oversized: []string{"camera 2500 of 2511", "camera 990 of 1003", "tttttttt 0 of 1207", "camera 4000 of 4013"},
		// One PINGRESP for every 1000 discarded bytes that are followed by more payload.
		paho:    connack + "\xd0\x00\xd0\x00" + "\xd0\x00" + "\xd0\x00\xd0\x00\xd0\x00" + "\xb0\x02\x00\x07",
		written: "\x40\x02\x01\x02\x40\x02\x01\x03\x40\x02\x01\x04\x40\x02\x01\x05",
	}
}

// TestOversizedIsDiscarded checks that oversized messages are discarded, for a stream that is split at each byte, into
// single bytes, and into random pieces.
func TestOversizedIsDiscarded(t *testing.T) {
	stream, want := oversizedStream()
	check := func(how string, chunks ...[]byte) {
		t.Helper()
		if got := arrivedIn(chunks...); got.String() != want.String() {
			t.Fatalf("%s: got\n%v, want\n%v", how, got, want)
		}
	}
	check("whole", stream)
	check("byte by byte", slices.Collect(slices.Chunk(slices.Clone(stream), 1))...)
	for at := 1; at < len(stream); at++ {
		check(fmt.Sprint("cut at ", at), slices.Clone(stream[:at]), slices.Clone(stream[at:]))
	}
	cuts := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		var chunks [][]byte
		for rest := slices.Clone(stream); len(rest) > 0; {
			n := 1 + cuts.IntN(min(len(rest), 1+i*20))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		check(fmt.Sprint("random cuts ", i), chunks...)
	}
}

// TestOversizedThatEnds checks that a message is reported once its topic is known, and is not acknowledged, if the
// stream ends within this oversized message.
func TestOversizedThatEnds(t *testing.T) {
	head := len(connack) + 1 + 2 + 2 + len("camera") + 2
	stream := slices.Concat([]byte(connack), published("camera", 1500, 1, 9))
	for end := len(connack) + 1; end < len(stream); end++ {
		got := arrivedIn(slices.Clone(stream[:end]))
		if want := end >= head; (len(got.oversized) == 1) != want || got.written != "" || got.delivered != nil {
			t.Fatalf("%d of %d bytes: %v", end, len(stream), got)
		}
	}
}

// endless is a connection that delivers a header and then any number of zeros.
type endless struct {
	pieces
	zeros int
}

func (c *endless) Read(p []byte) (int, error) {
	if len(c.left) > 0 {
		return c.pieces.Read(p)
	}
	n := min(len(p), c.zeros)
	c.zeros -= n
	clear(p[:n])
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestOversizedAllocatesNothing checks that discarding the largest possible MQTT message does not allocate memory for
// it (R14).
func TestOversizedAllocatesNothing(t *testing.T) {
	const size = 1<<28 - 1
	conn := &endless{pieces{left: [][]byte{[]byte(connack + "\x30\xff\xff\xff\x7f\x00\x01x")}}, size - 3}
	seen := 0
	c := newLinkConn(conn, &Options{MaxPacket: 128 << 10}, func(Message) { t.Error("a message was delivered") },
		func(x ObservedMessage) {
			if seen++; x.PayloadBytes != size-3 || x.OversizedPacketSize != size+5 {
				t.Errorf("%+v", x)
			}
		})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, iotest.OneByteReader(c))
	runtime.ReadMemStats(&after)
	if want := int64(len(connack) + 2*((size-3-1)/(128<<10))); n != want || err != nil || seen != 1 || conn.zeros != 0 {
		t.Errorf("paho has read %d bytes, want %d; %v, %d messages, %d bytes left", n, want, err, seen, conn.zeros)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

// TestOversizedIsLoggedOnce checks that each topic is logged once, for at most maxLoggedTopics topics.
func TestOversizedIsLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	seen := 0
	v := newOversizedMessageReporter(&Options{ObserveMessage: func(ObservedMessage) { seen++ },
		Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	for range 3 {
		v.report(ObservedMessage{Topic: "home/camera", OversizedPacketSize: 140_017, ExceededSizeLimit: 131_072})
	}
	if got := lines.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got,
		`level=WARN msg="oversized message dropped" topic=home/camera bytes=140017 limit=131072`) {
		t.Errorf("logged %s", got)
	}
	for i := range 1000 {
		v.report(ObservedMessage{Topic: fmt.Sprint(i, "\xff\x00", strings.Repeat("long", 10_000))})
	}
	if n := strings.Count(lines.String(), "\n"); n != maxLoggedTopics || len(v.isLoggedByTopic) != n || seen != 1003 ||
		lines.Len() > maxLoggedTopics*1000 {
		t.Errorf("%d lines, %d topics, %d bytes, %d messages seen", n, len(v.isLoggedByTopic), lines.Len(), seen)
	}
}

// TestSlowOversizedKeepsTheLink checks that a link stays open while parts of an oversized message arrive every 30 s,
// although an acknowledgement is missing for longer than a keepalive. The link must end one keepalive after the last
// part.
func TestSlowOversizedKeepsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		o := Options{MaxPacket: guardMost, KeepAlive: time.Minute}.withDefaults()
		l := &brokerLink{options: &o, pendingAcks: make(chan pendingAck, 1), flushed: make(chan struct{}),
			ended: make(chan struct{})}
		c := newLinkConn(near, &o, func(Message) {}, func(ObservedMessage) {})
		l.conn.Store(c)
		go func() {
			_, err := io.Copy(io.Discard, iotest.OneByteReader(c))
			l.recordEnd(err)
		}()
		go l.awaitAcks()
		l.pendingAcks <- pendingAck{token: &unacknowledged{make(chan struct{})}}
		close(l.pendingAcks)
		_, _ = far.Write([]byte(connack + "\x30\xff\xff\x7f\x00\x01x"))
		for range 20 {
			<-time.After(30 * time.Second)
			if _, err := far.Write(make([]byte, guardMost)); err != nil {
				t.Fatalf("the link has ended: %v", *c.abortReason.Load())
			}
		}
		began := time.Now()
		<-l.ended
		if took := time.Since(began); took < o.KeepAlive || took > 2*o.KeepAlive {
			t.Errorf("the link has ended %v after the last byte", took)
		}
		if reason := c.abortReason.Load(); reason == nil || !strings.Contains((*reason).Error(),
			"no acknowledgement") {
			t.Errorf("reason %v", reason)
		}
		<-l.flushed
	})
}

// unacknowledged is a token that is never completed.
type unacknowledged struct{ done chan struct{} }

func (u *unacknowledged) Wait() bool                     { <-u.done; return true }
func (u *unacknowledged) WaitTimeout(time.Duration) bool { return false }
func (u *unacknowledged) Done() <-chan struct{}          { return u.done }
func (u *unacknowledged) Error() error                   { return errors.New("not acknowledged") }
