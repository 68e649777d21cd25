package transfer

import (
	"bytes"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

func creditOf(update wire.Digest, lease time.Duration, ranges ...wire.ChunkRange) CreditGranted {
	return CreditGranted{wire.ChunkCredit{Update: update, LeaseMillis: uint32(lease.Milliseconds()), Chunks: ranges}}
}

func TestSenderRepeatsItsManifest(t *testing.T) {
	payload := blobOf(6, 19*wire.MaxChunkBytes+1) // 20 chunks
	m := manifestOf(payload)
	other := digestOf([]byte("another update"))
	all := wire.ChunkRange{First: 0, Last: 19}
	accepted := UpdateAccepted{wire.UpdateAccepted{Update: m.Hash}}

	for name, script := range map[string][]step[SendEvent]{
		"the manifest is repeated with backoff": {
			{"0s", Tick{}, "", ""},
			{"0s", Start{}, "", "2s"},
			{"1s", Tick{}, "", "2s"},
			{"2s", Tick{}, "manifest", "4s"},
			{"4s", Tick{}, "manifest", "8s"},
			{"8s", Tick{}, "manifest", "16s"},
			{"16s", Tick{}, "manifest", "32s"},
			{"32s", Tick{}, "manifest", "1m2s"},
			{"62s", Tick{}, "manifest", "1m32s"},
			{"63s", accepted, "accepted", ""},
			{"64s", Tick{}, "", ""},
		},
		"another update's answers": {
			{"0s", Start{}, "", "2s"},
			{"1s", UpdateAccepted{wire.UpdateAccepted{Update: other}}, "", "2s"},
			{"1s", UpdateRefused{wire.UpdateRefused{Update: other, Reason: wire.RefuseLate}}, "", "2s"},
			{"1s", creditOf(other, time.Minute, all), "", "2s"},
			{"1s", UpdateRefused{wire.UpdateRefused{Update: m.Hash, Reason: wire.RefuseLate}}, "refused late", ""},
			{"1s", accepted, "", ""},
		},
		"started without a link": {
			{"0s", LinkDown{}, "", ""},
			{"0s", LinkUp{}, "", ""},
			{"0s", LinkDown{}, "", ""},
			{"0s", Start{}, "", ""},
			{"5s", LinkUp{}, "", "7s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, NewUpdateSender(m, payload, 4*time.Second, 0, 0, unjittered()), script)
		})
	}
}

func TestSenderObeysCredit(t *testing.T) {
	payload := blobOf(6, 19*wire.MaxChunkBytes+1) // 20 chunks
	m := manifestOf(payload)
	all := wire.ChunkRange{First: 0, Last: 19}
	accepted := UpdateAccepted{wire.UpdateAccepted{Update: m.Hash}}
	eight := "chunk 0; chunk 1; chunk 2; chunk 3; chunk 4; chunk 5; chunk 6; chunk 7"

	for name, script := range map[string][]step[SendEvent]{
		"bursts within the lease": {
			{"0s", Start{}, "", "2s"},
			{"2s", Tick{}, "manifest", "4s"},
			{"3s", creditOf(m.Hash, 5*time.Second, all), eight, "3s"},
			{"3s", Tick{}, "chunk 8; chunk 9; chunk 10; chunk 11; chunk 12; chunk 13; chunk 14; chunk 15", "3s"},
			{"4s", Tick{}, "chunk 16; chunk 17; chunk 18; chunk 19", "18s"},
			{"18s", Tick{}, "manifest", "20s"},
			{"20s", Tick{}, "manifest", "24s"},
			{"21s", creditOf(m.Hash, 5*time.Second, wire.ChunkRange{First: 7, Last: 7}), "chunk 7", "36s"},
			{"22s", accepted, "accepted", ""},
		},
		"a lease that is over ends the burst": {
			{"0s", Start{}, "", "2s"},
			{"3s", creditOf(m.Hash, 5*time.Second, all), eight, "3s"},
			{"8s", Tick{}, "", "18s"},
			{"9s", creditOf(m.Hash, 0, all), "", "19s"},
		},
		"a newer credit replaces, ranges may overlap or overshoot": {
			{"0s", Start{}, "", "2s"},
			{"3s", creditOf(m.Hash, 5*time.Second, all), eight, "3s"},
			{"4s", creditOf(m.Hash, 5*time.Second, wire.ChunkRange{First: 18, Last: 1 << 31}, wire.ChunkRange{First: 1,
				Last: 2},
				wire.ChunkRange{First: 2, Last: 2}),
				"chunk 1; chunk 2; chunk 18; chunk 19", "19s"},
		},
		"a lost link ends the credit": {
			{"0s", Start{}, "", "2s"},
			{"3s", creditOf(m.Hash, 60*time.Second, all), eight, "3s"},
			{"4s", LinkDown{}, "", ""},
			{"5s", creditOf(m.Hash, 60*time.Second, all), "", ""},
			{"6s", Tick{}, "", ""},
			{"7s", LinkUp{}, "", "9s"},
			{"9s", Tick{}, "manifest", "11s"},
		},
		"the coordinator has forgotten the update": {
			{"0s", CoordinatorRestarted{}, "", ""},
			{"0s", Start{}, "", "2s"},
			{"3s", creditOf(m.Hash, 60*time.Second, all), eight, "3s"},
			{"4s", CoordinatorRestarted{}, "", "6s"},
			{"6s", Tick{}, "manifest", "8s"},
			{"7s", LinkDown{}, "", ""},
			{"7s", CoordinatorRestarted{}, "", ""},
		},
		"the coordinator asks again": {
			{"0s", UpdateRequested{}, "", ""},
			{"0s", Start{}, "", "2s"},
			{"2s", Tick{}, "manifest", "4s"},
			{"4s", Tick{}, "manifest", "8s"},
			{"5s", UpdateRequested{}, "", "7s"}, // without a lease, the update is offered again
			{"7s", Tick{}, "manifest", "9s"},
			{"8s", creditOf(m.Hash, 5*time.Second, wire.ChunkRange{First: 0, Last: 9}), eight, "8s"},
			{"9s", UpdateRequested{}, "chunk 8; chunk 9", "23s"}, // during the lease, the request has no effect
			{"12s", UpdateRequested{}, "", "23s"},
			{"13s", UpdateRequested{}, "", "15s"}, // the lease has ended, so the update is offered again
		},
		"cancelled": {
			{"0s", Start{}, "", "2s"},
			{"3s", creditOf(m.Hash, 60*time.Second, all), eight, "3s"},
			{"3s", Cancel{}, "", ""},
			{"3s", Tick{}, "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, NewUpdateSender(m, payload, 4*time.Second, 0, 0, unjittered()), script)
		})
	}
}

// TestSenderAfterRestartOfTheCoordinator checks that a sender does not repeat chunks that may still be in transit on a
// slow link. After a restart of the coordinator it repeats them, because the new process cannot assign the earlier
// chunks to an update.
func TestSenderAfterRestartOfTheCoordinator(t *testing.T) {
	payload := blobOf(6, 2*wire.MaxChunkBytes)
	m := manifestOf(payload)
	both := creditOf(m.Hash, 15*time.Second, wire.ChunkRange{First: 0, Last: 1})
	for name, script := range map[string][]step[SendEvent]{
		"the same coordinator": {
			{"0s", Start{}, "", "0s"},
			{"0s", Tick{}, "manifest", "2.0576s"},
			{"1s", both, "chunk 0; chunk 1", "26s"},
			{"2s", UpdateRequested{}, "", "26s"},
			{"2s", both, "", "27s"},
			{"8s", both, "", "33s"}, // chunk 0 should have arrived, but may only just be arriving
			{"19s", both, "chunk 0", "44s"},
		},
		"a restarted one": {
			{"0s", Start{}, "", "0s"},
			{"0s", Tick{}, "manifest", "2.0576s"},
			{"1s", both, "chunk 0; chunk 1", "26s"},
			{"2s", CoordinatorRestarted{}, "", "2s"},
			// The delay is counted from the time at which the link has transmitted the manifest, which is queued after
			// the chunks.
			{"2s", Tick{}, "manifest", "15.3488s"},
			{"3s", both, "chunk 0; chunk 1", "28s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, NewUpdateSender(m, payload, 0, 0, 10_000, unjittered()), script)
		})
	}
}

func TestSenderSpreadsTheFirstManifest(t *testing.T) {
	payload := blobOf(7, 10)
	m := manifestOf(payload)
	least, most := time.Hour, time.Duration(0)
	for seed := range uint64(200) {
		s := NewUpdateSender(m, payload, 10*time.Second, 0, 0, seeded(seed))
		s.Step(epoch, Start{})
		at, _ := s.Deadline()
		least, most = min(least, at.Sub(epoch)), max(most, at.Sub(epoch))
	}
	if least > time.Second || most < 9*time.Second || most > 10*time.Second {
		t.Errorf("first manifests are from %v to %v, want about 0 to 10s", least, most)
	}
	if s := NewUpdateSender(m, payload, 0, 0, 0, seeded(1)); describe(s.Step(epoch, Start{})) != "" ||
		describe(s.Step(epoch, Tick{})) != "manifest" {
		t.Error("without a spread the manifest is not sent at once")
	}
}

func TestSenderMessages(t *testing.T) {
	payload := blobOf(8, wire.MaxInlineUpdate+1)
	m := manifestOf(payload)
	s := NewUpdateSender(m, payload, 0, 0, 0, unjittered())
	k, got, err := wire.DecodeChunkMessage(s.ChunkMessage(0), m.Hash)
	if err != nil || k != 0 || !bytes.Equal(got, payload) || s.InlinePayload() != nil {
		t.Errorf("chunk %d of %d bytes, inline %d: %v", k, len(got), len(s.InlinePayload()), err)
	}
	small := payload[:wire.MaxInlineUpdate]
	if s := NewUpdateSender(manifestOf(small), small, 0, 0, 0, unjittered()); !bytes.Equal(s.InlinePayload(), small) {
		t.Errorf("%d bytes are inline, want all %d", len(s.InlinePayload()), len(small))
	}
	defer func() {
		if recover() == nil {
			t.Error("a payload that is not the manifest's was taken")
		}
	}()
	NewUpdateSender(m, small, 0, 0, 0, unjittered())
}

// TestSenderGoesAhead checks that unsolicited chunks are sent only with the first manifest, and again after a restart
// of the coordinator.
func TestSenderGoesAhead(t *testing.T) {
	payload := blobOf(1, 6*wire.MaxChunkBytes)
	m := manifestOf(payload)
	credit := CreditGranted{wire.ChunkCredit{Update: m.Hash, LeaseMillis: 10_000, Chunks: []wire.ChunkRange{{First: 4,
		Last: 5}}}}
	play(t, NewUpdateSender(m, payload, 0, 4, 0, unjittered()), []step[SendEvent]{
		{"0s", Start{}, "", "0s"},
		{"0s", Tick{}, "manifest +4; chunk 0; chunk 1; chunk 2; chunk 3", "2s"},
		{"1s", LinkDown{}, "", ""},
		{"2s", LinkUp{}, "", "2s"},
		{"2s", Tick{}, "manifest", "4s"},
		{"4s", Tick{}, "manifest", "8s"},
		{"5s", credit, "chunk 4; chunk 5", "25s"},
		{"6s", CoordinatorRestarted{}, "", "6s"},
		{"6s", Tick{}, "manifest +4; chunk 0; chunk 1; chunk 2; chunk 3", "8s"},
	})
	small := payload[:100]
	for _, s := range []*UpdateSender{NewUpdateSender(manifestOf(small), small, 0, 4, 0, unjittered()),
		NewUpdateSender(m, payload, 0, 0, 0, unjittered())} {
		s.Step(epoch, Start{})
		if got := describe(s.Step(epoch, Tick{})); got != "manifest" {
			t.Errorf("got %q", got)
		}
	}
	payload = payload[:wire.MaxChunkBytes+1]
	s := NewUpdateSender(manifestOf(payload), payload, 0, 4, 0, unjittered())
	s.Step(epoch, Start{})
	if got := describe(s.Step(epoch, Tick{})); got != "manifest +2; chunk 0; chunk 1" {
		t.Errorf("an update of two chunks: %q", got)
	}
}
