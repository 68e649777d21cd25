package coordinator

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// An agent that lacks parts gets them, once however many ask; they are not retained.
func TestBoardOwes(t *testing.T) {
	b, c, _ := newPublisher(t)
	c.showModels(1, "A")
	c.pass(time.Minute)
	clear(c.retained)
	hash := modelOf('A').ref.Hash
	for _, x := range []struct {
		after time.Duration
		blob  wire.Digest
		lacks string // m = the manifest
		want  string
	}{
		{0, hash, "m01", "[0 1 m]"},
		{0, hash, "m01", "[]"},
		{owedPause / 2, hash, "1", "[]"},
		{owedPause / 2, hash, "1", "[1]"},
		{0, hash, "m1", "[m]"},
		{time.Minute, hash, "29", "[]"}, // it has two chunks
		{0, wire.Digest{1}, "m", "[]"},
		{0, wire.Digest{}, "", "[]"},
	} {
		c.pass(x.after)
		c.order = nil
		l := wire.Lacks{Blob: x.blob}
		for _, r := range x.lacks {
			if r == 'm' {
				l.Manifest = true
			} else {
				l.Chunks = append(l.Chunks, uint32(r-'0'))
			}
		}
		b.owe(c.now, l)
		var got []string
		for _, topic := range c.order {
			got = append(got, path.Base(topic))
		}
		if fmt.Sprint(got) != x.want {
			t.Errorf("lacks %q: published %q, want %s", x.lacks, got, x.want)
		}
	}
	c.room = 1
	b.owe(c.now, wire.Lacks{Blob: hash, Chunks: []uint32{0, 1}})
	c.room, c.order = 9, nil
	c.pass(time.Second)
	if len(c.order) != 1 {
		t.Errorf("after the outbox was full: %q", c.order)
	}
	b.disconnected()
	b.owe(c.now.Add(time.Minute), wire.Lacks{Blob: hash, Chunks: []uint32{0}})
	if len(b.owed) != 0 {
		t.Errorf("owed without a link: %+v", b.owed)
	}
	if len(c.retained) != 0 {
		t.Errorf("retained: %q", slices.Collect(maps.Keys(c.retained)))
	}
}
