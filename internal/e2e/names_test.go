package e2e

import (
	"encoding/binary"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestNameServer runs agentd on a system without a usable name server, such as Android. agentd must resolve the
// broker's host name with the name server in its configuration.
func TestNameServer(t *testing.T) {
	t.Parallel()
	url := brokers.OpenMosquitto(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	named := "tcp://broker.invalid:" + port
	f := newFederation(t, named)
	f.AddAgent(t, "one", plane(60))
	without := f.Daemon(t, "agentd", "one")
	without.Await(t, "cannot reach the broker at "+named+": lookup broker.invalid")
	without.Stop(t, syscall.SIGTERM, 0)
	one := f.Daemon(t, "agentd", "one", "--set", "dns="+nameServer(t, "broker.invalid"))
	one.Await(t, "connected to the broker at "+named)
	one.Stop(t, syscall.SIGTERM, 0)
}

// nameServer starts a name server that resolves name to 127.0.0.1, and returns its address.
func nameServer(t *testing.T, name string) string {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	var labels strings.Builder
	for label := range strings.SplitSeq(name, ".") {
		labels.WriteString(string(rune(len(label))) + label)
	}
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			if end := 12 + labels.Len() + 1 + 4; n >= end && string(query[12:12+labels.Len()]) == labels.String() {
				_, _ = socket.WriteTo(answerOf(query[:end]), from)
			}
		}
	}()
	return socket.LocalAddr().String()
}

// answerOf returns the answer to a DNS question (RFC 1035, section 4.1). The answer contains an address only if the
// question asks for an IPv4 address.
func answerOf(question []byte) []byte {
	answer := append([]byte(nil), question...)
	answer[2], answer[3] = 0x81, 0x80 // header flags of a DNS response without an error
	copy(answer[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
	if binary.BigEndian.Uint16(question[len(question)-4:]) != 1 {
		return answer
	}
	answer[7] = 1
	return append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
}
