package round_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/round/schedule"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// coordinatorPlayer runs test scripts with a coordinator's machine. It keeps the state that a host stores on disk, so
// that the script command "crash" can resume from that state. The command "crash undone" also loses the effects of the
// previous command.
type coordinatorPlayer struct {
	t       *testing.T
	machine *round.CoordinatorMachine
	cfg     round.Config
	plan    round.Plan
	disk    coordinatorDisk
	before  coordinatorDisk // state of the disk before the last command
	now     time.Time
	up      bool
	slow    bool                    // whether announcements are published only at the command "announced"
	board   *round.AnnouncementSent // announcement to publish after each reconnection; nil if none was published
}

type coordinatorDisk struct {
	last   wire.AnnouncementPosition // position of the last published announcement
	record round.JournalRecord
	spool  map[wire.AgentID]round.SpooledUpdate
}

func (p *coordinatorPlayer) deadline() (time.Time, bool) {
	if p.machine == nil {
		return time.Time{}, false
	}
	return p.machine.Deadline()
}

func (p *coordinatorPlayer) play(now time.Time, c command) []any {
	if c.name == "new" {
		p.begin(c)
		return nil
	}
	if c.name == "crash" {
		if len(c.words) > 0 {
			p.disk = p.before
		}
		p.machine, p.up, p.board = round.NewCoordinator(p.cfg, p.disk.record, p.disk.spool), false, nil
		return nil
	}
	if c.name == "rule" { // The script command "rule" sets the stopping rule of the next process.
		p.cfg.Stop = stopRule(c)
		return nil
	}
	if c.name == "announcements" {
		p.slow = c.word(0) == "slow"
		return nil
	}
	// The script command "spool" stores an update without informing the machine, as before a crash.
	if c.name == "spool" {
		p.disk.spool[wire.AgentID(c.word(0))] = round.SpooledUpdate{UpdateDigest: name(c.word(1)), Norm: 1}
		return nil
	}
	p.now = now
	p.before = coordinatorDisk{p.disk.last, p.disk.record, maps.Clone(p.disk.spool)}
	agents := []wire.AgentID{""}
	if len(c.words) > 0 && c.name != "meshed" && c.name != "storage" && c.name != "steered" {
		agents = ids(c.word(0))
	}
	var all []round.Effect
	for _, a := range agents {
		all = append(all, p.step(now, p.event(c, a))...)
		if err := p.machine.Miscounted(); err != nil {
			p.t.Errorf("after %q: %v", c.name, err)
		}
		if c.name == "link" && p.up && p.board != nil && !p.slow {
			all = append(all, p.step(now, *p.board)...)
		}
	}
	return anys(all)
}

// step passes an event to the machine and returns the effects. It also confirms the publication of an announcement at
// once, unless slow is set.
func (p *coordinatorPlayer) step(now time.Time, ev round.Event) []round.Effect {
	effects, out := p.machine.Step(now, ev), false
	for _, e := range effects {
		p.keep(e)
		if _, is := e.(round.PublishAnnouncement); is {
			out = p.up && !p.slow
		}
	}
	if out {
		effects = append(effects, p.step(now, *p.board)...)
	}
	return effects
}

// keep stores the data that a host would store on disk, and checks that announcements are published in ascending order
// of position.
func (p *coordinatorPlayer) keep(e round.Effect) {
	switch e := e.(type) {
	case round.SaveJournalRecord:
		p.disk.record = e.Record
	case round.DiscardRoundSpool:
		p.disk.spool = map[wire.AgentID]round.SpooledUpdate{}
	case round.PublishAnnouncement:
		o := wire.AnnouncementPosition{Run: p.disk.record.Run, Round: e.Round, Attempt: e.Announcement.Attempt,
			Phase: e.Announcement.Phase}
		if o.Compare(p.disk.last) <= 0 {
			p.t.Errorf("announced %s after %s", o, p.disk.last)
		}
		p.disk.last = o
		p.board = &round.AnnouncementSent{Round: o.Round, Attempt: o.Attempt, Phase: o.Phase}
	}
}

