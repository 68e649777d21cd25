package mqtt_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

func topics(t testing.TB) mqtt.Topics {
	t.Helper()
	topics, err := mqtt.NewTopics("", "plant_7")
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

func TestTopics(t *testing.T) {
	ts := topics(t)
	for _, c := range []struct {
		topic, want     string
		kind            mqtt.TopicKind
		agent, id, part string
	}{
		{ts.Announcement(), "fl/v1/plant_7/round", mqtt.KindAnnouncement, "", "", ""},
		{ts.CoordinatorToAgent("pump-1.a"), "fl/v1/plant_7/d/plant_7-pump-1.a", mqtt.KindCoordinatorToAgent,
			"pump-1.a", "", ""},
		{ts.Presence("pump-1.a"), "fl/v1/plant_7/p/plant_7-pump-1.a", mqtt.KindPresence, "pump-1.a", "", ""},
		{ts.AgentToCoordinator("pump-1.a"), "fl/v1/plant_7/s/plant_7-pump-1.a", mqtt.KindAgentToCoordinator,
			"pump-1.a", "", ""},
		{ts.BlobPart("00ff", "m"), "fl/v1/plant_7/m/00ff/m", mqtt.KindBlob, "", "00ff", "m"},
		{ts.BlobPart("00ff", "12"), "fl/v1/plant_7/m/00ff/12", mqtt.KindBlob, "", "00ff", "12"},
		{ts.UpdatePart("a", "X_1", "0"), "fl/v1/plant_7/u/0/plant_7-a/X_1/0", mqtt.KindUpdate, "a", "X_1", "0"},
		{ts.SelfTest("pump-1.a"), "fl/v1/plant_7/s/plant_7-pump-1.a/loop", mqtt.KindSelfTest, "pump-1.a", "", ""},
		{ts.PeerPart("a", 17, "0"), "fl/v1/plant_7/x/plant_7-a/17/0", mqtt.KindPeer, "a", "17", "0"},
		{ts.Beacon("hall-2", "a"), "fl/v1/plant_7/b/hall-2/plant_7-a", mqtt.KindBeacon, "a", "hall-2", ""},
		{ts.RootDocument(2), "fl/v1/plant_7/m/root/2", mqtt.KindRoot, "", "", "2"},
		{ts.SelfTest("coordinator"), "fl/v1/plant_7/m/loop", mqtt.KindSelfTest, "coordinator", "", ""},
	} {
		if c.topic != c.want {
			t.Errorf("topic is %s, want %s", c.topic, c.want)
		}
		kind, agent, id, part, err := ts.ParseTopic(c.topic)
		if err != nil || kind != c.kind || string(agent) != c.agent || id != c.id || part != c.part {
			t.Errorf("Parse(%s) = %v, %q, %q, %q, %v", c.topic, kind, agent, id, part, err)
		}
		if strings.Count(c.topic, "/") > 7 {
			t.Errorf("%s has more slashes than AWS IoT Core allows", c.topic)
		}
	}
	if id := ts.ClientID("a-1"); id != "plant_7-a-1" {
		t.Errorf("client id is %s", id)
	}
}

func TestWildcardsCoverTheTopics(t *testing.T) {
	ts := topics(t)
	for filter, topic := range map[string]string{
		ts.AllUpdatePartsFilter():        ts.UpdatePart("a", "x", "m"),
		ts.AllPresencesFilter():          ts.Presence("a"),
		ts.AllAgentToCoordinatorFilter(): ts.AgentToCoordinator("a"),
		ts.CellBeaconsFilter("c"):        ts.Beacon("c", "a"),
	} {
		if err := mqtt.CheckSubscriptionFilter(mqtt.AtLeastOnce,
			filter); err != nil || !mqtt.FilterMatchesTopic(filter, topic) {
			t.Errorf("%s does not cover %s: %v", filter, topic, err)
		}
	}
}

// TestSelfTestsReachNobodyElse checks that the coordinator does not receive the self-test messages of its devices, and
// that devices do not receive the coordinator's self-test message.
func TestSelfTestsReachNobodyElse(t *testing.T) {
	ts := topics(t)
	for _, loop := range []string{ts.SelfTest("a"), ts.SelfTest("coordinator")} {
		for _, filter := range []string{ts.AllUpdatePartsFilter(), ts.AllPresencesFilter(),
			ts.AllAgentToCoordinatorFilter(),
			ts.Announcement(),
			ts.CoordinatorToAgent("a"),
			ts.Presence("a"), ts.BlobPart("00", "m")} {
			if mqtt.FilterMatchesTopic(filter, loop) {
				t.Errorf("%s brings %s", filter, loop)
			}
		}
	}
}

// TestInvalidNamesGiveTheEmptyTopic checks that a name that would change the topic levels gives the empty topic.
func TestInvalidNamesGiveTheEmptyTopic(t *testing.T) {
	ts := topics(t)
	for _, id := range []wire.AgentID{"", "+", "#", "a/b", "a\x00", "coordinator",
		"ü", wire.AgentID(strings.Repeat("a", 49))} {
		for _, topic := range []string{ts.CoordinatorToAgent(id), ts.Presence(id), ts.AgentToCoordinator(id),
			ts.UpdatePart(id, "x", "m")} {
			if topic != "" {
				t.Errorf("agent %q has topic %s", id, topic)
			}
		}
	}
	for _, topic := range []string{
		ts.ClientID("a/b"),
		ts.BlobPart("", "m"), ts.BlobPart("+", "m"), ts.BlobPart("FF", "m"), ts.BlobPart("ff", ""), ts.BlobPart("ff",
			"+"),
		ts.BlobPart("ff", "01"),
		ts.BlobPart("ff", "1234567"), ts.UpdatePart("a", "", "m"), ts.UpdatePart("a", "x/y", "m"), ts.UpdatePart("a",
			"x", "-1"),
		ts.Beacon("", "a"), ts.Beacon("+", "a"), ts.Beacon("a/b", "a"), ts.Beacon("c", "a/b"),
		ts.CellBeaconsFilter("#"),
		ts.CellBeaconsFilter(strings.Repeat("a", 49)),
		ts.SelfTest("a/b"), ts.SelfTest(""), mqtt.Topics{}.SelfTest("coordinator"), mqtt.Topics{}.Announcement(),
		mqtt.Topics{}.AllUpdatePartsFilter(),
		mqtt.Topics{}.ClientID("a"),
	} {
		if topic != "" {
			t.Errorf("got %s", topic)
		}
	}
	if id := ts.ClientID(wire.CoordinatorID); id != "plant_7-coordinator" {
		t.Errorf("the coordinator's client id is %q", id)
	}
}

func TestNewTopicsRefuses(t *testing.T) {
	for _, c := range []struct{ prefix, federation, want string }{
		{"", "", "federation"},
		{"", "a-b", "federation"},
		{"", "A", "federation"},
		{"fl/+", "a", "prefix"},
		{"/fl", "a", "prefix"},
		{"fl/", "a", "prefix"},
		{"$SYS", "a", "prefix"},
		{strings.Repeat("a", 65), "a", "prefix"},
	} {
		if _, err := mqtt.NewTopics(c.prefix, c.federation); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("prefix %.10q, federation %q: %v", c.prefix, c.federation, err)
		}
	}
}

