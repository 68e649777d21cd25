package coordinator_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// herald records all announcements that anyone publishes for a federation.
type herald struct {
	f    *federation
	conn *memory.Conn

	mu   sync.Mutex
	said []announced
}

type announced struct {
	order   wire.AnnouncementPosition
	ann     wire.Announcement
	payload []byte
}

func newHerald(f *federation) *herald {
	h := &herald{f: f, conn: f.broker.Connect("herald", nil)}
	h.conn.Subscribe(mqtt.AtLeastOnce, f.topics.Announcement())
	go func() {
		for e := range h.conn.Events() {
			if m, ok := e.(mqtt.MessageReceived); ok && len(m.Payload) > 0 && string(m.Payload) != "junk" {
				h.hear(m.Payload)
			}
		}
	}()
	f.t.Cleanup(func() { _ = h.conn.Close() })
	return h
}

func (h *herald) hear(p []byte) {
	e, err := wire.ParseEnvelope(p)
	if err != nil {
		h.f.t.Error(err)
		return
	}
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		h.f.t.Error(err)
	}
	h.mu.Lock()
	h.said = append(h.said, announced{wire.AnnouncementPositionOf(e.Header, &a), a, p})
	h.mu.Unlock()
}

func (h *herald) all() []announced {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]announced(nil), h.said...)
}

// last returns the newest announcement.
func (h *herald) last() announced {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said[len(h.said)-1]
}

// say publishes an announcement on the topic that the coordinator uses.
func (h *herald) say(payload []byte) {
	if err := h.conn.Publish(mqtt.Message{Topic: h.f.topics.Announcement(), Payload: payload, QoS: mqtt.AtLeastOnce,
		Retained: true}); err != nil {
		h.f.t.Error(err)
	}
}

// checkOneModel checks that each round of an epoch has only one base model.
func (h *herald) checkOneModel() {
	h.f.t.Helper()
	bases := map[wire.AnnouncementPosition]wire.Digest{}
	for _, a := range h.all() {
		place := wire.AnnouncementPosition{Epoch: a.order.Epoch, Run: a.order.Run, Round: a.order.Round}
		if a.ann.Phase == wire.PhaseFinished || a.ann.Phase == wire.PhaseIdle {
			place.Round++ // the announced model is for the next round
		}
		if before, ok := bases[place]; ok && before != a.ann.BaseModel.Hash {
			h.f.t.Errorf("round %d is announced with two models", place.Round)
		}
		bases[place] = a.ann.BaseModel.Hash
	}
}

// behind waits until a process ends with an OutdatedError and returns that error.
func (p *process) behind(limit time.Duration) *duplicate.OutdatedError {
	p.f.t.Helper()
	select {
	case <-p.life.done:
	case <-time.After(limit):
		p.f.t.Fatalf("after %v %s still runs; the last events:\n%s", limit, p.id, p.f.tail(40))
	}
	var behind *duplicate.OutdatedError
	if err := p.life.err; !errors.As(err, &behind) {
		p.f.t.Fatalf("%s ended with %v", p.id, err)
	}
	p.life = nil
	return behind
}

func (f *federation) closed(n int) func() bool {
	return func() bool { return len(events[round.RoundClosed](f)) >= n }
}

// putBack returns a federation whose coordinator stopped after six rounds. Its state folder is then restored to the
// state after two rounds.
func putBack(t *testing.T) (*federation, *herald) {
	f := newFederation(t, 3, memory.Options{})
	f.cfg.Round.MaxAggregations = 8
	h := newHerald(f)
	f.start()
	f.until(time.Hour, "two rounds", f.closed(2))
	backup := f.coord.frozen()
	f.until(time.Hour, "six rounds", f.closed(6))
	f.coord.stop()
	wait(time.Second) // wait until agents have received the last announcement
	f.coord.dir = backup
	return f, h
}

