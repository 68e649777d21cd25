package mqtt

import "sync/atomic"

// These constants estimate the bytes that the network adds to MQTT packets. Each packet has the headers of a TCP
// segment and of its acknowledgement, a TLS record and a WebSocket frame. A long packet has these headers once per
// segment. A connection is opened and closed, and a TLS handshake sends a certificate chain in each direction.
const (
	packetOverheadBytes     = 130
	segmentOverheadDivisor  = 16 // one byte of overhead for each 16 bytes
	connectionOverheadBytes = 600
	tlsHandshakeBytes       = 8 << 10
	httpUpgradeBytes        = 1 << 10 // upgrade to WebSocket, or CONNECT to a proxy
)

// TrafficMeter counts the bytes that sessions send and receive, as a mobile operator would count them. The overhead of
// the network is estimated, with a tendency to overestimate. The zero TrafficMeter is ready for use. It is safe for
// concurrent use.
type TrafficMeter struct{ total atomic.Uint64 }

// TotalBytes returns the total number of bytes so far.
func (m *TrafficMeter) TotalBytes() uint64 { return m.total.Load() }

// AddTraffic adds MQTT bytes in the given number of packets. It has no effect on a nil meter.
func (m *TrafficMeter) AddTraffic(bytes, packets int) {
	m.addBytes(bytes + (bytes+segmentOverheadDivisor-1)/segmentOverheadDivisor + packets*packetOverheadBytes)
}

func (m *TrafficMeter) addBytes(bytes int) {
	if m != nil {
		m.total.Add(uint64(bytes))
	}
}
