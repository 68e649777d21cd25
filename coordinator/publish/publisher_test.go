package publish

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// narrow is a connection with limited capacity that may accept messages without retaining them.
type narrow struct {
	mqtt.Conn
	b        *Publisher
	now      time.Time
	room     int
	err      error                   // error that the next Publish returns
	loses    func(topic string) bool // reports whether an accepted message is not retained
	mute     bool                    // true if no message is delivered
	lost     map[string][]byte       // messages that were not retained, for delivery to current subscribers
	retained map[string][]byte
	order    []string
	subs     map[string]bool
	inbox    []mqtt.Message
	deleted  int
}

func (c *narrow) Publish(m mqtt.Message) error {
	switch {
	case c.err != nil:
		return c.err
	case c.room == 0:
		return mqtt.ErrOutboxFull
	}
	c.room--
	c.order = append(c.order, m.Topic)
	switch {
	case len(m.Payload) == 0:
		c.deleted++
		delete(c.retained, m.Topic)
	case !m.Retained:
	case c.loses == nil || !c.loses(m.Topic):
		c.retained[m.Topic] = m.Payload
	case c.lost != nil:
		c.lost[m.Topic] = m.Payload
	}
	if c.subs[m.Topic] {
		m.Retained = false
		c.inbox = append(c.inbox, m)
	}
	return nil
}

func (c *narrow) Subscribe(_ mqtt.QoS, topics ...string) {
	for _, t := range topics {
		c.subs[t] = true
		if p, ok := c.retained[t]; ok {
			c.inbox = append(c.inbox, mqtt.Message{Topic: t, Payload: p, Retained: true})
		}
		if p, ok := c.lost[t]; ok {
			c.inbox = append(c.inbox, mqtt.Message{Topic: t, Payload: p})
			delete(c.lost, t)
		}
	}
}

func (c *narrow) Unsubscribe(topics ...string) {
	for _, t := range topics {
		delete(c.subs, t)
	}
}

// deliver delivers messages to the publisher's subscriptions.
func (c *narrow) deliver() {
	for len(c.inbox) > 0 && !c.mute {
		m := c.inbox[0]
		c.inbox = c.inbox[1:]
		if c.subs[m.Topic] {
			c.b.ReceiveBlobPart(c.now, m, path.Base(path.Dir(m.Topic)), path.Base(m.Topic))
		}
	}
}

// pass runs the publisher until the given time has passed.
func (c *narrow) pass(d time.Duration) {
	end := c.now.Add(d)
	for {
		c.deliver()
		at, ok := c.b.Deadline()
		if !ok || at.After(end) {
			c.now = end
			return
		}
		c.now = at
		c.b.AdvanceBeforeWait(c.now)
	}
}

func newPublisher(t *testing.T) (*Publisher, *narrow, *[]BlobReadBackEnded) {
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	var told []BlobReadBackEnded
	c := &narrow{now: time.Unix(1e9, 0), room: 1 << 30, retained: map[string][]byte{}, subs: map[string]bool{}}
	c.b = New(c, topics, rand.New(rand.NewPCG(1, 1)),
		testkit.Observer(func(e observe.Event) { told = append(told, e.(BlobReadBackEnded)) }), func(time.Time) {})
	t.Cleanup(func() {
		c.b.HaltPublishing()
		if len(c.subs) > 0 {
			t.Errorf("subscribed still to %v", slices.Collect(maps.Keys(c.subs)))
		}
	})
	c.b.LinkUp(c.now)
	return c.b, c, &told
}

func modelOf(letter byte) Blob {
	return NewBlob(bytes.Repeat([]byte{letter}, 2*wire.MaxChunkBytes), wire.Digest{})
}

// showModels publishes announcement number n with the given models. Each letter of models is the name of one model.
func (c *narrow) showModels(n byte, models string) {
	var blobs []Blob
	for _, x := range []byte(models) {
		blobs = append(blobs, modelOf(x))
	}
	c.b.Announce(c.now, bytes.Repeat([]byte{n}, wire.HeaderSize+1), blobs, false)
	c.deliver()
}

