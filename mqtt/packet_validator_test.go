package mqtt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

const guardMost = 1000

// askedFor maps packet ids to the number of filters in SUBSCRIBE packets that were sent.
var askedFor = map[uint16]int{1: 1, 2: 8, 0x0102: 3}

// guarded returns a validator that has recorded the SUBSCRIBE packets in askedFor.
func guarded(t testing.TB) *packetValidator {
	g := newPacketValidator(guardMost)
	for id, n := range askedFor {
		p := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
		p.MessageID = id
		for range n {
			p.Topics, p.Qoss = append(p.Topics, "a/topic"), append(p.Qoss, 1)
		}
		var wire bytes.Buffer
		if err := p.Write(&wire); err != nil {
			t.Fatal(err)
		}
		g.recordOutgoingSubscribe(wire.Bytes())
	}
	return g
}

const connack = "\x20\x02\x00\x00"

// TestGuard checks the validator with valid and invalid packets from a broker (R14).
func TestGuard(t *testing.T) {
	for name, c := range map[string]struct{ sent, want string }{
		"usual": {connack + "\x90\x03\x00\x01\x80" + "\x40\x02\x00\x09" + "\xb0\x02\x00\x07" + "\xd0\x00" +
			"\x30\x04\x00\x01xy" + "\x3b\x06\x00\x01x\x00\x05y" + "\x30\x03\x00\x01x", ""},
		"eight filters":       {connack + "\x90\x0a\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00", ""},
		"refused":             {"\x20\x02\x00\x05", ""},
		"cut short":           {connack + "\x30\x80", ""},
		"largest":             {connack + "\x30\xe5\x07\x00\x01x" + strings.Repeat("y", 994) + "\xd0\x00", ""},
		"one more":            {connack + "\x30\xe6\x07\x00\x01x" + strings.Repeat("y", 995) + "\xd0\x00", ""},
		"256 MiB":             {connack + "\x30\xff\xff\xff\x7f\x00\x01x", ""},
		"one more of SUBACK":  {connack + "\x90\xe6\x07", "SUBACK of 1001 bytes exceeds the limit of 1000 (MaxPacket)"},
		"256 MiB of CONNACK":  {"\x20\xff\xff\xff\x7f", "CONNACK of 268435460 bytes"},
		"oversized topic":     {connack + "\x30\xea\x07\x03\xe8" + strings.Repeat("t", 1000) + "\xd0\x00", ""},
		"no topic, oversized": {connack + "\x30\xe6\x07\x00\x00", "PUBLISH without a topic"},
		"oversized, topic too long": {connack + "\x30\xe6\x07\x03\xe5",
			"997 bytes for topic and packet id but has only 996"},
		"oversized, no room for an id": {connack + "\x32\xe6\x07\x03\xe3",
			"997 bytes for topic and packet id but has only 996"},
		"length of five":      {connack + "\x30\x80\x80\x80\x80", "length field of more than four bytes"},
		"no CONNACK":          {"\xd0", "PINGRESP before CONNACK"},
		"two CONNACK":         {connack + "\x20", "duplicate CONNACK"},
		"unknown code":        {"\x20\x02\x00\x06", "CONNACK with unknown code 6"},
		"long CONNACK":        {"\x20\x03", "CONNACK with invalid remaining length 3"},
		"short CONNACK":       {"\x20\x01", "CONNACK with invalid remaining length 1"},
		"CONNACK flags":       {"\x21", "CONNACK with flags 0x1"},
		"SUBSCRIBE":           {connack + "\x82", "unexpected packet type 8 (SUBSCRIBE)"},
		"type 0":              {connack + "\x00", "unexpected packet type 0 ()"},
		"type 15":             {connack + "\xf0", "unexpected packet type 15 ()"},
		"PUBREC":              {connack + "\x50", "unexpected packet type 5 (PUBREC)"},
		"PUBACK flags":        {connack + "\x42", "PUBACK with flags 0x2"},
		"short PUBACK":        {connack + "\x40\x01", "PUBACK with invalid remaining length 1"},
		"PUBACK too long":     {connack + "\x40\x04", "PUBACK with invalid remaining length 4"},
		"PUBACK of SUBSCRIBE": {connack + "\x40\x02\x00\x02", "PUBACK in response to SUBSCRIBE"},
		"long PINGRESP":       {connack + "\xd0\x01", "PINGRESP with invalid remaining length 1"},
		"UNSUBACK cut":        {connack + "\xb0\x00", "UNSUBACK with invalid remaining length 0"},
		"UNSUBACK for SUB":    {connack + "\xb0\x02\x00\x01", "UNSUBACK in response to SUBSCRIBE"},
		"code too many":       {connack + "\x90\x04\x00\x01", "SUBACK with 2 codes for 1 filters"},
		"code too few":        {connack + "\x90\x09\x00\x02", "SUBACK with 7 codes for 8 filters"},
		"SUBACK twice": {connack + "\x90\x03\x00\x01\x80\x90\x03\x00\x01",
			"SUBACK without a matching SUBSCRIBE"},
		"SUBACK without code": {connack + "\x90\x02", "SUBACK with invalid remaining length 2"},
		"QoS 2":               {connack + "\x34", "PUBLISH with QoS 2"},
		"QoS 3":               {connack + "\x36", "PUBLISH with QoS 3"},
		"no topic":            {connack + "\x30\x03\x00\x00", "PUBLISH without a topic"},
		"topic too long":      {connack + "\x30\x04\x00\x03", "3 bytes for topic and packet id but has only 2"},
		"no room for an id":   {connack + "\x32\x04\x00\x01", "3 bytes for topic and packet id but has only 2"},
	} {
		t.Run(name, func(t *testing.T) {
			whole, cut := guarded(t), guarded(t)
			err := whole.checkIncomingBytes([]byte(c.sent))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			var last error
			for _, b := range []byte(c.sent) {
				if last != nil {
					t.Fatalf("objects before the last byte: %v", last)
				}
				last = cut.checkIncomingBytes([]byte{b})
			}
			if (last == nil) != (err == nil) || err != nil && last.Error() != err.Error() {
				t.Errorf("byte by byte the error is %v, at once %v", last, err)
			}
		})
	}
}

