package coordinator_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// FuzzInsider sends arbitrary messages, validly signed by a listed device, on every topic of that device. The round
// must end with the updates of the other agents.
func FuzzInsider(f *testing.F) {
	seed := wire.Hello{Samples: 10}
	f.Add(uint8(wire.TypeHello-1), seed.Body(), []byte{})
	f.Add(uint8(wire.TypeUpdate-1), (&wire.Update{Kind: wire.KindTraining, Samples: 10}).Body(), []byte{1, 2, 3, 4})
	f.Add(uint8(wire.TypeMetricsReport-1), (&wire.AgentMetricsReport{}).Body(), []byte{})
	f.Add(uint8(wire.TypePresence-1), (&wire.Presence{State: wire.PresenceOnline}).Body(), []byte{})
	f.Fuzz(func(t *testing.T, typ uint8, body, part []byte) {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 1, memory.Options{})
			f.enrol("evil")
			f.cfg.Standardize, f.cfg.Round.MaxAggregations = false, 1
			f.agents[0].cfg.Training.DeclaredStepTime = time.Minute // keeps the round open
			s := newStranger(f)
			f.start()
			s.listen()
			s.say(f.topics.AgentToCoordinator("evil"), s.hello("evil"))
			f.until(time.Hour, "open", func() bool { return len(events[round.RoundOpened](f)) == 1 })
			s.listen()
			said := sealFor(s.ann.SealPublicKey, s.as("evil", wire.MessageType(typ%uint8(wire.TypeRenewalAnswer)+1)),
				body)
			for _, topic := range []string{f.topics.AgentToCoordinator("evil"), f.topics.Presence("evil"),
				f.topics.UpdatePart("evil", "0123456789abcdef", transfer.ManifestPartName)} {
				s.say(topic, said)
			}
			s.say(f.topics.UpdatePart("evil", "0123456789abcdef", "0"), part)
			f.finished(10 * time.Hour)
		})
	})
}

// FuzzJournal modifies the journal of a run and keeps its checksum valid. The coordinator must continue or return an
// error.
func FuzzJournal(f *testing.F) {
	f.Add(uint16(0), uint16(0), []byte{})
	f.Add(uint16(0), uint16(65535), []byte("null"))
	f.Add(uint16(0), uint16(65535), []byte("{}"))
	for at := range uint16(40) {
		f.Add(at*20, uint16(1), []byte("9"))
		f.Add(at*20, uint16(7), []byte{})
	}
	kept := f.TempDir()
	made := false
	f.Fuzz(func(t *testing.T, at, cut uint16, put []byte) {
		synctest.Test(t, func(t *testing.T) {
			if !made {
				f := newFederation(t, 2, memory.Options{})
				f.cfg.Round.MaxAggregations = 2
				f.start()
				f.finished(time.Hour)
				f.stop()
				if err := os.CopyFS(kept, os.DirFS(f.coord.dir)); err != nil {
					t.Fatal(err)
				}
				made = true
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(kept)); err != nil {
				t.Fatal(err)
			}
			slots := store.LocalDisk.NewRecordSlots(dir, runs.Journal)
			saved, err := slots.Load(nil)
			if err != nil {
				t.Fatal(err)
			}
			from := min(int(at), len(saved.Body))
			changed := append(append(append([]byte{}, saved.Body[:from]...), put...),
				saved.Body[min(from+int(cut), len(saved.Body)):]...)
			for range 2 { // write both slots of the journal
				if err := slots.WriteAndProtect(changed); err != nil {
					t.Fatal(err)
				}
			}
			takesUp(t, dir)
		})
	})
}

// takesUp runs a coordinator on a folder for an hour without agents.
func takesUp(t *testing.T, dir string) {
	t.Helper()
	f := newFederation(t, 2, memory.Options{})
	f.cfg.StateDir, f.cfg.Round.MaxAggregations = dir, 4
	f.cfg.Observer = testkit.Observer(func(observe.Event) {})
	conn := f.broker.Connect("coordinator", nil)
	c, err := coordinator.New(f.cfg, conn)
	if err != nil {
		t.Logf("it does not start: %v", errors.Join(err, conn.Close()))
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Logf("it ended: %v", err)
	}
}