// TestOlderCopy checks that a coordinator with an older copy of its state folder refuses to start, reports both
// positions and does not change the folder. Once its epoch is raised, the coordinator continues from the older
// position, and the agents follow it.
func TestOlderCopy(t *testing.T) {
	for _, tt := range []struct {
		name string
		mend func(t *testing.T, p *process)
	}{
		{"restore", func(t *testing.T, p *process) {
			place, err := runs.RaiseEpoch(p.dir)
			if err != nil || place.Epoch != 2 {
				t.Fatal(place, err)
			}
		}},
		{"take over", func(_ *testing.T, p *process) { p.takeOver = true }},
		{"new run", func(_ *testing.T, p *process) { p.newRun = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, h := putBack(t)
				newest := h.last().order
				before := journalOf(t, f)
				f.coord.start()
				why := f.coord.behind(time.Minute)
				if why.NewestPosition != newest || why.OwnPosition.Compare(newest) >= 0 || why.OwnPosition.Round < 2 {
					t.Errorf("%v; the newest is %v", why, newest)
				}
				if journalOf(t, f) != before {
					t.Error("the journal is another than before")
				}
				n := len(h.all())
				tt.mend(t, f.coord)
				f.coord.start()
				f.finished(time.Hour)
				wait(time.Second)
				last := h.last()
				if last.order.Phase != wire.PhaseFinished {
					t.Errorf("the last announcement is %v", last.order)
				}
				for _, a := range h.all()[n:] {
					if want := wire.Epoch(2); tt.name != "new run" && a.order.Epoch != want || a.order.Epoch > want {
						t.Errorf("%v, want epoch %d", a.order, want)
					}
				}
				h.checkOneModel()
				for _, a := range f.agents {
					obeyed := events[agentround.AnnouncementObeyed](f, a.id)
					if o := obeyed[len(obeyed)-1].Position; o != last.order {
						t.Errorf("%s obeys %v", a.id, o)
					}
				}
				f.coord.stop() // the restart that follows must keep the raised epoch
				f.coord.takeOver, f.coord.newRun = false, false
				f.coord.start()
				wait(time.Minute)
				if o := h.last().order; o.Epoch != last.order.Epoch || o.Compare(last.order) <= 0 {
					t.Errorf("after a restart %v follows %v", o, last.order)
				}
			})
		})
	}
}

// TestTwoCoordinators checks that of two coordinators with one key and copies of one state folder, exactly one
// continues, and that no round has two base models. The broker closes the older of two connections with one client id,
// and the client reconnects.
func TestTwoCoordinators(t *testing.T) {
	for _, tt := range []struct {
		name   string
		closed int // number of finished rounds before the copy is started
	}{{"a fresh copy", 3}, {"an older copy", 6}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3,
					memory.Options{Delay: func(string) time.Duration { return 20 * time.Millisecond }})
				f.cfg.Round.MaxAggregations = 20
				link := f.connect
				f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
					if will != nil {
						return link(clientID, will)
					}
					return f.broker.Session(clientID, nil, func() time.Duration { return time.Second })
				}
				h := newHerald(f)
				first := f.coord
				second := &process{f: f, id: first.id, key: first.key}
				f.start()
				f.until(time.Hour, "three rounds", f.closed(3))
				second.dir = first.frozen()
				f.until(time.Hour, "more rounds", f.closed(tt.closed))
				second.start()
				defer second.stop()
				var why error
				select {
				case <-first.life.done:
					why, first.life = first.life.err, nil
				case <-second.life.done:
					why, second.life = second.life.err, nil
				case <-time.After(time.Minute):
					t.Fatalf("both go on:\n%s", f.tail(40))
				}
				var behind *duplicate.OutdatedError
				if !errors.As(why, &behind) {
					t.Errorf("one ended with %v", why)
				}
				if tt.closed > 3 && second.life != nil {
					t.Error("the older copy goes on")
				}
				f.finished(time.Hour)
				h.checkOneModel()
			})
		})
	}
}

