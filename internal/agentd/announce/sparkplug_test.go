package announce_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
)

// fields calls see for each field of the protobuf message p.
func fields(t *testing.T, p []byte, see func(n protowire.Number, number uint64, text []byte)) {
	t.Helper()
	for len(p) > 0 {
		n, kind, size := protowire.ConsumeTag(p)
		if size < 0 {
			t.Fatal("invalid protobuf")
		}
		p = p[size:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(p)
		case protowire.Fixed64Type:
			number, size = protowire.ConsumeFixed64(p)
		case protowire.Fixed32Type:
			var v uint32
			v, size = protowire.ConsumeFixed32(p)
			number = uint64(v)
		default:
			text, size = protowire.ConsumeBytes(p)
		}
		if size < 0 {
			t.Fatal("invalid protobuf")
		}
		p = p[size:]
		see(n, number, text)
	}
}

// decodeSparkplug returns a payload as text: its fields, and each metric as name, type, value, unit and time.
func decodeSparkplug(t *testing.T, payload []byte) string {
	var all []string
	fields(t, payload, func(n protowire.Number, number uint64, text []byte) {
		switch n {
		case 1:
			all = append(all, fmt.Sprint("time ", number))
		case 3:
			all = append(all, fmt.Sprint("seq ", number))
		case 2:
			all = append(all, decodeSparkplugMetric(t, text))
		default:
			t.Errorf("field %d", n)
		}
	})
	return strings.Join(all, "\n")
}

func decodeSparkplugMetric(t *testing.T, p []byte) string {
	var parts [5]string
	fields(t, p, func(n protowire.Number, number uint64, text []byte) {
		switch n {
		case 1:
			parts[0] = string(text)
		case 3:
			parts[4] = fmt.Sprint(number)
		case 4:
			parts[1] = fmt.Sprint(number)
		case 7:
			parts[2] = "null"
		case 9:
			parts[3] = strings.ToValidUTF8(strings.Map(func(r rune) rune {
				if r < ' ' {
					return -1
				}
				return r
			}, string(text)), "")
		case 11, 14:
			parts[2] = fmt.Sprint(number)
		case 12:
			parts[2] = fmt.Sprint(math.Float32frombits(uint32(number)))
		case 13:
			parts[2] = fmt.Sprint(math.Float64frombits(number))
		case 15:
			parts[2] = string(text)
		default:
			t.Errorf("field %d of a metric", n)
		}
	})
	return strings.Join(parts[:], "|")
}

// TestSparkplug checks the birth, data and death messages against the Sparkplug 3.0.0 specification. The decoder of
// this test is itself checked with the NDATA message from chapter 6 of the specification.
func TestSparkplug(t *testing.T) {
	documented, err := os.ReadFile("../../../data/sources/testdata/devices/05c-sparkplug-ndata.bin")
	if err != nil {
		t.Fatal(err)
	}
	want(t, decodeSparkplug(t, documented), "time 1486144502122\nSupply Voltage|9|12.3||1486144502122\nseq 2")

	s := newSite(t)
	p := s.start(t.TempDir(), settings.AnnounceSparkplug) // start requests the will once
	number := hall.Now().Unix()%256 + 1
	if filters := []string{"spBv1.0/air/NCMD/hall-1"}; !slices.Equal(s.filters, filters) {
		t.Errorf("filters %v, want %v", s.filters, filters)
	}
	publish(t, p, forecast("t", 0))
	later := forecast("t", 0)
	later.RowTime, later.Residual = later.RowTime.Add(time.Hour), nil
	publish(t, p, later)
	p.Stop(false)
	var got []string
	for _, m := range s.sent {
		if m.Topic != hall.Topic {
			got = append(got, fmt.Sprintf("%s qos %d retained %v\n%s", m.Topic, m.QoS, m.Retained,
				decodeSparkplug(t, m.Payload)))
		}
	}
	const now = "1800000000000"
	birth := "spBv1.0/air/NBIRTH/hall-1 qos 0 retained false\ntime " + now + "\n" +
		fmt.Sprintf("bdSeq|4|%d||%s\n", number, now) + "Node Control/Rebirth|11|0||" + now + "\n" +
		"health/problem|11|0||" + now + "\n"
	values := "t/forecast|10|21.8|engUnitB°C|1772370000000\nt/residual|10|0.5|engUnitB°C|1772370000000\n" +
		"t/anomaly|11|1||1772370000000\nt/model|12|7/42||1772370000000\n"
	data := "spBv1.0/air/NDATA/hall-1 qos 0 retained false\ntime " + now + "\n"
	want(t, strings.Join(got, "\n\n"), birth+"seq 0\n\n"+birth+values+"seq 0\n\n"+data+values+"seq 1\n\n"+data+
		"t/forecast|10|21.8|engUnitB°C|1772373600000\nt/residual|10|null|engUnitB°C|1772373600000\n"+
		"t/anomaly|11|null||1772373600000\nt/model|12|7/42||1772373600000\nseq 2\n\n"+
		fmt.Sprintf("spBv1.0/air/NDEATH/hall-1 qos 1 retained false\ntime %s\nbdSeq|4|%d||%s", now, number, now))
}

// TestSparkplugNumbers checks that a birth has the number of the will, that sequence numbers wrap around after 255, and
// that only a rebirth command is a request.
func TestSparkplugNumbers(t *testing.T) {
	a := announce.New(settings.AnnounceSparkplug, hall)
	for range 300 {
		will := decodeSparkplug(t, a.Will().Payload)
		birth, _ := a.Birth(announce.Health{}, nil)
		line := strings.Split(will, "\n")[1]
		if text := decodeSparkplug(t, birth[0].Payload); !strings.Contains(text, line) {
			t.Fatalf("the will has %s, the birth %s", line, text)
		}
	}
	for n := 1; n < 600; n++ {
		m, err := a.Forecast(forecast("t", 0))
		if err != nil {
			t.Fatal(err)
		}
		if text := decodeSparkplug(t, m[1].Payload); !strings.HasSuffix(text, fmt.Sprintf("\nseq %d", n%256)) {
			t.Fatalf("message %d: %s", n, text)
		}
	}
	if a.IsRequest(mqtt.Message{Payload: []byte("\x12\x08\x0a\x06Reboot")}) {
		t.Error("another command is a request")
	}
}
