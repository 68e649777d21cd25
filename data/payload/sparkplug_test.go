package payload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/sparkplug"
)

// sparkplugStep is a message of a Sparkplug session with the expected readings and problem.
type sparkplugStep struct {
	topic   string
	payload []byte
	want    string // readings of all columns, as in readingsText
	problem string // part of the problem of the node; "" means none
	command bool   // whether the decoder requests the birth messages
}

// runSparkplugSession decodes messages in order, which arrive one second apart, and checks the results.
func runSparkplugSession(t *testing.T, d Decoder, steps []sparkplugStep) {
	t.Helper()
	for i, s := range steps {
		c, err := d.Decode(Message{Topic: s.topic, Payload: s.payload, ReceivedAt: arrivalTime.Add(time.Duration(i) *
			time.Second)})
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := readingsText(c.readings); got != s.want {
			t.Errorf("step %d: readings %q, want %q", i, got, s.want)
		}
		p := c.NodeProblem
		if p == nil {
			p = &NodeProblem{}
		}
		if !strings.Contains(p.Problem, s.problem) || (p.Problem == "") != (s.problem == "") ||
			(p.CommandTopic != "") != s.command {
			t.Errorf("step %d: %+v, want problem %q and command %t", i, p, s.problem, s.command)
		}
	}
}

func aliased(name string, alias, number uint64) sparkplug.Metric {
	return sparkplug.Metric{Name: name, Alias: alias, HasAlias: true, DataType: 1, ValueField: sparkplug.FieldInt,
		Bits: number}
}

func inBar(m sparkplug.Metric) sparkplug.Metric {
	m.Unit = "bar"
	return m
}

// unnamed returns a metric of a data message, which has only an alias and a value.
func unnamed(alias, number uint64) sparkplug.Metric {
	return sparkplug.Metric{Alias: alias, HasAlias: true, ValueField: sparkplug.FieldInt, Bits: number}
}

func bdSeq(n uint64) sparkplug.Metric {
	return sparkplug.Metric{Name: sparkplug.BirthSessionMetric, DataType: 4, ValueField: sparkplug.FieldLong, Bits: n}
}

// TestSparkplugSession checks births, aliases, lost messages, birth requests and deaths.
func TestSparkplugSession(t *testing.T) {
	const nb, nd, ndeath = "spBv1.0/g/NBIRTH/n", "spBv1.0/g/NDATA/n", "spBv1.0/g/NDEATH/n"
	const db, dd, ddeath = "spBv1.0/g/DBIRTH/n/d", "spBv1.0/g/DDATA/n/d", "spBv1.0/g/DDEATH/n/d"
	msg := func(seq uint64, metrics ...sparkplug.Metric) []byte {
		return encodeSparkplug(seq, 1772366400000, metrics...)
	}
	const none = 256 // a death message of a node has no message number
	session := []sparkplugStep{
		// Without a birth message, metric names are known but aliases are not.
		{topic: nd, payload: msg(4, aliased("x", 1, 7), unnamed(2, 8)), want: "x=7@12:00:00",
			problem: "alias 2 is unknown",
			command: true},
		// There is no new request, because the births were requested a second ago.
		{topic: nd, payload: msg(5, unnamed(2, 8)), problem: "alias 2 is unknown"},
		{topic: nb, payload: msg(0, bdSeq(3), aliased("Node Control/Rebirth", 9, 0), aliased("x", 1, 7)),
			want: "x=7@12:00:00"},
		{topic: db, payload: msg(1, inBar(aliased("y", 2, 0xffffffff))), want: "y=-1bar@12:00:00"},
		// The value is decoded with the type and the unit in the birth message.
		{topic: dd, payload: msg(2, unnamed(2, 0xfffffffe)), want: "y=-2bar@12:00:00"},
		{topic: nd, payload: msg(3, sparkplug.Metric{Alias: 1, HasAlias: true, IsNull: true}), want: "x=null@12:00:00"},
		{topic: nd, payload: msg(3, unnamed(1, 8)), want: "x=8@12:00:00"}, // this message is delivered twice
		{topic: "spBv1.0/g/NCMD/n", payload: msg(none, unnamed(1, 8))},
		{topic: dd, payload: msg(6, unnamed(2, 1)), want: "y=1bar@12:00:00",
			problem: "message 6 was received after message 3: messages were lost"},
		{topic: nb, payload: msg(0, bdSeq(4), aliased("x", 5, 1)), want: "x=1@12:00:00"},
		{topic: ndeath, payload: msg(none, bdSeq(3))}, // this is the will of the previous session
		{topic: db, payload: msg(1, aliased("y", 6, 1)), want: "y=1@12:00:00"},
		{topic: ddeath, payload: msg(2), want: "spBv1.0/g/DATA/n/d offline"},
		{topic: ndeath, payload: msg(none, bdSeq(4)), want: "spBv1.0/g/DATA/n offline spBv1.0/g/DATA/n/d offline"},
		{topic: dd, payload: msg(3, aliased("y", 6, 1)), want: "y=1@12:00:00",
			problem: "no birth message has been received"},
		// The death message has removed the definition of this alias.
		{topic: dd, payload: msg(4, unnamed(6, 1)), problem: "metric alias 6 is unknown"},
	}
	runSparkplugSession(t, NewDecoder(FormatSparkplug, Options{RequestsBirths: true}), session)
	for i := range session {
		session[i].command = false
	}
	d := NewDecoder(FormatSparkplug, Options{})
	runSparkplugSession(t, d, session)
	c, err := d.Decode(Message{Topic: nd, Payload: msg(9, unnamed(77, 1)), ReceivedAt: arrivalTime})
	if want := `Sparkplug node "g/n": metric alias 77 is unknown; set rebirth: true for its topic in data.topics`; err != nil ||
		!strings.HasPrefix(c.NodeProblem.Problem, want) {
		t.Errorf("%+v, %v; want %s", c.NodeProblem, err, want)
	}
	if c, err := d.Decode(Message{Topic: nb, Payload: msg(0), IsRetained: true}); err != nil || c.NodeProblem != nil {
		t.Errorf("a retained birth: %+v, %v", c, err)
	}
}