func TestKindsAreWordsForLabels(t *testing.T) {
	seen := make(map[string]bool)
	for k := mqtt.KindUnknown; k <= mqtt.KindBeacon; k++ {
		seen[k.String()] = true
	}
	for _, word := range []string{"round", "direct", "blob", "update", "presence", "status", "loop", "peer", "beacon",
		"unknown"} {
		if !seen[word] {
			t.Errorf("no kind is %s", word)
		}
	}
	if len(seen) != 10 || mqtt.TopicKind(200).String() != "unknown" {
		t.Errorf("kinds are %v", seen)
	}
}

// FuzzParse checks that ParseTopic accepts exactly the topics that the methods of Topics return.
func FuzzParse(f *testing.F) {
	for _, topic := range []string{
		"round", "d/plant_7-a", "p/plant_7-a.b-c", "s/plant_7-a", "m/0123abcd/m", "m/00/17", "m/loop",
		"s/plant_7-a/loop", "s/plant_7-a/m", "u/0/plant_7-a/x/m", "u/0/plant_7-a/x/9", "x/plant_7-a/9/1",
		"b/c/plant_7-a",
		"", "d/plant_7-", "d/plant_7-coordinator", "d/other-a", "m/00/007", "u/1/plant_7-a/x/m", "u/0/+/+/+", "p/+",
		"round/", "x/1/2/3", "b/+/plant_7-a", "b/plant_7-a",
	} {
		f.Add("fl/v1/plant_7/" + topic)
	}
	ts := topics(f)
	f.Fuzz(func(t *testing.T, topic string) {
		kind, agent, id, part, err := ts.ParseTopic(topic)
		var again string
		switch kind {
		case mqtt.KindUnknown:
			if err == nil || agent != "" || id != "" || part != "" {
				t.Fatalf("unknown, but %q, %q, %q, %v", agent, id, part, err)
			}
			return
		case mqtt.KindAnnouncement:
			again = ts.Announcement()
		case mqtt.KindCoordinatorToAgent:
			again = ts.CoordinatorToAgent(agent)
		case mqtt.KindPresence:
			again = ts.Presence(agent)
		case mqtt.KindAgentToCoordinator:
			again = ts.AgentToCoordinator(agent)
		case mqtt.KindSelfTest:
			again = ts.SelfTest(agent)
		case mqtt.KindBlob:
			again = ts.BlobPart(id, part)
		case mqtt.KindPeer:
			round, err := strconv.ParseUint(id, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			again = ts.PeerPart(agent, wire.RoundID(round), part)
		case mqtt.KindBeacon:
			again = ts.Beacon(id, agent)
		case mqtt.KindUpdate:
			again = ts.UpdatePart(agent, id, part)
		}
		if err != nil || again != topic {
			t.Fatalf("%q is parsed as %v, but made as %q: %v", topic, kind, again, err)
		}
		if err := (mqtt.Message{Topic: topic}).Validate(); err != nil {
			t.Fatalf("accepted, but no topic: %v", err)
		}
	})
}
