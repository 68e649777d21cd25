package coordinator

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// narrow is a broker that takes a few messages at a time.
type narrow struct {
	mqtt.Conn
	room     int
	err      error // instead of taking a message
	retained map[string][]byte
	order    []string
}

func (c *narrow) Publish(m mqtt.Message) error {
	switch {
	case c.err != nil:
		return c.err
	case c.room == 0:
		return mqtt.ErrBusy
	}
	c.room--
	c.order = append(c.order, m.Topic)
	if len(m.Payload) == 0 {
		delete(c.retained, m.Topic)
	} else {
		c.retained[m.Topic] = m.Payload
	}
	return nil
}

func newBoard(t *testing.T) (*board, *narrow) {
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	c := &narrow{room: 1 << 30, retained: map[string][]byte{}}
	b := &board{conn: c, topics: topics}
	t.Cleanup(b.halt)
	return b, c
}

// showModels shows announcement n, which names the models given by a letter each.
func (b *board) showModels(n byte, models string) {
	var blobs []blob
	for _, x := range []byte(models) {
		data := bytes.Repeat([]byte{x}, 2*wire.MaxChunk)
		blobs = append(blobs, blob{hash: wire.Digest{x}, data: data})
	}
	b.show(bytes.Repeat([]byte{n}, wire.HeaderSize+1), blobs)
}

// kept returns the first bytes of the hashes of which parts are retained, and
// how many parts that is.
func (c *narrow) kept() string {
	parts := map[string]int{}
	for topic := range c.retained {
		if _, rest, ok := strings.Cut(topic, "/m/"); ok {
			parts[rest[:2]]++
		}
	}
	var all []string
	for _, hash := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, fmt.Sprintf("%s:%d", hash, parts[hash]))
	}
	return strings.Join(all, " ")
}

// What an announcement names is there before it, stays for one more, and then goes.
func TestBoardKeepsTwo(t *testing.T) {
	b, c := newBoard(t)
	for i, step := range []struct{ models, want string }{
		{"aA", "41:3 61:3"},
		{"aA", "41:3 61:3"},
		{"aB", "41:3 42:3 61:3"},
		{"aC", "42:3 43:3 61:3"},
		{"aB", "42:3 43:3 61:3"}, // back again
		{"aB", "42:3 43:3 61:3"},
		{"aD", "42:3 44:3 61:3"},
		{"", "44:3 61:3"},
		{"E", "45:3"},
	} {
		b.showModels(byte(i), step.models)
		if last := c.order[len(c.order)-1]; i == 0 && last != b.topics.Round() {
			t.Errorf("the announcement is not the last: %s", last)
		}
		if got := c.kept(); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
		if _, busy := b.deadline(); busy || b.next != nil {
			t.Error("it is not done")
		}
	}
}

// A full outbox and a lost link delay what is published and what is deleted,
// and lose nothing of it.
func TestBoardWaits(t *testing.T) {
	b, c := newBoard(t)
	b.showModels(1, "A")
	b.showModels(2, "B")
	c.room = 4 // three parts of C, the announcement, and no deletion
	b.showModels(3, "C")
	if at, busy := b.deadline(); !busy || time.Until(at) > pumpAgain {
		t.Fatalf("deadline %v, %v while the outbox is full", at, busy)
	}
	if got := c.kept(); got != "41:3 42:3 43:3" {
		t.Errorf("before there is room: %q", got)
	}
	c.room, c.err = 1<<30, mqtt.ErrDown
	b.pump()
	b.showModels(4, "C")
	if _, busy := b.deadline(); busy || len(b.gone) != 1 {
		t.Errorf("busy %v while the link is down, %d blobs to be deleted", busy, len(b.gone))
	}
	c.err = nil
	b.republish()
	if got := c.kept(); got != "42:3 43:3" || len(b.gone) != 0 {
		t.Errorf("after the link is back: %q, %d to be deleted", got, len(b.gone))
	}
	if !bytes.Equal(c.retained[b.topics.Round()], b.sealed) || b.sealed[0] != 4 {
		t.Error("the announcement is not the newest")
	}
}

// The iterator of a board that stops in the middle is no goroutine left behind:
// TestMain would tell.
func TestBoardHalts(t *testing.T) {
	b, c := newBoard(t)
	b.republish() // nothing to say yet
	c.room = 1
	b.showModels(1, "A")
	b.halt()
	if _, busy := b.deadline(); busy {
		t.Error("it goes on")
	}
}