// TestSparkplugSequence checks that the number of messages is counted modulo 256.
func TestSparkplugSequence(t *testing.T) {
	d := NewDecoder(FormatSparkplug, Options{})
	for seq := range uint64(600) {
		topic := "spBv1.0/g/NDATA/n"
		if seq == 0 {
			topic = "spBv1.0/g/NBIRTH/n"
		}
		c, err := d.Decode(Message{Topic: topic, Payload: encodeSparkplug(seq%256, 1)})
		if err != nil || c.NodeProblem.Problem != "" {
			t.Fatalf("message %d: %+v, %v", seq, c.NodeProblem, err)
		}
	}
}

// TestRebirthCommand checks the command that requests birth messages, and that it is repeated after a minute.
func TestRebirthCommand(t *testing.T) {
	d := NewDecoder(FormatSparkplug, Options{RequestsBirths: true})
	var sentAt []int
	for second := range 150 {
		c, err := d.Decode(Message{Topic: "spBv1.0/g/DDATA/n/d", Payload: encodeSparkplug(256, 1, unnamed(1, 1)),
			ReceivedAt: arrivalTime.Add(time.Duration(second) * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if p := c.NodeProblem; p.CommandTopic != "" {
			sentAt = append(sentAt, second)
			command, err := sparkplug.Decode(p.Command)
			if err != nil || p.CommandTopic != "spBv1.0/g/NCMD/n" || len(command.Metrics) != 1 {
				t.Fatalf("%+v, %+v, %v", p, command, err)
			}
			if m := command.Metrics[0]; !command.RequestsRebirth() || m.DataType != sparkplug.Boolean ||
				command.Timestamp != uint64(arrivalTime.UnixMilli())+uint64(second)*1000 {
				t.Errorf("command %+v", command)
			}
		}
	}
	if fmt.Sprint(sentAt) != "[0 60 120]" {
		t.Errorf("births requested at %v", sentAt)
	}
}

// TestSparkplugLimits checks that the numbers of nodes and of metrics are limited.
func TestSparkplugLimits(t *testing.T) {
	d := newSparkplugDecoder(Options{})
	for i := range maxSparkplugNodes + 1 {
		_, err := d.Decode(Message{Topic: fmt.Sprintf("spBv1.0/g/NDATA/n%d", i), Payload: encodeSparkplug(0, 1)})
		if (err != nil) != (i == maxSparkplugNodes) {
			t.Fatalf("node %d: %v", i, err)
		}
	}
	d = newSparkplugDecoder(Options{})
	for i := range maxSparkplugDevices + 1 {
		topic := fmt.Sprintf("spBv1.0/g/DDATA/n%d/d%d", i%8, i)
		_, err := d.Decode(Message{Topic: topic, Payload: encodeSparkplug(0, 1)})
		if (err != nil) != (i == maxSparkplugDevices) {
			t.Fatalf("device %d: %v", i, err)
		}
	}
	// Eight nodes may define all metrics, and define them again after a second birth. A further metric must be
	// rejected.
	d = newSparkplugDecoder(Options{})
	const perNode = maxSparkplugMetrics / 8
	for i := range uint64(16) {
		var metrics []sparkplug.Metric
		for alias := range uint64(perNode) {
			metrics = append(metrics, aliased("m", alias+i*perNode, 0)) // the second birth message uses other aliases
		}
		topic := fmt.Sprintf("spBv1.0/g/NBIRTH/n%d", i%8)
		if _, err := d.Decode(Message{Topic: topic, Payload: encodeSparkplug(0, 1, metrics...)}); err != nil {
			t.Fatalf("birth %d: %v", i, err)
		}
	}
	tooMany := make([]sparkplug.Metric, perNode+1)
	for i := range tooMany {
		tooMany[i] = aliased("m", 8*perNode+uint64(i), 0)
	}
	_, err := d.Decode(Message{Topic: "spBv1.0/g/NBIRTH/n0", Payload: encodeSparkplug(0, 1, tooMany...)})
	if err == nil || !strings.Contains(err.Error(), "more than 65536 Sparkplug metrics with aliases") {
		t.Errorf("a birth with more metrics than before: %v", err)
	}
	for _, tt := range []struct{ topic, name, want string }{
		{"spBv1.0/g/DBIRTH/n0/d", "m", "more than 65536 Sparkplug metrics with aliases"},
		{"spBv1.0/g/NBIRTH/n1", strings.Repeat("m", maxSparkplugName+1),
			"the name and the unit of a metric have 1025 bytes; want at most"},
		{"spBv1.0/g/NBIRTH/" + strings.Repeat("n", maxSparkplugName), "m", "is not a Sparkplug topic"},
	} {
		_, err := d.Decode(Message{Topic: tt.topic, Payload: encodeSparkplug(1, 1, aliased(tt.name, perNode, 0))})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40s: %v, want %s", tt.topic, err, tt.want)
		}
	}
}
