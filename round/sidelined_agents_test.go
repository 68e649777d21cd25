package round_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// drive simulates a coordinator's machine and several agents. In each round every drawn agent sends an update, except
// the agents in the set silent.
type drive struct {
	t       *testing.T
	machine *round.CoordinatorMachine
	now     time.Time
	events  []observe.Event
	pending []round.Event
	takes   time.Duration // time that an agent needs for its work in a round
	slow    map[wire.AgentID]time.Duration
	later   []arrival // events that arrive later, in order of time
	silent  map[wire.AgentID]bool
	spoils  map[wire.AgentID]bool // agents whose updates make the aggregated model unusable
	foldErr error
}

// arrival is an event that arrives at a later time.
type arrival struct {
	at time.Time
	ev round.Event
}

func newDrive(t *testing.T, cfg round.Config, agents int) *drive {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	plan := round.Plan{Kind: wire.KindTraining, BaseModel: blob("w0"), Exchange: spec.ExchangeParameters}
	d := &drive{t: t, now: dawn, silent: map[wire.AgentID]bool{}, spoils: map[wire.AgentID]bool{}}
	d.machine = round.NewCoordinator(cfg, round.JournalRecord{Run: 1, Phase: round.CoordinatorIdle, Plan: plan}, nil)
	d.step(round.StartOrResumeRun{})
	d.step(round.LinkUp{})
	for i := range agents {
		d.hello(agentNumber(i))
	}
	return d
}

// TestFoldErrors checks that a failed aggregation abandons the round, and that the reason of the abandonment matches
// the error.
func TestFoldErrors(t *testing.T) {
	for reason, err := range map[round.AbandonReason]error{round.AbandonTooFewForRule: rule.ErrTooFewUpdates,
		round.AbandonSpoolDamaged: round.ErrSpoolDamaged, round.AbandonUnusableAggregate: errors.New("not finite")} {
		d := newDrive(t, driveConfig(2, 2), 2)
		d.foldErr = fmt.Errorf("of two: %w", err)
		d.rounds(2)
		all := eventsOf[round.RoundAbandoned](d.events)
		if len(all) == 0 || all[0].Reason != reason || !errors.Is(all[0].Err, err) {
			t.Errorf("%v: abandoned %+v", err, all)
		}
	}
}

func agentNumber(i int) wire.AgentID { return wire.AgentID(fmt.Sprintf("a%03d", i)) }

func (d *drive) hello(a wire.AgentID) {
	d.step(round.HelloReceived{Agent: a, Boot: 1, Hello: wire.Hello{Samples: 100}})
}

