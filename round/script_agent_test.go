package round_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// agentPlayer runs test scripts with an agent's machine. It keeps the state that a host stores on disk, so that the
// script command "restart" can create a new machine from that state.
type agentPlayer struct {
	t       *testing.T
	machine *agentround.Machine
	seed    uint64
	obeyed  agentround.SaveAnnouncementPosition // announcement position that is stored on disk
	full    bool                                // whether the simulated disk is full, so that saving fails
	slow    bool                                // whether saving a position completes only at a later script command
	unsaved agentround.SaveAnnouncementPosition // position that is waiting to be saved on a slow disk
	saved   *agentround.SavedUpdate
	train   agentround.StartTraining // last effect StartTraining that the machine has emitted
}

func (p *agentPlayer) deadline() (time.Time, bool) {
	if p.machine == nil {
		return time.Time{}, false
	}
	return p.machine.Deadline()
}

func (p *agentPlayer) play(now time.Time, c command) []any {
	switch c.name {
	case "new":
		*p = agentPlayer{t: p.t, seed: c.num("seed", 1)}
		p.restart()
		return nil
	case "restart":
		p.seed++
		p.unsaved = agentround.SaveAnnouncementPosition{}
		p.restart()
		return nil
	}
	if c.name == "disk" {
		p.full, p.slow = c.word(0) == "full", c.word(0) == "slow"
		if p.full || p.slow || p.unsaved == (agentround.SaveAnnouncementPosition{}) {
			return nil
		}
		p.obeyed, p.unsaved = p.unsaved, agentround.SaveAnnouncementPosition{}
		return anys(p.machine.Step(now, agentround.AnnouncementPositionSaved{Position: p.obeyed.Position}))
	}
	effects := p.machine.Step(now, p.event(c))
	for i := 0; i < len(effects); i++ {
		switch e := effects[i].(type) {
		case agentround.SaveAnnouncementPosition:
			if e.Position.Compare(p.obeyed.Position) <= 0 {
				p.t.Errorf("obeyed %s after %s", e.Position, p.obeyed.Position)
			}
			if p.unsaved = e; p.slow {
				continue
			}
			if !p.full {
				p.obeyed, p.unsaved = e, agentround.SaveAnnouncementPosition{}
			}
			effects = append(effects, p.machine.Step(now, agentround.AnnouncementPositionSaved{Position: e.Position,
				SaveFailed: p.full})...)
		case agentround.StartTraining:
			p.train = e
		case agentround.EndRoundWork:
			p.saved = nil
		}
	}
	return anys(effects)
}

func (p *agentPlayer) restart() {
	p.machine = agentround.New(p.obeyed.Position, p.obeyed.AnnouncementDigest, p.saved, rand.New(rand.NewPCG(p.seed,
		0)))
}

func (p *agentPlayer) event(c command) agentround.Event {
	run, r := wire.RunID(c.num("run", 7)), wire.RoundID(c.num("round", uint64(p.obeyed.Position.Round)))
	switch c.name {
	case "tick":
		return agentround.Tick{}
	case "link":
		if c.word(0) == "up" {
			return agentround.LinkUp{}
		}
		return agentround.LinkDown{}
	case "announcement":
		return p.announcement(c)
	case "invited":
		return agentround.InvitationReceived{AnnouncementDigest: name(c.word(0)), TimeLeft: c.span("left", "1m"),
			StepWeight:    1,
			KnownRowCount: c.num("samples", 0),
			MustUpload:    c.opt("uploads", "yes") == "yes", EndedEdges: endedEdges(c),
			UnsupportedErr: unknown(c).CheckSupported()}
	case "obeyed": // Use a position that the machine did not request to save.
		o := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: run, Round: r, Attempt: 1, Phase: wire.PhaseOpen}
		return agentround.AnnouncementPositionSaved{Position: o, SaveFailed: c.opt("failed", "no") == "yes"}
	case "standing":
		return agentround.RoundStandingReceived{AnnouncementDigest: name(c.word(0)),
			Standing:      pick(c.word(1), wire.StatusSelectionPending, wire.StatusNotSelected),
			KnownRowCount: c.num("samples", 100)}
	case "accepted":
		return agentround.UpdateAcceptanceReceived{Run: run, Round: r, UpdateDigest: name(c.word(0))}
	case "refused":
		return agentround.UpdateRefusalReceived{Run: run, Round: r, UpdateDigest: name(c.word(0)),
			Reason: pick(c.word(1), wire.UpdateRefusalReasons()...)}
	case "prepared":
		return agentround.TaskChecked{TaskDigest: name(c.word(0)), RowCount: c.num("samples", 100),
			UnfitReason:           pick(c.opt("unfit", ""), wire.DeclineReasons()...),
			StatisticsUpdateBytes: uint32(c.num("statistics", 0))}
	case "stranded":
		return agentround.FetchStalled{NeededBeyondRound: c.opt("beyond", "no") == "yes"}
	case "lacking":
		return agentround.DownloadDataMissing{}
	case "budget":
		return agentround.UplinkBudgetChanged{BytesLeft: command{name: "budget",
			opts: map[string]string{"left": c.word(0)}}.num("left", 0)}
	case "barred":
		return agentround.OwnerRuleChanged{RuleName: c.opt("rule", "device"), Reason: pick(c.opt("by", ""),
			wire.DeclineReasons()...)}
	case "fetched":
		return agentround.ModelFetched{BaseModelDigest: name(c.word(0)), FetchFailed: len(c.words) > 1}
	case "trained":
		return p.trained(c)
	}
	panic("unknown command: " + c.name)
}