// TestForeignAnnouncementLeads checks that a coordinator stops if another process publishes a later announcement with
// its key. If both positions are equal, the instance number decides, then the digest.
func TestForeignAnnouncementLeads(t *testing.T) {
	for _, tt := range []struct {
		name  string
		later wire.RoundID
		above int64 // instance number in the announcement, minus the coordinator's instance number
		// want is the expected result of comparing the announcement's digest with the digest of the coordinator's
		// announcement.
		want int
		ends bool
	}{
		{"later", 50, -1, 1, true}, {"higher instance", 0, 1, 1, true}, {"lower instance", 0, -1, -1, false},
		{"smaller digest", 0, 0, -1, true}, {"larger digest", 0, 0, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				f.cfg.Round.PauseBetweenRounds = time.Hour
				h := newHerald(f)
				f.start()
				f.until(time.Hour, "a round", f.closed(1))
				wait(time.Second)
				newest := h.last()
				own, err := wire.ParseEnvelope(newest.payload)
				if err != nil {
					t.Fatal(err)
				}
				head := own.Header
				head.Round += tt.later
				newest.ann.InstanceNonce += uint64(tt.above)
				for {
					head.Sequence++
					other := wire.SignEnvelope(nil, head, newest.ann.Body(), f.coord.key)
					e, err := wire.ParseEnvelope(other)
					if err != nil {
						t.Fatal(err)
					}
					d, mine := e.Digest(), own.Digest()
					if bytes.Compare(d[:], mine[:]) == tt.want {
						h.say(other)
						break
					}
				}
				if tt.ends {
					if b := f.coord.behind(time.Minute); b.NewestPosition.Round != newest.order.Round+tt.later {
						t.Errorf("ended with %v", b)
					}
					return
				}
				f.until(time.Minute, "told",
					func() bool { return len(events[duplicate.ForeignAnnouncementSeen](f)) > 0 })
			})
		})
	}
}

// TestForeignAnnouncement checks that an old announcement which is published during a run is reported, and that the
// broker does not keep it as the retained announcement.
func TestForeignAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		h := newHerald(f)
		f.start()
		f.finished(time.Hour)
		f.coord.stop() // the running process would recognise its own announcements
		f.coord.start()
		wait(time.Minute)
		said := h.all()
		h.say(said[0].payload)
		wait(time.Minute)
		told := events[duplicate.ForeignAnnouncementSeen](f)
		if len(told) != 1 || told[0].Foreign != said[0].order || told[0].Own != said[len(said)-1].order {
			t.Errorf("told: %+v", told)
		}
		if after := h.all(); after[len(after)-1].order != said[len(said)-1].order {
			t.Errorf("%v is retained", after[len(after)-1].order)
		}
	})
}

// TestOverwrittenAnnouncement checks that the coordinator publishes its announcement again after a stranger replaced or
// deleted the retained one.
func TestOverwrittenAnnouncement(t *testing.T) {
	for name, junk := range map[string]string{"junk": "junk", "deleted": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 3, memory.Options{})
				h := newHerald(f)
				f.start()
				f.finished(time.Hour)
				wait(time.Minute)
				last := h.last()
				stranger := f.broker.Connect("stranger", nil)
				defer func() { must(t, stranger.Close()) }()
				for range 2 {
					must(t, stranger.Publish(mqtt.Message{Topic: f.topics.Announcement(), Payload: []byte(junk),
						Retained: true}))
					wait(time.Minute)
				}
				late := f.broker.Connect("late", nil)
				late.Subscribe(mqtt.AtLeastOnce, f.topics.Announcement())
				var got []byte
				for got == nil {
					select {
					case e := <-late.Events():
						if m, ok := e.(mqtt.MessageReceived); ok {
							got = m.Payload
						}
					case <-time.After(time.Minute):
						got = []byte("nothing")
					}
				}
				must(t, late.Close())
				if !bytes.Equal(got, last.payload) {
					t.Errorf("the broker retains %.20q, want the announcement of %v", got, last.order)
				}
			})
		})
	}
}

