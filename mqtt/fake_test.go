package mqtt_test

import (
	"net"
	"sync"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// fakeBroker is a broker that answers packets as a test specifies, including misbehaviour. It accepts any number of
// connections, each with its own goroutine.
type fakeBroker struct {
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

// startFake starts a fakeBroker. It passes every packet, including CONNECT, to answer, which runs on the connection's
// goroutine and returns the reply or nil.
func startFake(t *testing.T, answer func(conn net.Conn, p packets.ControlPacket) packets.ControlPacket) *fakeBroker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBroker{listener: listener}
	f.running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
			f.running.Go(func() { f.serve(conn, answer) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		for _, conn := range f.conns {
			_ = conn.Close()
		}
		f.mu.Unlock()
		f.running.Wait()
	})
	return f
}

func (f *fakeBroker) url() string { return "tcp://" + f.listener.Addr().String() }

func (f *fakeBroker) serve(conn net.Conn, answer func(net.Conn, packets.ControlPacket) packets.ControlPacket) {
	defer conn.Close()
	for {
		p, err := packets.ReadPacket(conn)
		if err != nil {
			return
		}
		if reply := answer(conn, p); reply != nil && reply.Write(conn) != nil {
			return
		}
		if _, ends := p.(*packets.DisconnectPacket); ends {
			return
		}
	}
}

// usual returns the answer of a normal broker.
func usual(p packets.ControlPacket) packets.ControlPacket {
	switch p := p.(type) {
	case *packets.ConnectPacket:
		return packets.NewControlPacket(packets.Connack)
	case *packets.SubscribePacket:
		ack := packets.NewControlPacket(packets.Suback).(*packets.SubackPacket)
		ack.MessageID, ack.ReturnCodes = p.MessageID, make([]byte, len(p.Topics))
		return ack
	case *packets.PingreqPacket:
		return packets.NewControlPacket(packets.Pingresp)
	case *packets.PublishPacket:
		if p.Qos == 1 {
			ack := packets.NewControlPacket(packets.Puback).(*packets.PubackPacket)
			ack.MessageID = p.MessageID
			return ack
		}
	}
	return nil
}