// endedEdges parses the option "ended=NEIGHBOUR" of a script command, which names a neighbour whose edge is excluded.
func endedEdges(c command) []wire.EndedEdge {
	if id := c.opt("ended", ""); id != "" {
		return []wire.EndedEdge{{NeighborID: wire.AgentID(id), Reason: wire.EdgeEndTooDistant}}
	}
	return nil
}

// unknown parses the option "section=NEED" of a script command, which simulates a message section that this version
// does not support.
func unknown(c command) wire.UnknownSections {
	need := pick(c.opt("section", ""), wire.IgnoreUnknownSection, wire.DeclineUnknownSection)
	if need == 0 {
		return nil
	}
	return wire.UnknownSections{{Name: "later", UnknownPolicy: need, Body: []byte{1}}}
}

// announcement parses the script command "announcement DIGEST ROUND PHASE" and returns the event in which the
// announcement arrives.
func (p *agentPlayer) announcement(c command) agentround.Event {
	phase := pick(c.word(2), wire.PhaseGathering, wire.PhaseOpen, wire.PhaseIdle, wire.PhaseFinished)
	ann := wire.Announcement{
		Attempt: wire.RoundAttempt(c.num("attempt", 1)), Phase: phase, Kind: wire.KindTraining,
		Task: wire.BlobRef{Hash: name(c.opt("task", "task")), Length: 1}, HelloSpreadMillis: 5000,
		RoundTimeoutMillis: 60000,
		Extra:              unknown(c),
		ResponsePolicy: wire.AgentResponsePolicy{AnswerProbability: uint32(c.num("respond", 0)),
			DisconnectMillis:    uint32(c.num("after", 0)),
			AbsenceSpreadMillis: uint32(c.num("within", 0))},
	}
	if c.opt("kind", "training") == "statistics" {
		ann.Kind = wire.KindStatistics
	} else {
		ann.BaseModel = wire.BlobRef{Hash: name(c.opt("base", "w0")), Length: uint32(c.num("bytes", 1))}
	}
	r := command{name: "round", opts: map[string]string{"round": c.word(1)}}.num("round", 0)
	folded := r // last aggregated round: the previous round, or round r if it is over
	if folded > 0 && phase < wire.PhaseIdle {
		folded--
	}
	ann.LastEndedRound = wire.RoundID(c.num("folded", folded))
	order := wire.AnnouncementPosition{Root: 1, Epoch: wire.Epoch(c.num("epoch", 1)), Run: wire.RunID(c.num("run", 7)),
		Round:   wire.RoundID(r),
		Attempt: ann.Attempt, Phase: phase}
	e := agentround.AnnouncementReceived{Position: order, EnvelopeDigest: name(c.word(0)), Announcement: ann,
		IsRetained: c.opt("retained", "no") == "yes"}
	if c.opt("others", "no") == "yes" {
		e.Announcement.Selection = wire.AgentSelection{CommonStepSizeWeight: 1, AgentTags: []uint64{1}}
	}
	if c.opt("selected", "no") == "yes" {
		e.StepWeight = 1
	}
	return e
}

// trained simulates the end of the agent's training. Like a host, it saves the update before it informs the machine.
func (p *agentPlayer) trained(c command) agentround.Event {
	order := p.train.Position
	e := agentround.TrainingEnded{Run: wire.RunID(c.num("run", uint64(order.Run))),
		Round: wire.RoundID(c.num("round", uint64(order.Round)))}
	if e.FailureReason = pick(c.opt("failed", ""), wire.DeclineReasons()...); e.FailureReason == 0 {
		e.UpdateDigest = name(c.word(0))
		p.saved = &agentround.SavedUpdate{Run: e.Run, Round: e.Round,
			BaseModelDigest: p.train.Announcement.BaseModel.Hash,
			UpdateDigest:    e.UpdateDigest}
	}
	return e
}