// TestStaleAnnouncement simulates a cluster whose nodes deliver a new announcement but return the previous announcement
// to new subscribers. The coordinator must publish it again, and the round must continue.
func TestStaleAnnouncement(t *testing.T) {
	for _, behind := range []wire.AgentID{wire.CoordinatorID, "a0"} {
		t.Run(string(behind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *federation
				f = newFederation(t, 3, memory.Options{ServeStaleRetained: func(client, topic string) bool {
					return client == f.topics.ClientID(behind) && topic == f.topics.Announcement()
				}, Delay: func(string) time.Duration { return 20 * time.Millisecond }})
				h := newHerald(f)
				missed := f.topics.ClientID("a0")
				f.coord.moment = func(event any) {
					if o, ok := event.(round.RoundOpened); ok && o.Round == 3 {
						// disconnect the client while the announcement is in transit to the agent
						f.broker.Disconnect(missed)
					}
				}
				f.start()
				f.until(time.Hour, "the round is open", func() bool { return len(events[round.RoundOpened](f)) == 3 })
				wait(time.Minute) // the retained announcement must remain in place
				said := len(h.all())
				f.broker.Reconnect(missed)
				f.until(30*time.Second, "the round goes on", f.closed(3))
				open := h.all()[said-1]
				again := 0
				for _, a := range h.all() {
					if a.order == open.order {
						again++
					}
				}
				if again != 2 {
					t.Errorf("the announcement of %v was published %d times, want twice", open.order, again)
				}
			})
		})
	}
}

// TestAgentsAhead checks that agents reveal that the state folder is an older copy, even if the broker has lost the
// retained announcement.
func TestAgentsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := putBack(t)
		newest := h.last().order
		f.agents[0].stop() // a restarted agent stores only the position of the announcement that it followed
		h.say(nil)
		f.agents[0].start()
		f.coord.start()
		n := len(events[round.RoundOpened](f))
		f.until(time.Hour, "told", func() bool {
			told := events[duplicate.AheadAgentsChanged](f)
			return len(told) > 0 && told[len(told)-1].Agents == 3
		})
		told := events[duplicate.AheadAgentsChanged](f)
		if last := told[len(told)-1]; last.NewestRun != newest.Run || last.NewestRound != newest.Round {
			t.Errorf("%+v, want the place %v", last, newest)
		}
		if opened := events[round.RoundOpened](f)[n:]; len(opened) > 1 { // only the round in the journal may open
			t.Errorf("opened: %+v", opened)
		}
		f.coord.stop()
		if _, err := runs.RaiseEpoch(f.coord.dir); err != nil {
			t.Fatal(err)
		}
		f.coord.start()
		f.finished(time.Hour)
		if told := events[duplicate.AheadAgentsChanged](f); told[len(told)-1].Agents == 3 && len(told) > 3 {
			t.Errorf("told after the restore: %+v", told)
		}
	})
}

// TestLostFolder checks that a coordinator whose state folder was lost does not begin a run while the broker retains an
// announcement with its key. Until --new-run is used, each start fails with an error that names both possible commands.
func TestLostFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *federation
		var deaf atomic.Bool // true while the broker delivers no announcements
		f = newFederation(t, 3, memory.Options{Drop: func(topic string) bool {
			return deaf.Load() && topic == f.topics.Announcement()
		}})
		h := newHerald(f)
		f.start()
		f.until(time.Hour, "a round", f.closed(1))
		f.coord.stop()
		before := h.last().order
		f.coord.dir = t.TempDir()
		for try := range 3 { // the first failed start must not change the folder
			wait(time.Hour) // the run of a new folder has a higher number
			if try == 2 {   // a process that ends before it has read the retained announcement
				deaf.Store(true)
				f.coord.start()
				wait(time.Second)
				f.coord.stop()
				deaf.Store(false)
			}
			f.coord.start()
			life := f.coord.life
			why := f.coord.behind(time.Minute)
			if why.NewestPosition.Run != before.Run || h.last().order.Run != before.Run {
				t.Errorf("refused for run %d, announced is run %d; want run %d", why.NewestPosition.Run,
					h.last().order.Run,
					before.Run)
			}
			for _, want := range []string{"coordinator restore BACKUP", "coordinator run --new-run"} {
				if text := life.err.Error(); !strings.Contains(text, want) {
					t.Errorf("%s does not name %q", text, want)
				}
			}
		}
		f.coord.newRun = true
		f.coord.start()
		f.finished(time.Hour)
		if h.last().order.Run <= before.Run {
			t.Errorf("the last announcement is of run %d, want a new one", h.last().order.Run)
		}
	})
}