func (d *drive) step(ev round.Event) {
	d.pending = append(d.pending, ev)
	for len(d.pending) > 0 {
		ev := d.pending[0]
		d.pending = d.pending[1:]
		for _, e := range d.machine.Step(d.now, ev) {
			d.perform(e)
		}
		if err := d.machine.Miscounted(); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *drive) perform(e round.Effect) {
	switch e := e.(type) {
	case round.ReportEvent:
		d.events = append(d.events, e.Event)
	case round.PublishAnnouncement:
		d.pending = append(d.pending, announcedOf(e))
		for _, x := range e.SelectedAgents {
			d.work(x.Agent, true)
		}
	case round.SendInvitation:
		d.work(e.Agent, e.MustUpload)
	case round.AggregateUpdates:
		folded := round.AggregationEnded{Round: e.Round, NextPlan: e.Plan, Err: d.foldErr}
		folded.NextPlan.BaseModelVersion++
		for _, x := range e.Contributions {
			if d.spoils[x.Agent] {
				folded.SpoilingAgents = append(folded.SpoilingAgents, x.Agent)
				folded.Err = fmt.Errorf("the update of %s is not finite", x.Agent)
			}
		}
		d.pending = append(d.pending, folded)
	}
}

// announcedOf returns the event that confirms the publication of the announcement e.
func announcedOf(e round.PublishAnnouncement) round.AnnouncementSent {
	return round.AnnouncementSent{Round: e.Round, Attempt: e.Announcement.Attempt, Phase: e.Announcement.Phase}
}

// work schedules the messages that a drawn agent sends during a round.
func (d *drive) work(a wire.AgentID, uploads bool) {
	r := d.machine.JournalRecord().Round
	d.pending = append(d.pending, round.JoinedReceived{Agent: a, Round: r})
	if d.silent[a] || !uploads {
		return
	}
	ev := round.UpdateStored{Agent: a, Round: r,
		Update: wire.Update{PayloadManifest: wire.Manifest{Hash: name(fmt.Sprint(a,
			r))}}}
	if takes := cmp.Or(d.slow[a], d.takes); takes > 0 {
		d.later = append(d.later, arrival{d.now.Add(takes), ev})
		slices.SortStableFunc(d.later, func(a, b arrival) int { return a.at.Compare(b.at) })
	} else {
		d.pending = append(d.pending, ev)
	}
}

// rounds runs the simulation until n rounds have opened, and returns the events RoundOpened.
func (d *drive) rounds(n int) []round.RoundOpened {
	d.t.Helper()
	for range 100 * n {
		opened := eventsOf[round.RoundOpened](d.events)
		if len(opened) >= n {
			return opened[:n]
		}
		at, ok := d.machine.Deadline()
		switch {
		case len(d.later) > 0 && (!ok || !d.later[0].at.After(at)):
			first := d.later[0]
			d.now, d.later = first.at, d.later[1:]
			d.step(first.ev)
			continue
		case !ok:
			d.t.Fatalf("%d rounds were opened, and the machine waits for nothing", len(opened))
		}
		d.now = at
		d.step(round.Tick{})
	}
	d.t.Fatalf("%d rounds were opened, want %d: %s", len(eventsOf[round.RoundOpened](d.events)), n,
		show(d.events[len(d.events)-1]))
	return nil
}

// untilAbandoned simulates until the round is abandoned.
func (d *drive) untilAbandoned() {
	d.t.Helper()
	for len(eventsOf[round.RoundAbandoned](d.events)) == 0 {
		at, ok := d.machine.Deadline()
		if !ok {
			d.t.Fatal("the machine waits for nothing")
		}
		d.now = at
		d.step(round.Tick{})
	}
}

func eventsOf[F observe.Event](events []observe.Event) (of []F) {
	for _, f := range events {
		if f, ok := f.(F); ok {
			of = append(of, f)
		}
	}
	return of
}

func driveConfig(agents, minimum int) round.Config {
	cfg := round.DefaultConfig()
	cfg.Participants, cfg.Quorum, cfg.Gather.MinAgents = agents, 1, minimum
	cfg.PauseBetweenRounds = time.Second // Without a pause between rounds, one step would run all rounds.
	return cfg
}

// TestSilentAgentSitsOut checks that an agent that never sends an update is drawn only nine times in 200 rounds. The
// coordinator must exclude the agent for 1, 2, 4 … 64 rounds between these draws.
func TestSilentAgentSitsOut(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	d.silent["a002"] = true
	var drawn []wire.RoundID
	for _, o := range d.rounds(200) {
		if slices.Contains(o.Participants, "a002") {
			drawn = append(drawn, o.Round)
		} else if o.EligibleAgents != 3 || len(o.SidelinedAgents) != 1 {
			t.Fatalf("K is %d while %v sit out of 4 agents", o.EligibleAgents, o.SidelinedAgents)
		}
	}
	if want := []wire.RoundID{1, 3, 6, 11, 20, 37, 70, 135, 200}; !slices.Equal(drawn, want) {
		t.Errorf("drawn in rounds %v, want %v", drawn, want)
	}
}

// TestSilenceTakesLittleTime checks that one silent agent of four extends only one round to the full deadline. Later
// rounds must wait for the silent agent only a fraction of the time that the others need.
func TestSilenceTakesLittleTime(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	d.takes = 8 * time.Second
	d.silent["a002"] = true
	d.rounds(201)
	var took []time.Duration
	for _, f := range eventsOf[round.RoundClosed](d.events) {
		if slices.Contains(f.MissingAgents, "a002") {
			took = append(took, f.RoundDuration)
		}
	}
	want := []time.Duration{120, 9, 10, 12, 16, 24, 40, 72, 120}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(took, want) {
		t.Errorf("rounds with the silent one took %v, want %v", took, want)
	}
}

// TestSlowIsNotSilent checks an agent that is five times as slow as the others and missed a deadline: later rounds must
// give the agent enough time. After an update of the agent was aggregated, the coordinator must not exclude the agent
// again.
func TestSlowIsNotSilent(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	d.takes, d.slow = 8*time.Second, map[wire.AgentID]time.Duration{"a002": 39 * time.Second}
	d.silent["a002"] = true
	d.rounds(2)
	d.silent = nil
	opened := d.rounds(200)
	last := wire.RoundID(0)
	for _, f := range eventsOf[round.AgentSidelined](d.events) {
		last = f.Round
	}
	if last == 1 || last > 70 || !slices.Contains(opened[199].Participants, "a002") {
		t.Errorf("it is slow and sits out last after round %d", last)
	}
}

// TestTurnsGrowWithTheFleet checks that the first exclusion of an agent lasts ten rounds if each agent is drawn in
// every tenth round on average.
func TestTurnsGrowWithTheFleet(t *testing.T) {
	cfg := driveConfig(4, 3)
	d := newDrive(t, cfg, 40)
	for i := range 40 {
		d.silent[agentNumber(i)] = i%4 == 0
	}
	d.rounds(2)
	for _, f := range eventsOf[round.AgentSidelined](d.events) {
		if f.DrawsSatOut != 10 || f.LastSidelinedRound != 11 {
			t.Errorf("of 40 agents, 4 drawn in a round: %s", show(f))
		}
	}
}

// TestEndlessSilenceDoesNotStop checks that rounds continue to open with at least the minimum number of agents, even if
// most or all agents never send an update.
func TestEndlessSilenceDoesNotStop(t *testing.T) {
	for _, silent := range []int{3, 5, 6} {
		d := newDrive(t, driveConfig(6, 3), 6)
		for i := range silent {
			d.silent[agentNumber(i)] = true
		}
		for _, o := range d.rounds(100) {
			if o.EligibleAgents < 3 {
				t.Errorf("%d of 6 are silent: round %d has K = %d, the minimum is 3", silent, o.Round, o.EligibleAgents)
			}
		}
		early := slices.ContainsFunc(eventsOf[round.AgentReadmitted](d.events),
			func(f round.AgentReadmitted) bool { return f.ReadmittedEarly })
		if early != (silent > 3) {
			t.Errorf("%d of 6 are silent, the minimum is 3: readmitted early: %t", silent, early)
		}
	}
}

// TestSpoiledFoldSitsOut checks that an agent whose updates make models unusable is drawn less and less often, although
// these updates pass all checks.
func TestSpoiledFoldSitsOut(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	d.spoils["a001"] = true
	d.rounds(200)
	if n := len(eventsOf[round.RoundAbandoned](d.events)); n != 9 {
		t.Errorf("%d of 200 rounds were abandoned, want 9", n)
	}
	for _, f := range eventsOf[round.AgentSidelined](d.events) {
		if f.Agent != "a001" || f.Reason != round.SidelinedSpoiledModel {
			t.Errorf("%s", show(f))
		}
	}
}

// TestSittingOutSurvivesARestart checks that an agent that is excluded from draws remains excluded after a restart of
// the coordinator.
func TestSittingOutSurvivesARestart(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	d.silent["a002"] = true
	before := d.rounds(8)[7]
	d.machine = round.NewCoordinator(driveConfig(4, 3), d.machine.JournalRecord(), nil)
	d.events, d.silent = nil, nil
	d.step(round.StartOrResumeRun{})
	d.step(round.LinkUp{})
	for i := range 4 {
		d.hello(agentNumber(i))
	}
	for _, o := range d.rounds(4) {
		if drawn := slices.Contains(o.Participants,
			"a002"); drawn != (o.Round > before.SidelinedAgents[0].LastSidelinedRound) {
			t.Errorf("it sat out until round %d, before the restart in round %d: drawn in round %d: %t",
				before.SidelinedAgents[0].LastSidelinedRound, before.Round, o.Round, drawn)
		}
	}
}

// TestReadmittedEarly checks that the coordinator readmits the present agents with the shortest remaining exclusion if
// too few other agents are present.
func TestReadmittedEarly(t *testing.T) {
	r := round.JournalRecord{Run: 1, Round: 1, Phase: round.CoordinatorIdle,
		Plan: round.Plan{Kind: wire.KindTraining, BaseModel: blob("w0"), Exchange: spec.ExchangeParameters}}
	for i, until := range []wire.RoundID{5, 20, 40, 30, 20, 90, 80, 70, 60} {
		r.SidelinedAgents = append(r.SidelinedAgents, round.SidelinedAgent{Agent: agentNumber(i),
			LastSidelinedRound: until, DrawsSatOut: int(until)})
	}
	d := &drive{t: t, now: dawn, machine: round.NewCoordinator(driveConfig(9, 3), r, nil)}
	d.step(round.StartOrResumeRun{})
	d.step(round.LinkUp{})
	for i := range r.SidelinedAgents[1:] { // Skip the first agent, which is absent.
		d.hello(agentNumber(i + 1))
	}
	d.rounds(1)
	var back []wire.AgentID
	for _, f := range eventsOf[round.AgentReadmitted](d.events) {
		back = append(back, f.Agent)
	}
	if want := []wire.AgentID{"a001", "a004", "a003"}; !slices.Equal(back, want) {
		t.Errorf("readmitted are %v, want %v", back, want)
	}
}

// TestFullDiskIsNotSilence checks that agents are not excluded from later rounds if the host could not store their
// updates until just before the deadline.
func TestFullDiskIsNotSilence(t *testing.T) {
	cfg := driveConfig(4, 3)
	d := newDrive(t, cfg, 4)
	for i := range 4 {
		d.silent[agentNumber(i)] = true
	}
	d.rounds(1)
	d.now = d.now.Add(cfg.RoundTimeout - time.Second)
	d.step(round.StorageFailed{FailingSince: d.now})
	d.now = d.now.Add(time.Hour)
	d.step(round.StorageRecovered{})
	d.untilAbandoned()
	if out := eventsOf[round.AgentSidelined](d.events); len(out) > 0 {
		t.Errorf("%s, though the host could not write until a second before the deadline", show(out[0]))
	}
}

// TestLostLinkIsNotSilence checks that agents are not excluded from later rounds if they could not reach the
// coordinator.
func TestLostLinkIsNotSilence(t *testing.T) {
	d := newDrive(t, driveConfig(4, 3), 4)
	for i := range 4 {
		d.silent[agentNumber(i)] = true
	}
	d.rounds(1)
	d.step(round.LinkDown{})
	d.step(round.LinkUp{})
	d.silent = nil
	d.untilAbandoned()
	if out := eventsOf[round.AgentSidelined](d.events); len(out) > 0 {
		t.Errorf("%s, though the link was lost in the round", show(out[0]))
	}
}
