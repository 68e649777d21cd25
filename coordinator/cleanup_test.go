package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/cleanup"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// kept returns the retained topics of the broker without their prefix, except blob topics.
func kept(f *federation) (topics []string) {
	conn := f.broker.Connect("looker", nil)
	defer conn.Close()
	conn.Subscribe(mqtt.AtMostOnce, "#")
	for {
		synctest.Wait()
		select {
		case e := <-conn.Events():
			m, ok := e.(mqtt.MessageReceived)
			if topic := strings.TrimPrefix(m.Topic, "fl/v1/"+fedName+"/"); ok && m.Retained && topic[0] != 'm' {
				topics = append(topics, topic)
			}
		default:
			slices.Sort(topics)
			return topics
		}
	}
}

// TestForeignRetained checks that foreign retained messages are deleted at the start, after each connect and every
// hour, and that the agents of their topics are reported. Messages that the protocol retains are kept.
func TestForeignRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		someone := f.broker.Connect("someone", nil)
		defer someone.Close()
		retain := func(topics ...string) {
			for _, topic := range topics {
				if err := someone.Publish(mqtt.Message{Topic: "fl/v1/" + fedName + "/" + topic, Payload: []byte{1},
					Retained: true}); err != nil {
					t.Fatal(err)
				}
			}
		}
		told := func(want cleanup.ForeignMessagesDeleted) {
			t.Helper()
			all := events[cleanup.ForeignMessagesDeleted](f)
			if len(all) == 0 || all[len(all)-1].DeletedTopics != want.DeletedTopics ||
				!slices.Equal(all[len(all)-1].TopicAgents, want.TopicAgents) {
				t.Errorf("told: %+v, want %+v at last", all, want)
			}
		}
		by := func(agents ...wire.AgentID) []wire.AgentID { return agents }
		retain("d/plant-a0", "u/0/plant-a1/7f/0", "u/0/plant-a1/7f/m", "u/0/plant-a0/other/name", "s/plant-a1",
			"s/plant-none",
			"x/plant-a0/3/1", "x/some/thing/else", "p/plant-gone", "b/cell/plant-gone", "b/cell/plant-a0",
			"b/other/plant-a0", "b/third/plant-a0")
		f.start()
		f.finished(time.Hour)
		stays := []string{"b/cell/plant-a0", "p/plant-a0", "p/plant-a1", "round"}
		if got := kept(f); !slices.Equal(got, stays) {
			t.Errorf("kept at the start: %q, want %q", got, stays)
		}
		told(cleanup.ForeignMessagesDeleted{DeletedTopics: 12, TopicAgents: by("a0", "a1", "gone", "none")})

		retain("u/0/plant-a1/7f/0")
		f.broker.Disconnect(f.topics.ClientID(wire.CoordinatorID))
		f.broker.Reconnect(f.topics.ClientID(wire.CoordinatorID))
		wait(time.Minute)
		if got := kept(f); !slices.Equal(got, stays) {
			t.Errorf("kept after a connect: %q, want %q", got, stays)
		}
		told(cleanup.ForeignMessagesDeleted{DeletedTopics: 1, TopicAgents: by("a1")})

		retain("x/plant-a0/3/1", "x/plant-a0/4/1")
		wait(time.Minute)
		if got := kept(f); len(got) != len(stays)+2 {
			t.Errorf("kept before the hour is over: %q", got)
		}
		wait(time.Hour)
		if got := kept(f); !slices.Equal(got, stays) {
			t.Errorf("kept after an hour: %q, want %q", got, stays)
		}
		told(cleanup.ForeignMessagesDeleted{DeletedTopics: 2, TopicAgents: by("a0")})
		for _, d := range events[coordinator.MessageDropped](f) {
			t.Errorf("dropped: %+v", d)
		}
	})
}

// TestSweepsBecomeSeldom checks that if messages reappear after each deletion, the cleanups slow down to one per hour.
func TestSweepsBecomeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		someone := f.broker.Connect("someone", nil)
		defer someone.Close()
		foreign := mqtt.Message{Topic: "fl/v1/" + fedName + "/u/0/plant-a1/7f/0", Payload: []byte{1}, Retained: true}
		retain := func() {
			if err := someone.Publish(foreign); err != nil {
				t.Fatal(err)
			}
		}
		retain()
		f.coord.moment = func(event any) {
			if _, told := event.(cleanup.ForeignMessagesDeleted); told {
				retain()
			}
		}
		f.start()
		f.finished(time.Hour)
		wait(24 * time.Hour)
		told := events[cleanup.ForeignMessagesDeleted](f)
		if len(told) < 24 || len(told) > 40 {
			t.Errorf("told %d times in a day, want once an hour after the first", len(told))
		}
	})
}

// TestSweepIsCut checks that a cleanup which is interrupted by a lost connection reports the messages that it deleted.
func TestSweepIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{Drop: func(topic string) bool { return topic == endOfPeers }})
		someone := f.broker.Connect("someone", nil)
		defer someone.Close()
		err := someone.Publish(mqtt.Message{Topic: "fl/v1/" + fedName + "/s/plant-a1", Payload: []byte{1},
			Retained: true})
		if err != nil {
			t.Fatal(err)
		}
		f.start()
		wait(time.Second)
		if told := events[cleanup.ForeignMessagesDeleted](f); len(told) > 0 {
			t.Fatalf("the sweep has ended: %+v", told)
		}
		f.broker.Disconnect(f.topics.ClientID(wire.CoordinatorID))
		wait(time.Second)
		if told := events[cleanup.ForeignMessagesDeleted](f); len(told) != 1 || told[0].DeletedTopics != 1 {
			t.Errorf("told: %+v", told)
		}
	})
}

// endOfPeers is the topic of the probe that ends a cleanup.
const endOfPeers = "fl/v1/" + fedName + "/x/" + fedName + "-coordinator/0/0"