// kept returns the models with retained parts and the number of these parts.
func (c *narrow) kept() string {
	letters := map[string]string{}
	for _, x := range []byte("aABCDE") {
		letters[modelOf(x).Ref.Hash.TopicLevel()] = string(x)
	}
	parts := map[string]int{}
	for topic := range c.retained {
		if _, rest, ok := strings.Cut(topic, "/m/"); ok {
			parts[letters[path.Dir(rest)]]++
		}
	}
	var all []string
	for _, letter := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, fmt.Sprintf("%s%d", letter, parts[letter]))
	}
	return strings.Join(all, " ")
}

// announced returns the number of the retained announcement, or 0.
func (c *narrow) announced() byte {
	if p := c.retained[c.b.topics.Announcement()]; len(p) > 0 {
		return p[0]
	}
	return 0
}

// TestBoardKeepsTwo checks that blobs are published before their announcement, kept until the announcement after the
// next one, and then deleted.
func TestBoardKeepsTwo(t *testing.T) {
	b, c, told := newPublisher(t)
	for i, step := range []struct{ models, want string }{
		{"aA", "A3 a3"},
		{"aA", "A3 a3"},
		{"aB", "A3 B3 a3"},
		{"aC", "B3 C3 a3"},
		{"aB", "B3 C3 a3"}, // model B is published again
		{"aB", "B3 C3 a3"},
		{"aD", "B3 D3 a3"},
		{"", "D3 a3"},
		{"E", "E3"},
	} {
		c.showModels(byte(i+1), step.models)
		if last := c.order[len(c.order)-1]; i == 0 && last != b.topics.Announcement() {
			t.Errorf("the announcement is not the last: %s", last)
		}
		if got := c.kept(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if _, busy := b.Deadline(); busy || b.nextQueuedMessage != nil || c.announced() != byte(i+1) {
			t.Errorf("step %d is not done", i)
		}
	}
	for _, f := range *told {
		if f.Parts != 3 || f.Missing != 0 {
			t.Errorf("%+v", f)
		}
	}
	if len(*told) != 7 { // for the blobs a, A, B, C, B, D and E
		t.Errorf("%d blobs were read back", len(*told))
	}
}

// TestBoardWaits checks that a full outbox and a lost connection delay publications and deletions, and that none is
// lost.
func TestBoardWaits(t *testing.T) {
	b, c, _ := newPublisher(t)
	c.showModels(1, "A")
	c.showModels(2, "B")
	c.room = 4 // three parts of C and the announcement, but no deletion
	c.showModels(3, "C")
	if at, busy := b.Deadline(); !busy || at.Sub(c.now) > outboxRetryDelay {
		t.Fatalf("deadline %v, %v while the outbox is full", at, busy)
	}
	if got := c.kept(); got != "A3 B3 C3" || c.announced() != 3 {
		t.Errorf("before there is room: %q, announcement %d", got, c.announced())
	}
	c.room, c.err = 1<<30, mqtt.ErrDown
	c.pass(outboxRetryDelay)
	c.showModels(4, "C")
	if _, busy := b.Deadline(); busy {
		t.Error("busy while the link is down")
	}
	c.err = nil
	b.LinkUp(c.now)
	c.deliver()
	if got := c.kept(); got != "B3 C3" || c.announced() != 4 {
		t.Errorf("after the link is back: %q, announcement %d", got, c.announced())
	}
}

// TestBoardDeletesForCertain checks that deletions of old blobs are repeated, even by the next process, if the
// connection was lost meanwhile. Otherwise they are not repeated.
func TestBoardDeletesForCertain(t *testing.T) {
	b, c, _ := newPublisher(t)
	for i, models := range []string{"A", "B", "C"} {
		c.showModels(byte(i), models)
	}
	if want := 3; c.deleted != want {
		t.Fatalf("%d deletions, want %d", c.deleted, want)
	}
	b.LinkDown()
	b.LinkUp(c.now)
	c.deliver()
	if want := 6; c.deleted != want {
		t.Errorf("%d deletions after the link was lost, want %d", c.deleted, want)
	}
	b.HaltPublishing()
	after := &Publisher{conn: c, topics: b.topics, rng: b.rng, observer: b.observer,
		onAnnouncementSent: b.onAnnouncementSent, blobListing: b.blobListing}
	c.b = after
	after.LinkUp(c.now)
	c.showModels(9, "C")
	if want := 9; c.deleted != want || c.kept() != "B3 C3" {
		t.Errorf("%d deletions after a restart, want %d; %q", c.deleted, want, c.kept())
	}
	c.room = 4 // three parts of D and the announcement, but no deletion
	c.showModels(10, "D")
	c.room = 1 << 30
	c.showModels(11, "D")
	if want := 12; c.deleted != want || c.kept() != "C3 D3" {
		t.Errorf("%d deletions, want those of B and no more: %d; %q", c.deleted, want, c.kept())
	}
	c.room = 4
	c.showModels(12, "E") // parts of model C are not deleted yet
	c.room = 1 << 30
	c.showModels(13, "A")
	if c.kept() != "A3 E3" {
		t.Errorf("a deletion that was put off is forgotten: %q", c.kept())
	}
}

// TestBoardReadsBack checks that a blob which the broker does not retain is reported and published again with
// exponential backoff. The announcement does not wait for the blob.
func TestBoardReadsBack(t *testing.T) {
	b, c, told := newPublisher(t)
	chunk := b.topics.BlobPart(modelOf('A').Ref.Hash.TopicLevel(), "1")
	full := true
	c.loses = func(topic string) bool { return full && topic == chunk }
	c.showModels(1, "A")
	if c.announced() != 1 || len(*told) > 0 {
		t.Fatalf("announcement %d before anything is read back: %+v", c.announced(), *told)
	}
	c.pass(2 * time.Minute)
	if len(*told) < 4 {
		t.Fatalf("told %+v, announcement %d", *told, c.announced())
	}
	for i, f := range (*told)[:3] {
		if want := checkAgain << i; f.Missing != 2 || f.Parts != 3 || f.RepublishDelay != want || f.ReadRefused {
			t.Errorf("%+v, want 2 of 3 missing, again in %v", f, want)
		}
	}
	for _, topic := range c.order[4:] {
		if strings.HasSuffix(topic, "/0") {
			t.Errorf("what the broker has is published again: %s", topic)
		}
	}
	full = false
	c.pass(checkSeldom)
	if last := (*told)[len(*told)-1]; last.Missing != 0 || c.announced() != 1 {
		t.Errorf("told %+v at last, announcement %d", last, c.announced())
	}
}

// TestBoardMayNotRead checks that a refused subscription to a blob is reported at once.
func TestBoardMayNotRead(t *testing.T) {
	b, c, told := newPublisher(t)
	c.mute = true
	c.showModels(1, "A")
	if b.HandleFilterRefusal(c.now, "fl/v1/plant/s/+") {
		t.Error("another filter is the publisher's")
	}
	for topic := range maps.Clone(c.subs) {
		if !b.HandleFilterRefusal(c.now, topic) {
			t.Errorf("%s is not the publisher's", topic)
		}
	}
	if len(*told) != 1 || !(*told)[0].ReadRefused || c.announced() != 1 {
		t.Errorf("told %+v, announcement %d", *told, c.announced())
	}
}

// TestBoardMendsWhatIsMissing checks that after a reconnect or restart the publisher publishes only those parts again
// that the broker has lost.
func TestBoardMendsWhatIsMissing(t *testing.T) {
	b, c, _ := newPublisher(t)
	c.showModels(1, "aA")
	for _, restart := range []bool{false, true} {
		for _, forgets := range []string{"nothing", "a chunk", "all"} {
			switch forgets {
			case "a chunk":
				delete(c.retained, c.b.topics.BlobPart(modelOf('A').Ref.Hash.TopicLevel(), "0"))
			case "all":
				clear(c.retained)
			}
			c.order = nil
			if restart {
				c.b.HaltPublishing()
				c.b = &Publisher{conn: c, topics: b.topics, rng: b.rng, observer: b.observer,
					onAnnouncementSent: b.onAnnouncementSent,
					blobListing:        b.blobListing}
				c.b.LinkUp(c.now)
				c.showModels(1, "aA")
			} else {
				c.b.LinkDown()
				c.b.LinkUp(c.now)
			}
			c.pass(time.Minute)
			if c.kept() != "A3 a3" || c.announced() != 1 {
				t.Errorf("restart %v, forgets %s: %q, announcement %d", restart, forgets, c.kept(), c.announced())
			}
			if n := map[string]int{"nothing": 1, "a chunk": 3, "all": 7}[forgets]; len(c.order) > n {
				t.Errorf("restart %v, forgets %s: published %q", restart, forgets, c.order)
			}
		}
	}
}

// TestBoardSuspects checks that an agent's report of a missing blob triggers a check, at a limited rate.
func TestBoardSuspects(t *testing.T) {
	b, c, told := newPublisher(t)
	c.showModels(1, "A")
	for range 5 {
		b.RecheckBlobs(c.now)
		c.pass(time.Second)
	}
	if len(*told) != 1 {
		t.Errorf("%d checks, want the first", len(*told))
	}
	c.pass(checkPause)
	for range 5 {
		b.RecheckBlobs(c.now)
		c.pass(time.Second)
	}
	if len(*told) != 2 {
		t.Errorf("%d checks, want the first and another", len(*told))
	}
	clear(c.retained)
	c.pass(checkPause)
	b.RecheckBlobs(c.now)
	c.pass(checkPause)
	if c.kept() != "A3" {
		t.Errorf("%q", c.kept())
	}
}

// TestBoardBelievesOnlyWhatIsRetained checks that the publisher does not count a part as retained if it arrives without
// the retained flag.
func TestBoardBelievesOnlyWhatIsRetained(t *testing.T) {
	_, c, told := newPublisher(t)
	c.loses, c.lost = func(string) bool { return true }, map[string][]byte{}
	c.showModels(1, "A")
	c.pass(3 * checkTimeout * 2)
	if len(*told) == 0 || (*told)[0].Missing != 3 {
		t.Errorf("told %+v, announcement %d", *told, c.announced())
	}
}

// TestBoardHalts checks that stopping the publisher during a publication leaves no goroutine behind. TestMain detects
// such goroutines.
func TestBoardHalts(t *testing.T) {
	b, c, _ := newPublisher(t)
	b.LinkUp(c.now) // LinkUp has no effect without an announcement
	c.room = 1
	c.showModels(1, "A")
	b.HaltPublishing()
	if _, busy := b.Deadline(); busy {
		t.Error("it goes on")
	}
}

// TestRecentAnnouncements checks that a hello may refer to the current, the previous and other recent announcements of
// this process, however short the rounds are. It may not refer to an announcement of another process.
func TestRecentAnnouncements(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration
		count int // number of announcements to which a hello may refer
	}{{time.Second, 12}, {time.Minute, 2}, {100 * time.Millisecond, 102}} {
		b, now := new(Publisher), time.Unix(0, 0)
		var all []wire.Digest
		for i := range 300 {
			now = now.Add(tt.every)
			b.retireAnnouncement(now)
			b.announcementEnvelope, b.announcementDigest = []byte{1}, wire.Digest{byte(i), byte(i >> 8), 1}
			all = append(all, b.announcementDigest)
		}
		for i, d := range all {
			if got, want := b.IsRecentAnnouncement(d, now), i >= len(all)-tt.count; got != want {
				t.Errorf("one every %s: announcement %d of %d may be named: %t", tt.every, i, len(all), got)
			}
		}
		if len(b.recentAnnouncements) > tt.count {
			t.Errorf("one every %s: %d are kept", tt.every, len(b.recentAnnouncements))
		}
		if b.IsRecentAnnouncement(wire.Digest{7, 7, 7}, now) {
			t.Error("one of another process may be named")
		}
	}
}