// TestGuardAllocatesNothing checks that validating a stream does not allocate memory, whatever sizes it claims (R14).
func TestGuardAllocatesNothing(t *testing.T) {
	g := newPacketValidator(guardMost)
	if err := g.checkIncomingBytes([]byte(connack)); err != nil {
		t.Fatal(err)
	}
	stream := []byte("\x30\x04\x00\x01xy\xd0\x00\x40\x02\x00\x09")
	if n := testing.AllocsPerRun(100, func() { _ = g.checkIncomingBytes(stream) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var errReference = errors.New("reference: refused")

// reference is a simple validator of a complete stream, packet by packet, to which packetValidator is compared.
func reference(stream []byte, asked map[uint16]int) error {
	for first := true; len(stream) > 0; first = false {
		kind, flags := stream[0]>>4, stream[0]&15
		sizes, known := map[byte][2]int{2: {2, 2}, 3: {3, 1 << 28}, 4: {2, 2}, 9: {3, guardMost}, 11: {2, 2},
			13: {0, 0}}[kind]
		if !known || first != (kind == 2) || kind != 3 && flags != 0 || kind == 3 && flags&4 != 0 {
			return errReference
		}
		length, n := binary.Uvarint(stream[1:min(5, len(stream))])
		switch {
		case n == 0 && len(stream) >= 5:
			return errReference
		case n == 0:
			return nil // the stream ends within a packet
		case kind != 3 && int(length)+1+n > guardMost || int(length) < sizes[0] || int(length) > sizes[1]:
			return errReference
		}
		body := stream[1+n:]
		if kind != 13 && len(body) >= 2 && !referenceBody(kind, flags, body, int(length), asked) {
			return errReference
		}
		stream = body[min(int(length), len(body)):]
	}
	return nil
}

func referenceBody(kind, flags byte, body []byte, length int, asked map[uint16]int) bool {
	number := int(body[0])<<8 + int(body[1])
	filters := asked[uint16(number)]
	switch {
	case kind == 2:
		return body[1] <= 5
	case kind == 3 && flags&2 != 0:
		return number > 0 && 2+number+2 <= length
	case kind == 3:
		return number > 0 && 2+number <= length
	case kind == 9:
		delete(asked, uint16(number))
		return filters > 0 && filters == length-2
	}
	return filters == 0
}

// oversizedReference returns the size of the stream's first packet if it is an oversized PUBLISH, and otherwise 0.
func oversizedReference(stream []byte) int {
	length, n := binary.Uvarint(stream[1:min(5, len(stream))])
	if size := int(length) + 1 + n; n > 0 && stream[0]>>4 == packets.Publish && size > guardMost {
		return size
	}
	return 0
}

// FuzzGuard checks that the validator agrees with the function reference for any split of the stream, and that paho can
// parse all accepted packets except oversized messages (R14).
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		"", "\x90\x03\x00\x01\x80", "\x30\xff\xff\xff\x7f", "\x30\x80\x80\x80\x80\x01",
		"\x3b\x06\x00\x01x\x00\x05y\xd0\x00",
		"\x90\x05\x01\x02\x00\x01\x80\x40\x02\x01\x02", "\x32\x04\x00\x01xy", "\x30\x80\x00", "\x36\x09\x00\x05topicid",
		"\xd0\x80\x00\x20",
	} {
		f.Add([]byte(connack+s), uint64(len(s)))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		asked := make(map[uint16]int)
		for id, n := range askedFor {
			asked[id] = n
		}
		want := reference(stream, asked)
		cuts := rand.New(rand.NewPCG(seed, 0))
		g := guarded(t)
		var err error
		for rest := stream; len(rest) > 0 && err == nil; {
			n := 1 + cuts.IntN(min(len(rest), 40))
			err = g.checkIncomingBytes(rest[:n])
			rest = rest[n:]
		}
		if (err == nil) != (want == nil) {
			t.Fatalf("guard: %v, reference: %v, for % x", err, want, stream)
		}
		for r := bytes.NewReader(stream); err == nil && r.Len() > 0; {
			before := r.Len()
			if size := oversizedReference(stream[len(stream)-before:]); size > 0 {
				r.Reset(stream[min(len(stream), len(stream)-before+size):])
				continue
			}
			if _, failed := packets.ReadPacket(r); failed != nil && r.Len() > 0 {
				t.Fatalf("paho cannot read the packet at %d of % x: %v", len(stream)-before, stream, failed)
			}
		}
	})
}
