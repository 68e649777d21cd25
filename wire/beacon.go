package wire

import "fmt"

// MaxHeard bounds the agents of a cell that a beacon names.
const MaxHeard = 255

// Beacon says that an agent is there, to the others of its cell, and what it has heard of them. Its head has no run and
// no round. A beacon and the one that answers it are a ping and its answer: no others are needed.
type Beacon struct {
	Next     uint32 // milliseconds within which the sender's next beacon comes
	Stamp    uint64 // of the sender's clock, in microseconds; means nothing to others
	Degree   uint16 // most neighbours that the sender takes
	Location Location
	Heard    []Heard // by id, without the sender
}

// Heard is what a beacon's sender knows of another agent of the cell.
type Heard struct {
	PeerAddress
	Stamp uint64 // of that agent's newest beacon
	Held  uint32 // microseconds between its coming and this beacon
	RTT   uint32 // round-trip time to that agent, in microseconds; 0 = not known yet
}

// AppendBeacon appends a beacon's message to dst.
func AppendBeacon(dst []byte, h PeerHead, b *Beacon) []byte {
	w := writer{dst}
	w.peerHead(h)
	w.u32(b.Next)
	w.u64(b.Stamp)
	w.u16(b.Degree)
	w.location(b.Location)
	w.u32(uint32(len(b.Heard)))
	for i := range b.Heard {
		h := &b.Heard[i]
		w.peerAddress(h.PeerAddress)
		w.u64(h.Stamp)
		w.u32(h.Held)
		w.u32(h.RTT)
	}
	return w.b
}

// DecodeBeacon reads a beacon's message.
func DecodeBeacon(p []byte) (PeerHead, Beacon, error) {
	h, rest, err := DecodePeerHead(p)
	if err != nil {
		return PeerHead{}, Beacon{}, err
	}
	if h.Type != PeerBeacon || h.Run != 0 || h.Round != 0 {
		return PeerHead{}, Beacon{},
			fmt.Errorf("beacon: %w: type %d, run %d, round %d", ErrMalformed, h.Type, h.Run, h.Round)
	}
	r := reader{b: rest}
	b := Beacon{Next: r.u32(), Stamp: r.u64(), Degree: r.u16(), Location: r.location()}
	for range r.count("agents", MaxHeard, 27) {
		h := Heard{PeerAddress: r.peerAddress(), Stamp: r.u64(), Held: r.u32(), RTT: r.u32()}
		if n := len(b.Heard); n > 0 && b.Heard[n-1].ID >= h.ID {
			r.failf("agent %q after %q: they must ascend", h.ID, b.Heard[n-1].ID)
		}
		b.Heard = append(b.Heard, h)
	}
	return h, b, r.done("beacon")
}
