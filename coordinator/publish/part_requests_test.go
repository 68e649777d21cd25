package publish

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// TestBoardOwes checks that a requested part is published once, even if several agents request it, and is not retained.
func TestBoardOwes(t *testing.T) {
	b, c, _ := newPublisher(t)
	c.showModels(1, "A")
	c.pass(time.Minute)
	clear(c.retained)
	hash := modelOf('A').Ref.Hash
	for _, x := range []struct {
		after time.Duration
		blob  wire.Digest
		lacks string // missing parts; m is the manifest
		want  string
	}{
		{0, hash, "m01", "[0 1 m]"},
		{0, hash, "m01", "[]"},
		{owedPause / 2, hash, "1", "[]"},
		{owedPause / 2, hash, "1", "[1]"},
		{0, hash, "m1", "[m]"},
		{time.Minute, hash, "29", "[]"}, // the blob has two chunks
		{0, wire.Digest{1}, "m", "[]"},
		{0, wire.Digest{}, "", "[]"},
	} {
		c.pass(x.after)
		c.order = nil
		l := wire.MissingBlobParts{BlobDigest: x.blob}
		for _, r := range x.lacks {
			if r == 'm' {
				l.ManifestMissing = true
			} else {
				l.Chunks = append(l.Chunks, uint32(r-'0'))
			}
		}
		b.ResendParts(c.now, l)
		if got := fmt.Sprint(bases(c.order)); got != x.want {
			t.Errorf("lacks %q: published %s, want %s", x.lacks, got, x.want)
		}
	}
	b.ResendParts(c.now, wire.MissingBlobParts{BlobDigest: hash,
		Chunks: []uint32{1<<32 - 2, 1<<32 - 1}}) // negative if converted to a 32-bit int
	c.room, c.order = 1, nil
	b.ResendParts(c.now, wire.MissingBlobParts{BlobDigest: hash, ManifestMissing: true, Chunks: []uint32{0, 1}})
	c.now = c.now.Add(owedPause)
	b.ResendParts(c.now, wire.MissingBlobParts{BlobDigest: hash, ManifestMissing: true,
		Chunks: []uint32{1}}) // requests for chunks whose publication is still pending
	c.room = 9
	c.pass(time.Second)
	if got := fmt.Sprint(bases(c.order)); got != "[0 1 m]" {
		t.Errorf("over an outbox that was full: %s", got)
	}
	b.LinkDown()
	b.ResendParts(c.now.Add(time.Minute), wire.MissingBlobParts{BlobDigest: hash, Chunks: []uint32{0}})
	if b.hasPartRequests() {
		t.Error("parts are due without a link")
	}
	if len(c.retained) != 0 {
		t.Errorf("retained: %q", slices.Collect(maps.Keys(c.retained)))
	}
}

// bases returns the last level of each topic.
func bases(topics []string) (all []string) {
	for _, topic := range topics {
		all = append(all, path.Base(topic))
	}
	return all
}
