package mqtt

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// stalled returns a connection to a broker that has sent the given bytes and does not read.
func stalled(t *testing.T, sent []byte) *linkConn {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	go func() { _, _ = far.Write(sent) }()
	return newLinkConn(near, &Options{MaxPacket: 1 << 20, WriteTimeout: time.Minute}, func(Message) {},
		func(ObservedMessage) {})
}

// TestWriteKeepsItsDeadline checks that write deadlines which paho sets or clears do not affect the writes of the link.
func TestWriteKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stalled(t, nil)
		done := make(chan error, 1)
		go func() { done <- c.publishQoS0(&Message{Topic: "t", Payload: make([]byte, maxJoinedPayloadBytes+1)}) }()
		synctest.Wait()
		if err := c.SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		select {
		case err := <-done:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v, want that of the deadline", err)
			}
		case <-time.After(time.Hour):
			t.Error("the message is still being written after an hour")
		}
	})
}

// TestUnwrittenAck checks that the link ends if an acknowledgement cannot be written, because part of the
// acknowledgement may have been written.
func TestUnwrittenAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connack := []byte{packets.Connack << 4, 2, 0, 0}
		c := stalled(t, append(connack, packets.Publish<<4|1<<1, 6, 0, 1, 't', 0, 9, 'x'))
		if _, err := io.ReadFull(c, make([]byte, len(connack))); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("error %v, want that of the deadline", err)
			}
		case <-time.After(time.Hour):
			t.Error("the link goes on")
		}
	})
}
