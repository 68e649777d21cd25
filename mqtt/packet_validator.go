package mqtt

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetValidator follows the framing of what a broker sends, ahead of paho, and objects
// to what paho cannot stand: it allocates any size that five bytes claim, up
// to 256 MiB, a SUBACK with a code too many ends the process, one with a code
// too few counts as granted, and an unknown code in CONNACK as connected. It
// keeps a few bytes of state and never a packet. A packet that is merely odd, such as
// the retained flag of a live message, is let through. So is a PUBLISH of more than
// most bytes, which linkConn discards: any publisher can send one.
type packetValidator struct {
	maxPacketBytes int // bytes of a packet

	packetCount       int  // that have begun
	hasConnack        bool // CONNACK has come
	parseStage        packetParseStage
	typeAndFlags      byte // type and flags
	headerBytesRead   int  // bytes of the packet so far, while its length is unknown
	packetBytes       int  // bytes of the packet, once its length is known
	packetBytesLeft   int  // bytes of the packet still to come
	bodyHead          [2]byte
	bodyHeadBytesLeft int

	mu                    sync.Mutex     // incoming and outgoing are different goroutines
	filterCountByPacketID map[uint16]int // filters in each SUBSCRIBE that has no SUBACK yet
}

// packetParseStage is what comes next in a packet.
type packetParseStage uint8

const (
	stagePacketType      packetParseStage = iota // one byte of type and flags
	stageRemainingLength                         // one to four bytes: how many follow
	stageBodyHead                                // two bytes that tell whether that number can be right
	stageBodyRest
)

func newPacketValidator(most int) *packetValidator {
	return &packetValidator{maxPacketBytes: most, filterCountByPacketID: make(map[uint16]int)}
}

// checkIncomingBytes takes in the next bytes from the broker, however the packets are
// cut. After an error the link is of no use.
func (g *packetValidator) checkIncomingBytes(p []byte) error {
	for len(p) > 0 {
		var err error
		n := 1
		switch g.parseStage {
		case stagePacketType:
			err = g.beginPacket(p[0])
		case stageRemainingLength:
			err = g.addLengthByte(p[0])
		case stageBodyHead:
			err = g.checkBodyHead(p[0])
		case stageBodyRest:
			n = min(g.packetBytesLeft, len(p))
			g.packetBytesLeft -= n
		}
		if err != nil {
			return fmt.Errorf("bad packet from the broker: %w", err)
		}
		p = p[n:]
		if g.parseStage == stageBodyRest && g.packetBytesLeft == 0 {
			g.parseStage = stagePacketType
		}
	}
	return nil
}

func (g *packetValidator) packetType() byte { return g.typeAndFlags >> 4 }

// beginPacket lets in what a broker may send to a client that never asks for QoS 2
// (MQTT 3.1.1, table 2.1 and 2.2.2).
func (g *packetValidator) beginPacket(b byte) error {
	g.typeAndFlags, g.headerBytesRead, g.packetBytes, g.packetBytesLeft, g.parseStage = b, 1, 0, 0, stageRemainingLength
	g.packetCount++
	flags := b & 0x0f
	switch kind := g.packetType(); kind {
	case packets.Connack:
		if g.hasConnack {
			return fmt.Errorf("a second CONNACK")
		}
		g.hasConnack = true
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
	case !g.hasConnack:
		return fmt.Errorf("%s before CONNACK", packets.PacketNames[g.packetType()])
	case flags != 0:
		return fmt.Errorf("%s with flags %#x, which must be 0", packets.PacketNames[g.packetType()], flags)
	}
	return nil
}

// addLengthByte takes in one digit of the length, least first (2.2.3).
func (g *packetValidator) addLengthByte(b byte) error {
	g.packetBytesLeft |= int(b&0x7f) << (7 * (g.headerBytesRead - 1))
	g.headerBytesRead++
	name := packets.PacketNames[g.packetType()]
	if b&0x80 != 0 {
		if g.headerBytesRead == 5 {
			return fmt.Errorf("%s with a length of more than four bytes", name)
		}
		return nil
	}
	if g.packetBytes = g.headerBytesRead + g.packetBytesLeft; g.isOversized() && g.packetType() != packets.Publish {
		return fmt.Errorf("%s of %d bytes, more than %d (MaxPacket)", name, g.packetBytes, g.maxPacketBytes)
	}
	if least, most := bodySizeRange(g.packetType()); g.packetBytesLeft < least || g.packetBytesLeft > most {
		return fmt.Errorf("%s with %d bytes after its length", name, g.packetBytesLeft)
	}
	if g.parseStage = stageBodyHead; g.packetBytesLeft == 0 {
		g.parseStage = stageBodyRest
	}
	g.bodyHeadBytesLeft = len(g.bodyHead)
	return nil
}

// isOversized reports whether the current packet is longer than the limit.
func (g *packetValidator) isOversized() bool { return g.packetBytes > g.maxPacketBytes }

// bodySizeRange is how many bytes may follow the length.
func bodySizeRange(kind byte) (least, most int) {
	const unbounded = 1 << 28
	switch kind {
	case packets.Publish, packets.Suback: // two and a topic of one, or a code
		return 3, unbounded
	case packets.Pingresp:
		return 0, 0
	}
	return 2, 2
}

func (g *packetValidator) checkBodyHead(b byte) error {
	g.bodyHead[len(g.bodyHead)-g.bodyHeadBytesLeft] = b
	g.bodyHeadBytesLeft--
	g.packetBytesLeft--
	if g.bodyHeadBytesLeft > 0 {
		return nil
	}
	g.parseStage = stageBodyRest
	number := binary.BigEndian.Uint16(g.bodyHead[:])
	switch kind := g.packetType(); kind {
	case packets.Publish:
		return g.checkTopicLength(int(number))
	case packets.Connack:
		if code := g.bodyHead[1]; code > packets.ErrRefusedNotAuthorised {
			return fmt.Errorf("CONNACK with the unknown code %d", code)
		}
		return nil
	default:
		return g.checkAckPacket(kind, number)
	}
}

func (g *packetValidator) checkTopicLength(length int) error {
	need := length + 2*int(g.typeAndFlags>>1&3) // a packet id, unless QoS 0
	switch {
	case length == 0:
		return fmt.Errorf("PUBLISH without a topic")
	case need > g.packetBytesLeft:
		return fmt.Errorf("PUBLISH with %d bytes of topic and packet id, but %d left", need, g.packetBytesLeft)
	}
	return nil
}

// checkAckPacket compares with what outgoing saw.
func (g *packetValidator) checkAckPacket(kind byte, id uint16) error {
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
	case g.packetBytesLeft != asked:
		return fmt.Errorf("SUBACK with %d codes for %d filters", g.packetBytesLeft, asked)
	}
	delete(g.filterCountByPacketID, id)
	return nil
}

// recordOutgoingSubscribe sees what is about to be sent. Paho writes each packet with one
// call. Were it otherwise, no SUBACK would be let in, which tests notice.
func (g *packetValidator) recordOutgoingSubscribe(p []byte) {
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
