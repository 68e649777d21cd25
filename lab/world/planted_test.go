//go:build !race

package world_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/lab/world"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// forgets returns a deliberate bug: the disk of a party skips the operation what on files whose path contains where. A
// party other than the coordinator means all agents.
func forgets(party int, what, where string) world.Bugs {
	return world.Bugs{Forget: func(of int, op, path string) bool {
		return (of == world.Coordinator) == (party == world.Coordinator) && op == what && strings.Contains(path, where)
	}}
}

// swallows returns a deliberate bug: only the first messages of the given type are sent. The parameter most is the
// number of messages that are sent.
func swallows(kind wire.MessageType, most int) world.Bugs {
	return world.Bugs{Say: func(_ int, m mqtt.Message) bool {
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil || e.Type != kind {
			return true
		}
		most--
		return most >= 0
	}}
}

// once returns a deliberate bug: of all messages to which the function name gives the same name, only the first is
// sent. Messages without a name are not affected.
func once(name func(party int, m mqtt.Message) string) world.Bugs {
	said := map[string]bool{}
	return world.Bugs{Say: func(party int, m mqtt.Message) bool {
		n := name(party, m)
		before := said[n]
		said[n] = true
		return n == "" || !before
	}}
}

// announcement returns the digest of an announcement, or "" for other messages.
func announcement(_ int, m mqtt.Message) string {
	e, err := wire.ParseEnvelope(m.Payload)
	if err != nil || e.Type != wire.TypeAnnouncement {
		return ""
	}
	return e.Digest().String()
}

// blobPart returns the topic of a message with a part of a blob. blobPart returns "" for other messages.
func blobPart(_ int, m mqtt.Message) string {
	if !strings.Contains(m.Topic, "/m/") || len(m.Payload) == 0 {
		return ""
	}
	return m.Topic
}

// offer returns the sender, run and round of a message that offers an update. offer returns "" for other messages.
func offer(party int, m mqtt.Message) string {
	e, err := wire.ParseEnvelope(m.Payload)
	if err != nil || e.Type != wire.TypeUpdate {
		return ""
	}
	return fmt.Sprint(party, e.Run, e.Round)
}

// inviteNobody returns a deliberate bug: the coordinator does not invite the agents that an announcement names, even if
// they missed the announcement.
func inviteNobody() world.Bugs {
	return world.Bugs{Say: func(_ int, m mqtt.Message) bool {
		e, err := wire.ParseEnvelope(m.Payload)
		if err != nil || e.Type != wire.TypeInvitation {
			return true
		}
		i, err := wire.DecodeInvitation(e.Body)
		return err != nil || i.MixingBlockRound > 0
	}}
}

// restless is a runtime in which every wait returns immediately.
type restless struct{ host.JobRuntime }

func (r restless) NewWaiter() host.JobWaiter {
	return restlessWaiter{r.JobRuntime.NewWaiter(), r.JobRuntime}
}

type restlessWaiter struct {
	host.JobWaiter
	rt host.JobRuntime
}

func (w restlessWaiter) Wait(ctx context.Context, _ time.Time, events <-chan mqtt.Event) (mqtt.Event, bool) {
	return w.JobWaiter.Wait(ctx, w.rt.Now(), events)
}

