package mqtt

import "sync/atomic"

// Bytes that the network adds and a session does not see: to each packet
// of MQTT the headers of a TCP segment and of its acknowledgement, a TLS record
// and a WebSocket frame; to long packets the same for every further segment,
// as a fraction; to a connection its opening and its end, and TLS's handshake
// with a chain of certificates each way.
const (
	packetOverheadBytes     = 130
	segmentOverheadDivisor  = 16 // one byte for this many
	connectionOverheadBytes = 600
	tlsHandshakeBytes       = 8 << 10
	httpUpgradeBytes        = 1 << 10 // to WebSocket, or through a proxy
)

// TrafficMeter counts the bytes that sessions move over the network, in both
// directions, as a mobile operator would: what the network adds is estimated,
// rather too high. The zero Meter is ready. It may be read at any time.
type TrafficMeter struct{ total atomic.Uint64 }

// TotalBytes returns the bytes so far.
func (m *TrafficMeter) TotalBytes() uint64 { return m.total.Load() }

// AddTraffic adds bytes of MQTT in this many packets. A nil Meter counts nothing.
func (m *TrafficMeter) AddTraffic(bytes, packets int) {
	m.addBytes(bytes + (bytes+segmentOverheadDivisor-1)/segmentOverheadDivisor + packets*packetOverheadBytes)
}

func (m *TrafficMeter) addBytes(bytes int) {
	if m != nil {
		m.total.Add(uint64(bytes))
	}
}
