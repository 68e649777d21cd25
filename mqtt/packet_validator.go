package mqtt

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// packetValidator checks the framing of the broker's packets before paho parses them, because paho fails on malformed
// packets. Paho allocates any claimed size up to 256 MiB. A SUBACK with too many codes makes paho panic, and paho
// treats missing codes as granted. It also treats an unknown code in CONNACK as success.
//
// The validator never stores a packet. Unusual but harmless packets pass, such as a live message with the retained
// flag. A PUBLISH packet longer than maxPacketBytes also passes, because linkConn discards it.
type packetValidator struct {
	maxPacketBytes int // maximum length of a packet in bytes

	packetCount       int  // number of packets whose first byte was read
	hasConnack        bool // whether CONNACK has been received
	parseStage        packetParseStage
	typeAndFlags      byte
	headerBytesRead   int // number of header bytes read so far
	packetBytes       int // length of the packet in bytes; 0 while it is unknown
	packetBytesLeft   int // bytes of the packet that have not arrived yet
	bodyHead          [2]byte
	bodyHeadBytesLeft int

	mu                    sync.Mutex     // protects the map between the read and write goroutines
	filterCountByPacketID map[uint16]int // number of filters in each SUBSCRIBE without a SUBACK yet
}

// packetParseStage is the part of a packet that is parsed next.
type packetParseStage uint8

const (
	stagePacketType      packetParseStage = iota // one byte with the type and flags
	stageRemainingLength                         // one to four bytes with the length of the rest
	stageBodyHead                                // first two bytes of the body, against which the length is checked
	stageBodyRest
)

func newPacketValidator(most int) *packetValidator {
	return &packetValidator{maxPacketBytes: most, filterCountByPacketID: make(map[uint16]int)}
}

// checkIncomingBytes validates the next bytes from the broker, which may be split at any position. After an error the
// link is unusable.
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
			return fmt.Errorf("invalid packet from the broker: %w", err)
		}
		p = p[n:]
		if g.parseStage == stageBodyRest && g.packetBytesLeft == 0 {
			g.parseStage = stagePacketType
		}
	}
	return nil
}

func (g *packetValidator) packetType() byte { return g.typeAndFlags >> 4 }

// beginPacket parses the first byte of a packet. It accepts the packets that a broker may send to a client without QoS
// 2 (MQTT 3.1.1, table 2.1 and 2.2.2).
func (g *packetValidator) beginPacket(b byte) error {
	g.typeAndFlags, g.headerBytesRead, g.packetBytes, g.packetBytesLeft, g.parseStage = b, 1, 0, 0, stageRemainingLength
	g.packetCount++
	flags := b & 0x0f
	switch kind := g.packetType(); kind {
	case packets.Connack:
		if g.hasConnack {
			return fmt.Errorf("duplicate CONNACK")
		}
		g.hasConnack = true
	case packets.Publish:
		if qos := flags >> 1 & 3; qos > 1 {
			return fmt.Errorf("PUBLISH with QoS %d, but at most 1 was requested", qos)
		}
		flags = 0
	case packets.Puback, packets.Suback, packets.Unsuback, packets.Pingresp:
	default:
		return fmt.Errorf("unexpected packet type %d (%s)", kind, packets.PacketNames[kind])
	}
	switch {
	case !g.hasConnack:
		return fmt.Errorf("%s before CONNACK", packets.PacketNames[g.packetType()])
	case flags != 0:
		return fmt.Errorf("%s with flags %#x, which must be 0", packets.PacketNames[g.packetType()], flags)
	}
	return nil
}

// addLengthByte parses one byte of the remaining length, least significant byte first (MQTT 3.1.1, 2.2.3).
func (g *packetValidator) addLengthByte(b byte) error {
	g.packetBytesLeft |= int(b&0x7f) << (7 * (g.headerBytesRead - 1))
	g.headerBytesRead++
	name := packets.PacketNames[g.packetType()]
	if b&0x80 != 0 {
		if g.headerBytesRead == 5 {
			return fmt.Errorf("%s with a length field of more than four bytes", name)
		}
		return nil
	}
	if g.packetBytes = g.headerBytesRead + g.packetBytesLeft; g.isOversized() && g.packetType() != packets.Publish {
		return fmt.Errorf("%s of %d bytes exceeds the limit of %d (MaxPacket)", name, g.packetBytes, g.maxPacketBytes)
	}
	if least, most := bodySizeRange(g.packetType()); g.packetBytesLeft < least || g.packetBytesLeft > most {
		return fmt.Errorf("%s with invalid remaining length %d", name, g.packetBytesLeft)
	}
	if g.parseStage = stageBodyHead; g.packetBytesLeft == 0 {
		g.parseStage = stageBodyRest
	}
	g.bodyHeadBytesLeft = len(g.bodyHead)
	return nil
}

// isOversized reports whether the current packet is longer than the limit.
func (g *packetValidator) isOversized() bool { return g.packetBytes > g.maxPacketBytes }

// bodySizeRange returns the minimum and maximum body length in bytes of a packet of the given kind.
func bodySizeRange(kind byte) (least, most int) {
	const unbounded = 1 << 28
	switch kind {
	case packets.Publish, packets.Suback:
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
			return fmt.Errorf("CONNACK with unknown code %d", code)
		}
		return nil
	default:
		return g.checkAckPacket(kind, number)
	}
}

func (g *packetValidator) checkTopicLength(length int) error {
	need := length + 2*int(g.typeAndFlags>>1&3)
	switch {
	case length == 0:
		return fmt.Errorf("PUBLISH without a topic")
	case need > g.packetBytesLeft:
		return fmt.Errorf("PUBLISH needs %d bytes for topic and packet id but has only %d", need, g.packetBytesLeft)
	}
	return nil
}

// checkAckPacket checks that an acknowledgement matches a recorded SUBSCRIBE.
func (g *packetValidator) checkAckPacket(kind byte, id uint16) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	asked, subscribing := g.filterCountByPacketID[id]
	switch {
	case kind != packets.Suback && subscribing:
		return fmt.Errorf("%s in response to SUBSCRIBE", packets.PacketNames[kind])
	case kind != packets.Suback:
		return nil
	case !subscribing:
		return fmt.Errorf("SUBACK without a matching SUBSCRIBE")
	case g.packetBytesLeft != asked:
		return fmt.Errorf("SUBACK with %d codes for %d filters", g.packetBytesLeft, asked)
	}
	delete(g.filterCountByPacketID, id)
	return nil
}

// recordOutgoingSubscribe records the number of filters of an outgoing SUBSCRIBE. It relies on paho writing each packet
// with a single call. If a new version of paho did not, every SUBACK would be rejected and tests would fail.
func (g *packetValidator) recordOutgoingSubscribe(p []byte) {
	if len(p) == 0 || p[0]>>4 != packets.Subscribe {
		return
	}
	_, n := binary.Uvarint(p[1:]) // MQTT encodes lengths as varints
	if n <= 0 || len(p) < 1+n+2 {
		return
	}
	p = p[1+n:]
	id := binary.BigEndian.Uint16(p)
	filters := 0
	for p = p[2:]; len(p) > 2; filters++ {
		size := 2 + int(binary.BigEndian.Uint16(p)) + 1 // the filter is followed by one byte for the QoS
		p = p[min(size, len(p)):]
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.filterCountByPacketID[id] = filters
}
