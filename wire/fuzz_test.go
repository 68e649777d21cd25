package wire_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// FuzzOpen checks that the decoders do not panic. It also checks that accepted input is encoded again to the same
// bytes, so that each message has a unique encoding.

func FuzzOpen(f *testing.F) {
	for _, g := range goldens() {
		f.Add(readGolden(f, g.file))
	}
	all := forms()
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := wire.ParseEnvelope(p)
		if err != nil {
			return
		}
		_ = e.Verify(testPublicKey())
		again := wire.SignEnvelope(nil, e.Header, e.Body, testKey())
		if !bytes.Equal(again[:headerSize], p[:headerSize]) || !bytes.Equal(again[envelopeSize:], p[envelopeSize:]) {
			t.Errorf("%x opens as %+v, which is sealed as %x", p, e.Header, again)
		}
		i := slices.IndexFunc(all, func(f form) bool { return f.typ == e.Type })
		checkCanonical(t, all[i], e.Body)
	})
}

func FuzzAnnouncement(f *testing.F) { fuzzForms(f, "announcement") }
func FuzzTask(f *testing.F)         { fuzzForms(f, "task") }
func FuzzUpdate(f *testing.F)       { fuzzForms(f, "update") }
func FuzzManifest(f *testing.F)     { fuzzForms(f, "manifest") }
func FuzzChunk(f *testing.F)        { fuzzForms(f, "chunk") }
func FuzzReport(f *testing.F)       { fuzzForms(f, "report") }
func FuzzOutcome(f *testing.F)      { fuzzForms(f, "outcome") }

// FuzzDirect decodes all small messages between the coordinator and one agent.
func FuzzDirect(f *testing.F) {
	fuzzForms(f, "invitation", "standing", "accepted", "refused", "credit", "presence", "hello", "joined", "declined",
		"settled", "rejection", "key", "renew", "renewed")
}

// FuzzNeighbors decodes messages between agents, which outsiders may read and forge.
func FuzzNeighbors(f *testing.F) { fuzzForms(f, "greeting", "snapshot", "control", "beacon") }

// fuzzForms decodes fuzzed bodies as each of the named kinds of messages.
func fuzzForms(f *testing.F, names ...string) {
	var under []form
	for _, name := range names {
		under = append(under, formNamed(f, name))
	}
	for _, g := range goldens() {
		if slices.Contains(names, g.form) {
			f.Add(bodyOf(formNamed(f, g.form), readGolden(f, g.file)))
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, form := range under {
		f.Add(form.encode(form.random(rng)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, f := range under {
			checkCanonical(t, f, body)
		}
	})
}

func checkCanonical(t *testing.T, f form, body []byte) {
	m, err := f.decode(body)
	if err != nil {
		return
	}
	if again := f.encode(m); !bytes.Equal(again, body) {
		t.Errorf("%s %x is read as %+v, which is written as %x", f.name, body, m, again)
	}
}