func (p *coordinatorPlayer) begin(c command) {
	p.cfg = round.Config{
		Aggregation: rule.DefaultConfig(), ServerOptimizer: optimizer.DefaultConfig(),
		Algorithm:    spec.Algorithm(c.opt("algorithm", "fedavg")),
		Participants: int(c.num("participants", 2)), Quorum: int(c.num("quorum", 1)),
		ExtraParticipants:     int(c.num("over", 0)),
		Sampling:              spec.ParticipantSampling(c.opt("sampling", "without_replacement")),
		UsesRobustAggregation: c.opt("robust", "false") == "true",
		AgentWeightRule:       spec.AgentWeightRule(c.opt("weights", "equal")),
		WeightPlacement:       spec.WeightPlacement(c.opt("weighting", "step")),
		MaxAggregations:       int(c.num("rounds", 0)), Seed: c.num("seed", 1),
		Gather: round.GatherConfig{
			TargetAgents: int(c.num("target", 0)), MinAgents: int(c.num("minimum", 1)),
			FirstRoundMinAgents: int(c.num("first", 0)), WindowLength: c.span("within", "30s"),
			HelloSpread: c.span("spread", "5s"),
			ResponseLottery: round.ResponseLotteryConfig{TargetHellos: int(c.num("respond", 0)),
				ListedAgents: int(c.num("listed",
					0)),
				DisconnectDuration: c.span("after", "0s"), DisconnectSpread: c.span("back", "0s"),
				Presence: round.PresencePolicy(c.opt("presence", "all"))},
		},
		RoundTimeout: c.span("deadline", "2m"), PauseBetweenRounds: c.span("pause", "0s"),
		ReinviteInterval: c.span("every", "1m"),
		Rollout:          rollout.DefaultConfig(), Stop: stopRule(c),
		Evaluation: evaluation.Config{VersionInterval: int(c.num("evaluate", 0)), MinRows: 20,
			MinAgents: int(c.num("min_agents", 1))},
		Schedule: schedule.Config{NewRows: schedule.NewRowsCondition{MinAgents: int(c.num("fresh", 0)),
			MinRowsPerAgent: int(c.num("rows", 0))}},
	}
	if w := c.opt("window", ""); w != "" {
		p.cfg.Schedule.Windows = strings.Split(strings.ReplaceAll(w, "_", " "), ",")
	}
	p.cfg.Rollout.Share, p.cfg.Rollout.FirstVersion = rollout.AgentShare(c.opt("rollout", "")), 1
	if err := p.cfg.Validate(); err != nil {
		panic(err)
	}
	p.plan = round.Plan{
		Kind:         pick(c.opt("kind", "training"), wire.KindStatistics, wire.KindTraining),
		Task:         wire.BlobRef{Hash: name("task")},
		UpdateSchema: name("floats"), UpdateBytes: 40, BaseModel: wire.BlobRef{Length: uint32(c.num("model", 0))},
		ServerStepSize: 0.1, Exchange: spec.ExchangeParameters,
		HasEndlessBlocks: c.opt("blocks", "") == "endless",
	}
	if c.opt("exchange", "") == "gradient" {
		p.plan.Exchange = spec.ExchangeGradient
	}
	if p.plan.Kind == wire.KindTraining {
		p.plan.BaseModel.Hash = name("w0")
	}
	p.up, p.slow, p.board = false, false, nil
	p.disk = coordinatorDisk{record: round.JournalRecord{Run: 7, Phase: round.CoordinatorIdle, Plan: p.plan},
		spool: map[wire.AgentID]round.SpooledUpdate{}}
	p.machine = round.NewCoordinator(p.cfg, p.disk.record, nil)
}

// stopRule parses the options of a script command that describe a stopping rule.
func stopRule(c command) stop.Config {
	rule := stop.Config{Patience: int(c.num("patience", 0)), TimeLimit: c.span("time", "0s"),
		ByteLimit: spec.ByteSize(c.num("bytes", 0))}
	for key, x := range map[string]*float64{"risk": &rule.TargetRisk, "r2": &rule.TargetR2,
		"improvement": &rule.MinImprovementShare} {
		if v := c.figure(key); v != nil {
			*x = *v
		}
	}
	return rule
}

