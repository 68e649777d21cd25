package mqtt

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetGuard follows the framing of what a broker sends, ahead of paho, and objects
// to what paho cannot stand: it allocates any size that five bytes claim, up
// to 256 MiB, a SUBACK with a code too many ends the process, one with a code
// too few counts as granted, and an unknown code in CONNACK as connected. It
// keeps a few bytes of state and never a packet. A packet that is merely odd, such as
// the retained flag of a live message, is let through. So is a PUBLISH of more than
// most bytes, which linkConn discards: any publisher can send one.
type packetGuard struct {
	maxPacket int // bytes of a packet

	packets         int  // that have begun
	connected       bool // CONNACK has come
	stage           packetStage
	header          byte // type and flags
	headerBytesRead int  // bytes of the packet so far, while its length is unknown
	size            int  // bytes of the packet, once its length is known
	left            int  // bytes of the packet still to come
	head            [2]byte
	headLeft        int

	mu                    sync.Mutex     // incoming and outgoing are different goroutines
	filterCountByPacketID map[uint16]int // filters in each SUBSCRIBE that has no SUBACK yet
}

// packetStage is what comes next in a packet.
type packetStage uint8

const (
	atType   packetStage = iota // one byte of type and flags
	atLength                    // one to four bytes: how many follow
	atHead                      // two bytes that tell whether that number can be right
	atRest
)

func newGuard(most int) *packetGuard {
	return &packetGuard{maxPacket: most, filterCountByPacketID: make(map[uint16]int)}
}

// checkIncoming takes in the next bytes from the broker, however the packets are
// cut. After an error the link is of no use.
func (g *packetGuard) checkIncoming(p []byte) error {
	for len(p) > 0 {
		var err error
		n := 1
		switch g.stage {
		case atType:
			err = g.begin(p[0])
		case atLength:
			err = g.addLengthByte(p[0])
		case atHead:
			err = g.checkBodyHead(p[0])
		case atRest:
			n = min(g.left, len(p))
			g.left -= n
		}
		if err != nil {
			return fmt.Errorf("bad packet from the broker: %w", err)
		}
		p = p[n:]
		if g.stage == atRest && g.left == 0 {
			g.stage = atType
		}
	}
	return nil
}

func (g *packetGuard) packetType() byte { return g.header >> 4 }

// begin lets in what a broker may send to a client that never asks for QoS 2
// (MQTT 3.1.1, table 2.1 and 2.2.2).
func (g *packetGuard) begin(b byte) error {
	g.header, g.headerBytesRead, g.size, g.left, g.stage = b, 1, 0, 0, atLength
	g.packets++
	flags := b & 0x0f
	switch kind := g.packetType(); kind {
	case packets.Connack:
		if g.connected {
			return fmt.Errorf("a second CONNACK")
		}
		g.connected = true
	case packets.Publish:
		if qos := flags >> 1 & 3; qos > 1 {
			return fmt.Errorf("PUBLISH with QoS %d, where at most 1 was asked for", qos)
		}
		flags = 0 // all others have a meaning
	case packets.Puback, packets.Suback, packets.Unsuback, packets.Pingresp:
	default:
		return fmt.Errorf("type %d (%s) is not for clients here", kind, packets.PacketNames[kind])
	}
	switch {
	case !g.connected:
		return fmt.Errorf("%s before CONNACK", packets.PacketNames[g.packetType()])
	case flags != 0:
		return fmt.Errorf("%s with flags %#x, which must be 0", packets.PacketNames[g.packetType()], flags)
	}
	return nil
}

// addLengthByte takes in one digit of the length, least first (2.2.3).
func (g *packetGuard) addLengthByte(b byte) error {
	g.left |= int(b&0x7f) << (7 * (g.headerBytesRead - 1))
	g.headerBytesRead++
	name := packets.PacketNames[g.packetType()]
	if b&0x80 != 0 {
		if g.headerBytesRead == 5 {
			return fmt.Errorf("%s with a length of more than four bytes", name)
		}
		return nil
	}
	if g.size = g.headerBytesRead + g.left; g.oversized() && g.packetType() != packets.Publish {
		return fmt.Errorf("%s of %d bytes, more than %d (MaxPacket)", name, g.size, g.maxPacket)
	}
	if least, most := bodySize(g.packetType()); g.left < least || g.left > most {
		return fmt.Errorf("%s with %d bytes after its length", name, g.left)
	}
	if g.stage = atHead; g.left == 0 {
		g.stage = atRest
	}
	g.headLeft = len(g.head)
	return nil
}

// oversized reports whether the current packet is longer than the limit.
func (g *packetGuard) oversized() bool { return g.size > g.maxPacket }

// bodySize is how many bytes may follow the length.
func bodySize(kind byte) (least, most int) {
	const unbounded = 1 << 28
	switch kind {
	case packets.Publish, packets.Suback: // two and a topic of one, or a code
		return 3, unbounded
	case packets.Pingresp:
		return 0, 0
	}
	return 2, 2
}

func (g *packetGuard) checkBodyHead(b byte) error {
	g.head[len(g.head)-g.headLeft] = b
	g.headLeft--
	g.left--
	if g.headLeft > 0 {
		return nil
	}
	g.stage = atRest
	number := binary.BigEndian.Uint16(g.head[:])
	switch kind := g.packetType(); kind {
	case packets.Publish:
		return g.checkTopic(int(number))
	case packets.Connack:
		if code := g.head[1]; code > packets.ErrRefusedNotAuthorised {
			return fmt.Errorf("CONNACK with the unknown code %d", code)
		}
		return nil
	default:
		return g.checkAck(kind, number)
	}
}

func (g *packetGuard) checkTopic(length int) error {
	need := length + 2*int(g.header>>1&3) // a packet id, unless QoS 0
	switch {
	case length == 0:
		return fmt.Errorf("PUBLISH without a topic")
	case need > g.left:
		return fmt.Errorf("PUBLISH with %d bytes of topic and packet id, but %d left", need, g.left)
	}
	return nil
}

// checkAck compares with what outgoing saw.
func (g *packetGuard) checkAck(kind byte, id uint16) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked, subscribing := g.filterCountByPacketID[id]
	switch {
	case kind != packets.Suback && subscribing:
		return fmt.Errorf("%s for a SUBSCRIBE", packets.PacketNames[kind])
	case kind != packets.Suback:
		return nil
	case !subscribing:
		return fmt.Errorf("SUBACK for no SUBSCRIBE")
	case g.left != asked:
		return fmt.Errorf("SUBACK with %d codes for %d filters", g.left, asked)
	}
	delete(g.filterCountByPacketID, id)
	return nil
}

// recordOutgoing sees what is about to be sent. Paho writes each packet with one
// call. Were it otherwise, no SUBACK would be let in, which tests notice.
func (g *packetGuard) recordOutgoing(p []byte) {
	if len(p) == 0 || p[0]>>4 != packets.Subscribe {
		return
	}
	_, n := binary.Uvarint(p[1:]) // MQTT's lengths are varints
	if n <= 0 || len(p) < 1+n+2 {
		return
	}
	p = p[1+n:]
	id := binary.BigEndian.Uint16(p)
	filters := 0
	for p = p[2:]; len(p) > 2; filters++ {
		size := 2 + int(binary.BigEndian.Uint16(p)) + 1 // the last is the QoS
		p = p[min(size, len(p)):]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.filterCountByPacketID[id] = filters
}
