package wire_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestAnnouncementRefuses checks announcements whose fields are individually valid but contradict each other.

func TestAnnouncementRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*wire.Announcement)
		want   string
	}{
		"attempt 0":           {func(a *wire.Announcement) { a.Attempt = 0 }, "attempt is 0"},
		"open without a task": {func(a *wire.Announcement) { a.Task = wire.BlobRef{} }, "has no task"},
		"open training without a base": {func(a *wire.Announcement) {
			a.BaseModel = wire.BlobRef{}
		},
			"unexpected base model"},
		"open statistics with a base": {func(a *wire.Announcement) { a.Kind = wire.KindStatistics },
			"unexpected base model"},
		"inline blob of another length": {func(a *wire.Announcement) { a.BaseModel.Length++ },
			"does not match its hash"},
		"inline blob of another hash": {func(a *wire.Announcement) { a.BaseModel.Hash[31] ^= 1 },
			"does not match its hash"},
		"inline blob with a manifest": {func(a *wire.Announcement) { a.BaseModel.ManifestHash[0] = 1 },
			"either inline content or a manifest"},
		"blob neither inline nor pulled": {func(a *wire.Announcement) { a.Task.Inline = nil },
			"either inline content or a manifest"},
		"hash of a blob without length": {func(a *wire.Announcement) {
			a.BaseModel = wire.BlobRef{Hash: a.BaseModel.Hash}
		},
			"length of base is 0"},
		"inline blob without length": {func(a *wire.Announcement) {
			a.BaseModel = wire.BlobRef{Inline: a.BaseModel.Inline}
		},
			"length of base is 0"},
		"manifest of a blob of no length": {func(a *wire.Announcement) {
			a.BaseModel = wire.BlobRef{ManifestHash: a.BaseModel.Hash}
		},
			"length of base is 0"},
	} {
		a := *openAnnouncement().value.(*wire.Announcement)
		c.change(&a)
		if _, err := wire.DecodeAnnouncement(a.Body()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestAnnouncementWithNothingToDo checks that an announcement between rounds may have no task.
func TestAnnouncementWithNothingToDo(t *testing.T) {
	a := wire.Announcement{Attempt: 1, Phase: wire.PhaseIdle, Kind: wire.KindTraining}
	if _, err := wire.DecodeAnnouncement(a.Body()); err != nil {
		t.Error(err)
	}
}

func TestUpdateRefusesAnotherLength(t *testing.T) {
	u := wire.Update{Kind: wire.KindTraining, InlinePayload: smallUpdate()[:8],
		PayloadManifest: manifestOf(smallUpdate(), smallSchema())}
	if _, err := wire.DecodeUpdate(u.Body()); err == nil ||
		!strings.Contains(err.Error(), "payload has 8 bytes, but the manifest specifies 12") {
		t.Errorf("error %v", err)
	}
}

func TestCreditRefusesOddRanges(t *testing.T) {
	for _, c := range []struct {
		r  wire.ChunkRange
		ok bool
	}{
		{wire.ChunkRange{First: 0, Last: wire.MaxBlobChunks - 1}, true},
		{wire.ChunkRange{First: 2, Last: 1}, false},
		{wire.ChunkRange{First: 0, Last: wire.MaxBlobChunks}, false},
		{wire.ChunkRange{First: 1<<32 - 1, Last: 1<<32 - 1}, false},
	} {
		m := wire.ChunkCredit{Chunks: []wire.ChunkRange{{First: 1, Last: 1}, c.r}}
		if _, err := wire.DecodeChunkCredit(m.Body()); (err == nil) != c.ok {
			t.Errorf("%+v: error %v", c.r, err)
		}
	}
}

func TestTextIsUTF8(t *testing.T) {
	for _, s := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80"} {
		p := wire.Presence{State: wire.PresenceOnline, SoftwareVersion: s}
		if _, err := wire.DecodePresence(p.Body()); err == nil || !strings.Contains(err.Error(), "not valid UTF-8") {
			t.Errorf("%q: error %v", s, err)
		}
	}
}