func (p *coordinatorPlayer) event(c command, a wire.AgentID) round.Event {
	r := wire.RoundID(c.num("round", uint64(p.disk.record.Round)))
	switch c.name {
	case "start":
		return round.StartOrResumeRun{}
	case "tick":
		return round.Tick{}
	case "link":
		if p.up = c.word(0) == "up"; p.up {
			return round.LinkUp{}
		}
		return round.LinkDown{}
	case "announced":
		return *p.board
	case "hello":
		h := wire.Hello{AnswerProbability: uint32(c.num("drawn", 0)),
			FateRequest: wire.UpdateFateRequest{Round: wire.RoundID(c.num("asks", 0))},
			PeerKey:     wire.X25519PublicKey{byte(c.num("key", 0))}, Samples: c.num("samples", 100),
			UnfitReason: pick(c.opt("unfit", ""), wire.DeclineReasons()...),
			DataProblem: wire.DataProblem{Column: c.opt("column", ""), Reason: c.opt("why", ""),
				UnusableValues: c.num("bad", 0)},
			NewRows: wire.NewRowsReport{IsKnown: c.opt("new", "") != "", UnusedRows: uint32(c.num("new", 0)),
				LastUsedRound: wire.RoundID(c.num("since", 0))}}
		if v := c.num("evaluates", 0); v > 0 {
			h.Evaluation = wire.Evaluation{Run: wire.RunID(c.num("run", 7)), ModelVersion: wire.ModelVersion(v),
				Rows: uint32(c.num("rows", 100)), RiskSum: float64(c.num("risk", 50))}
		}
		if v := c.num("judges", 0); v > 0 {
			h.Residuals = wire.CandidateResiduals{Run: 7, ModelVersion: wire.ModelVersion(v),
				LabeledRows: uint32(c.num("rows",
					24)),
				CandidateMeanSquare: float64(c.num("new", 1)), ReleasedMeanSquare: float64(c.num("old", 1))}
		}
		return round.HelloReceived{Agent: a, Boot: wire.Epoch(c.num("boot", 1)), Hello: h}
	case "storage":
		if c.word(0) == "failed" {
			return round.StorageFailed{FailingSince: p.now}
		}
		return round.StorageRecovered{}
	case "steered":
		// The host keeps the operator's command across restarts.
		p.cfg.OperatorCommand = round.OperatorCommand(c.word(0))
		return round.OperatorCommandChanged{Command: p.cfg.OperatorCommand, AbandonsRound: c.opt("now", "") == "yes"}
	case "revoked":
		return round.AgentsRevoked{Agents: []wire.AgentID{a}}
	case "presence":
		return round.PresenceReceived{Agent: a, State: pick(c.word(1), wire.PresenceOnline, wire.PresenceOffline,
			wire.PresenceLost)}
	case "joined":
		return round.JoinedReceived{Agent: a, Round: r}
	case "declined":
		return round.DeclinedReceived{Agent: a, Round: r, Reason: pick(c.word(1), wire.DeclineReasons()...)}
	case "offer":
		return round.UpdateOfferReceived{UpdateOffer: round.UpdateOffer{Agent: a, Run: wire.RunID(c.num("run", 7)),
			Round:  r,
			Update: p.update(c)}}
	case "stored":
		if r == p.disk.record.Round {
			p.disk.spool[a] = round.SpooledUpdate{UpdateDigest: name(c.word(1)), Norm: 1}
		}
		return round.UpdateStored{Agent: a, Round: r, Update: p.update(c), Norm: 1}
	case "rejected":
		return round.UpdateRejected{Agent: a, Round: r, UpdateDigest: name(c.word(1)),
			Reason: pick(c.word(2), wire.UpdateRefusalReasons()...)}
	case "meshed": // The command's words, such as a1-a2 a2-a3, list all edges, which have equal weights.
		m := round.EdgesReady{Round: r}
		for _, e := range c.words {
			from, to, _ := strings.Cut(e, "-")
			m.Edges = append(m.Edges, round.MixingEdge{A: wire.AgentID(from), B: wire.AgentID(to), MixingWeight: 0.25})
		}
		return m
	case "ahead":
		return round.EdgesAheadReady{}
	case "folded":
		return p.folded(c, r)
	}
	panic("unknown command: " + c.name)
}

func (p *coordinatorPlayer) update(c command) wire.Update {
	u := wire.Update{Kind: p.disk.record.Plan.Kind, BaseModelDigest: p.disk.record.Plan.BaseModel.Hash,
		Samples: c.num("samples",
			100)}
	if k := c.opt("kind", ""); k != "" {
		u.Kind = pick(k, wire.KindStatistics, wire.KindTraining)
	}
	if b := c.opt("base", ""); b != "" {
		u.BaseModelDigest = name(b)
	}
	u.Extra = unknown(c)
	u.PayloadManifest = wire.Manifest{Hash: name(c.word(1)), VectorSchema: name(c.opt("schema", "floats")),
		BlobLength: uint32(c.num("length", 40)), Codec: spec.Codec(c.opt("codec", string(p.disk.record.Plan.Codec)))}
	return u
}

// folded returns the event that ends an aggregation. After a statistics round, the next plan is a training round; after
// a training round, it is a training round with the next model version.
func (p *coordinatorPlayer) folded(c command, r wire.RoundID) round.Event {
	if problem := c.opt("error", ""); problem != "" {
		return round.AggregationEnded{Round: r, Err: errors.New(problem)}
	}
	next := p.disk.record.Plan
	if next.Kind == wire.KindStatistics {
		next.Kind, next.Task.Hash = wire.KindTraining, name("task+statistics")
	} else {
		next.BaseModelVersion++
		next.LocalStepOffset += 10
		next.Kind = pick(c.opt("next", "training"), wire.KindStatistics, wire.KindTraining)
	}
	next.BaseModel.Hash = name(fmt.Sprint("w", next.BaseModelVersion))
	if p.cfg.Rollout.IsEnabled() {
		next.ModelFile = blob(fmt.Sprint("file", next.BaseModelVersion))
	}
	return round.AggregationEnded{Round: r, NextPlan: next,
		Measurements: round.RoundMeasurements{HeldOutRisk: c.figure("risk"),
			R2:              c.figure("r2"),
			MedianAgentRisk: c.figure("told")}}
}