// TestFutureRun checks that new runs can begin after the loss of a run whose id came from a clock ten years ahead.
func TestFutureRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		h := newHerald(f)
		f.start()
		f.until(time.Hour, "a round", f.closed(1))
		f.coord.stop()
		ahead := h.last()
		future := wire.Header{
			Root: wire.FirstRootVersion,
			Type: wire.TypeAnnouncement, Federation: fedName, Sender: wire.CoordinatorID, Epoch: 1,
			Run: ahead.order.Run + wire.RunID((10 * 365 * 24 * time.Hour).Milliseconds()), Round: 7, Sequence: 1,
		}
		h.say(wire.SignEnvelope(nil, future, ahead.ann.Body(), f.coord.key))
		wait(time.Second)
		f.coord.dir = t.TempDir()
		f.coord.start()
		if why := f.coord.behind(time.Minute); why.NewestPosition.Run != future.Run {
			t.Error(why)
		}
		f.coord.newRun = true
		f.coord.start()
		f.finished(time.Hour)
		f.coord.stop()
		f.coord.newRun = false
		f.coord.start()
		wait(time.Minute)
		if last := h.last().order; last.Epoch != 2 || last.Run >= future.Run ||
			last.Phase != wire.PhaseFinished {
			t.Errorf("the last announcement is %v", last)
		}
	})
}

// TestRoundTopicUnread checks that a broker which returns no announcements does not prevent work, and that the number
// of queries is limited.
func TestRoundTopicUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 1, memory.Options{})
		f.cfg.Round.MaxAggregations = 1
		h := newHerald(f)
		link := f.connect
		f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
			if will != nil {
				return link(clientID, will)
			}
			return deaf{link(clientID, will), f.topics.Announcement()}
		}
		f.start()
		f.finished(time.Hour)
		wait(time.Hour)
		if n := len(h.all()); n > 10 {
			t.Errorf("%d announcements were published", n)
		}
	})
}

// TestLostAnnouncement checks that the coordinator publishes an announcement again if the broker has lost it.
func TestLostAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 1, memory.Options{})
		f.cfg.Round.MaxAggregations = 2
		h := newHerald(f)
		link, lost := f.connect, 0
		f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
			if will != nil {
				return link(clientID, will)
			}
			return leaky{link(clientID, will), func(m mqtt.Message) bool {
				if m.Topic != f.topics.Announcement() || len(m.Payload) == 0 || lost == 3 {
					return false
				}
				lost++
				return true
			}}
		}
		f.start()
		f.finished(time.Minute)
		if lost != 3 {
			t.Errorf("%d announcements were lost, want 3", lost)
		}
		wait(time.Hour)
		if n := len(h.all()); n > 10 {
			t.Errorf("%d announcements were published", n)
		}
	})
}

// leaky is a connection that silently drops some publications.
type leaky struct {
	mqtt.Conn
	lost func(m mqtt.Message) bool
}

func (l leaky) Publish(m mqtt.Message) error {
	if l.lost(m) {
		return nil
	}
	return l.Conn.Publish(m)
}

// deaf is a connection that silently receives no messages on a topic.
type deaf struct {
	mqtt.Conn
	topic string
}

func (d deaf) Subscribe(qos mqtt.QoS, filters ...string) {
	for _, filter := range filters {
		if filter != d.topic {
			d.Conn.Subscribe(qos, filter)
		}
	}
}

// journalOf returns the contents of the journal files.
func journalOf(t *testing.T, f *federation) string {
	t.Helper()
	return string(contents(t, f.coord.path("run.a"))) + string(contents(t, f.coord.path("run.b")))
}