// TestPlantedBugs checks that the invariant checker detects each deliberate bug within 600 plans.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of plans until each bug is found")
	}
	for _, tt := range plantedBugs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := tt.from; seed < tt.from+600; seed++ {
				p := world.NewPlan(seed)
				if strings.Contains(tt.name, "chunks") || strings.Contains(tt.name, "part of a blob") {
					p.Hidden = 3000
				}
				if r := world.Run(p, tt.bugs(), nil); r.Failure != "" {
					why, _, _ := strings.Cut(r.Failure, "\n")
					if plain := world.Run(p, world.Bugs{}, nil).Failure; plain != "" {
						t.Fatalf("plan %d fails without the bug, too: %s", seed, plain)
					}
					t.Logf("plan %d: %s", seed, why)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// plantedBugs lists the deliberate bugs that the checks must detect. Each plan gets a new Bugs value, because some bugs
// count operations.
var plantedBugs = []struct {
	name string
	from uint64 // first seed to run; set if only plans with a large seed detect the bug
	bugs func() world.Bugs
}{
	{"the journal is not synced", 0, func() world.Bugs { return forgets(world.Coordinator, "sync", "state/run.") }},
	{"the model's slot is not synced", 0, func() world.Bugs {
		return forgets(world.Coordinator, "sync", "state/model.")
	}},
	{"the model's slot is synced after the journal", 0, func() world.Bugs {
		return world.Bugs{Late: func(of int, path string) bool {
			return of == world.Coordinator && strings.Contains(path, "state/model.")
		}}
	}},
	{"spools are not removed", 0, func() world.Bugs { return forgets(world.Coordinator, "remove", "/spool") }},
	{"an agent's update is not synced", 0, func() world.Bugs { return forgets(0, "sync", "state/update.") }},
	{"an agent's place is not synced", 0, func() world.Bugs { return forgets(0, "sync", "state/obeyed.") }},
	{"a model to predict with is not kept", 0, func() world.Bugs {
		return forgets(0, "rename", "state/model.safetensors")
	}},
	{"what is an agent's own is not synced", 0, func() world.Bugs { return forgets(0, "sync", "state/personal.") }},
	{"a file has its name before it is synced", 0, func() world.Bugs {
		return forgets(0, "sync", "state/.fedmesh-tmp-")
	}},
	{"nobody answers who asks for an outcome", 19, func() world.Bugs { return swallows(wire.TypeUpdateFateAnswer, 0) }},
	{"what was not sent is not kept", 1200, func() world.Bugs { return forgets(0, "rename", "state/unsent") }},
	{"an agent's update is not written", 0, func() world.Bugs { return forgets(0, "write", "/update.a") }},
	{"agents do not say hello again", 0, func() world.Bugs { return swallows(wire.TypeHello, 8) }},
	{"invitations are not repeated", 0, func() world.Bugs { return swallows(wire.TypeInvitation, 3) }},
	{"the announcement is not repeated", 0, func() world.Bugs { return swallows(wire.TypeAnnouncement, 6) }},
	{"who missed the announcement is not invited", 35, inviteNobody},
	{"a lost announcement is not published again", 389, func() world.Bugs { return once(announcement) }},
	{"the key of the group is given to nobody", 0, func() world.Bugs { return swallows(wire.TypeGroupKeyDelivery, 0) }},
	{"the secrets of the seals are not kept", 0, func() world.Bugs {
		return forgets(world.Coordinator, "rename", "state/seals.")
	}},
	{"a lost part of a blob is not published again", 20, func() world.Bugs { return once(blobPart) }},
	{"a lost update is not offered again", 76, func() world.Bugs { return once(offer) }},
	{"lost chunks are not lent again", 78, func() world.Bugs { return swallows(wire.TypeChunkCredit, 0) }},
	{"draws weigh as samples do", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			cfg.Round.AgentWeightRule, cfg.Round.WeightPlacement = spec.WeightsSamples, spec.WeightInServerMean
		})
	}},
	{"a deadline that is past", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) { cfg.Runtime = restless{cfg.Runtime} })
	}},
	{"another seed", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) { cfg.Round.Seed++ })
	}},
	{"another momentum", 16, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			if o := &cfg.Round.ServerOptimizer; o.Name == "fedavgm" {
				o.Momentum = 0.61
			}
		})
	}},
	{"another sum of squares", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			if o := &cfg.Round.ServerOptimizer; o.Name == "fedyogi" {
				o.Name = "fedadam"
			}
		})
	}},
	{"nothing is trimmed", 49, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			if a := &cfg.Round.Aggregation; a.Rule == rule.TrimmedMean {
				a.TrimShare = 0
			}
		})
	}},
	{"one more update is kept", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			if a := &cfg.Round.Aggregation; a.Rule == rule.MultiKrum {
				a.AveragedUpdates++
			}
		})
	}},
	{"another radius", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			if a := &cfg.Round.Aggregation; a.Rule == rule.CenteredClipping {
				a.ClippingRadius *= 1.1
			}
		})
	}},
	{"the last aggregate is forgotten", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) {
			// the aggregate then starts at 0, without a limit
			if a := &cfg.Round.Aggregation; a.Rule == rule.CenteredClipping {
				a.Rule, a.ClipNorm, a.ClippingRadius = rule.Mean, a.ClippingRadius, 0
			}
		})
	}},
	{"updates are refused above another length", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) { cfg.Round.Aggregation.RefuseAboveFactor *= 1.1 })
	}},
	{"updates are clipped at another length", 43, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) { cfg.Round.Aggregation.ClipAboveFactor *= 1.05 })
	}},
	{"fewer rounds", 0, func() world.Bugs {
		return configured(func(cfg *coordinator.Config) { cfg.Round.MaxAggregations = 2 })
	}},
}
