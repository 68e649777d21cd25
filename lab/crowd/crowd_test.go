package crowd

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// member is the compact state of a simulated agent that does not run its state machine.
type member struct {
	pcg     rand.PCG            // random source that the agent and its state machine share
	before  rand.PCG            // state of pcg before the random draw for the current round
	drew    uint32              // random number that was drawn for the current round
	round   wire.RoundID        // round of the last draw; 0 means none
	back    int64               // time in ms at which the agent connects again; 0 while connected
	read    int32               // index of the newest announcement that the agent has accepted; −1 means none
	boot    uint32              // number of times the agent has started
	part    uint16              // number of rounds to whose model this agent has contributed an update
	undrawn bool                // true if the agent was not selected to respond in the current round
	anew    bool                // true if the agent has received no announcement since its start
	full    *agentround.Machine // state machine of the agent; nil while the agent is passive
}

// announcement is a retained announcement of the coordinator.
type announcement struct {
	order  wire.AnnouncementPosition
	digest wire.Digest
	body   wire.Announcement
	named  map[wire.AgentID]float64
}

// tally counts the messages and agents of one round.
type tally struct {
	Hellos, Read        int // hello messages received by the coordinator, and announcements delivered to agents
	Signed, Verified    int // signatures that the coordinator created and verified
	AgentSigned         int
	Members             int // number of agents that the coordinator knows
	Connected           int // number of connected agents when the round opened
	Attempts, Selected  int
	Accepted, Estimated int
	Agents              int // number of agents (K)
}

// crowd is a simulated federation in virtual time.
type crowd struct {
	t        *testing.T
	cfg      round.Config
	now      int64 // virtual time in ms
	queue    events
	serial   uint64
	members  []member
	lead     *round.CoordinatorMachine
	record   round.JournalRecord
	plan     round.Plan
	all      []*announcement
	heard    map[wire.AgentID]bool // agents that have sent a hello message since the round started to gather agents
	tally    tally
	rounds   []tally
	rng      *rand.Rand // random source for restarts and latencies
	twins    bool       // true if each passive agent is also simulated with the state machine and compared
	compared int
	trace    hash.Hash
	crashAt  wire.RoundID // round in which the coordinator is killed; 0 means none
}

// event is an event in virtual time: the reconnection of an agent, or a scheduled function call.
type event struct {
	at     int64
	serial uint64
	id     int32
	call   func() // function to call; nil for the reconnection of an agent
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func agentID(k int32) wire.AgentID { return wire.AgentID(fmt.Sprintf("m%07d", k)) }

func numberOf(id wire.AgentID) (k int32) {
	for _, c := range id[1:] {
		k = 10*k + int32(c-'0')
	}
	return k
}

var dawn = time.Unix(1_000_000_000, 0).UTC()

func (c *crowd) time() time.Time { return dawn.Add(time.Duration(c.now) * time.Millisecond) }

func (c *crowd) after(ms int64, call func()) {
	c.serial++
	heap.Push(&c.queue, event{c.now + ms, c.serial, -1, call})
}

func digestOf(words ...any) wire.Digest { return sha256.Sum256(fmt.Append(nil, words...)) }

// newCrowd returns a federation with n agents, which connect at random times at the start.
func newCrowd(t *testing.T, n int, cfg round.Config) *crowd {
	c := &crowd{t: t, cfg: cfg, now: 1, members: make([]member, n), heard: map[wire.AgentID]bool{},
		rng: rand.New(rand.NewPCG(1, 1)), trace: sha256.New()}
	c.cfg.Gather.ResponseLottery.ListedAgents = n
	c.plan = round.Plan{Kind: wire.KindTraining, UpdateBytes: 40, Task: wire.BlobRef{Hash: digestOf("task"), Length: 1},
		BaseModel: wire.BlobRef{Hash: digestOf("model", 0), Length: 1}}
	within := max(1, cfg.Gather.ResponseLottery.DisconnectSpread.Milliseconds())
	for k := range c.members {
		m := &c.members[k]
		m.pcg, m.read, m.anew = *rand.NewPCG(2, uint64(k)), -1, true
		c.away(int32(k), 1+c.rng.Int64N(within))
	}
	c.start(round.JournalRecord{Run: 1, Phase: round.CoordinatorIdle, Plan: c.plan})
	c.after(1, c.churn)
	return c
}

// start starts the coordinator's state machine from a journal record.
func (c *crowd) start(r round.JournalRecord) {
	c.lead = round.NewCoordinator(c.cfg, r, nil)
	c.step(round.LinkUp{})
	c.step(round.StartOrResumeRun{})
}

// away disconnects agent k and schedules its reconnection after ms milliseconds.
func (c *crowd) away(k int32, ms int64) {
	c.serial++
	c.members[k].back = c.now + ms
	heap.Push(&c.queue, event{c.now + ms, c.serial, k, nil})
}

// run runs the simulation until the given number of rounds have closed.
func (c *crowd) run(rounds int) {
	for len(c.rounds) < rounds {
		e := heap.Pop(&c.queue).(event)
		if c.now = e.at; c.now > 1000*3600*24*7 {
			c.t.Fatalf("after a week %d rounds are over: %+v", len(c.rounds), c.tally)
		}
		switch m := (*member)(nil); {
		case e.call != nil:
			e.call()
		default:
			// Ignore the event if the agent has restarted since it was scheduled.
			if m = &c.members[e.id]; m.back == e.at {
				m.back = 0
				c.hear(e.id, true)
			}
		}
	}
}

// churn restarts one in 2,000 agents every ten seconds of virtual time. The current work of these agents is lost.
func (c *crowd) churn() {
	for range max(1, len(c.members)/2000) {
		k := c.rng.Int32N(int32(len(c.members)))
		m := &c.members[k]
		m.full, m.undrawn, m.anew, m.round = nil, false, true, 0
		m.boot++
		c.away(k, 1000+c.rng.Int64N(60_000))
	}
	c.after(10_000, c.churn)
}

// hear delivers the newest announcement to agent k, which is connected.
func (c *crowd) hear(k int32, retained bool) {
	if len(c.all) == 0 {
		return
	}
	c.tally.Read++
	m, last := &c.members[k], int32(len(c.all)-1)
	a := c.all[last]
	weight := a.named[agentID(k)]
	if m.full != nil {
		c.tell(k, c.event(a, retained, weight))
		m.read = last
		return
	}
	if asked := a.body.Phase == wire.PhaseGathering || m.anew; asked && m.read != last {
		of, fresh := a.body.ResponsePolicy.AnswerProbability, m.round != a.order.Round
		if fresh {
			m.before, m.round = m.pcg, a.order.Round
			m.drew = rand.New(&m.pcg).Uint32()
		}
		if m.undrawn = of > 0 && weight == 0 && m.drew >= of; !m.undrawn {
			c.begin(k, a, retained, weight)
			m.read, m.anew = last, false
			return
		}
		if fresh {
			c.twin(k, a, retained)
		}
	}
	m.read, m.anew = last, false
	apart := a.body.Phase == wire.PhaseOpen && len(a.body.Selection.AgentTags) > 0
	if r := a.body.ResponsePolicy; r.DisconnectMillis+r.AbsenceSpreadMillis > 0 && (m.undrawn || apart) {
		c.away(k, leaves(&m.pcg, &r).Milliseconds())
	}
}

// leaves draws a random duration for which an agent disconnects.
func leaves(pcg *rand.PCG, r *wire.AgentResponsePolicy) time.Duration {
	within := int64(time.Duration(r.AbsenceSpreadMillis) * time.Millisecond)
	return time.Duration(r.DisconnectMillis)*time.Millisecond + time.Duration(rand.New(pcg).Int64N(within))
}

func (c *crowd) event(a *announcement, retained bool, weight float64) agentround.AnnouncementReceived {
	return agentround.AnnouncementReceived{Position: a.order, EnvelopeDigest: a.digest, Announcement: a.body,
		IsRetained: retained,
		StepWeight: weight}
}

// floor returns the position and the hash of the newest announcement that agent m has stored on its disk.
func (c *crowd) floor(m *member) (wire.AnnouncementPosition, wire.Digest) {
	if m.read < 0 {
		return wire.AnnouncementPosition{}, wire.Digest{}
	}
	return c.all[m.read].order, c.all[m.read].digest
}

// begin starts the state machine of agent k and passes the announcement to it.
func (c *crowd) begin(k int32, a *announcement, retained bool, weight float64) {
	m := &c.members[k]
	order, digest := c.floor(m)
	m.pcg = m.before // Restore the random source, so that the state machine draws the same number again.
	m.full = agentround.New(order, digest, nil, rand.New(&m.pcg))
	c.tell(k, agentround.LinkUp{})
	c.tell(k, c.event(a, retained, weight))
}

// twin passes the announcement also to a state machine of a passive agent. It checks that the state machine behaves
// like the compact simulation.
func (c *crowd) twin(k int32, a *announcement, retained bool) {
	if !c.twins {
		return
	}
	c.compared++
	m := &c.members[k]
	order, digest := c.floor(m)
	machine, own := m.before, m.pcg
	full := agentround.New(order, digest, nil, rand.New(&machine))
	full.Step(c.time(), agentround.LinkUp{})
	var left time.Duration
	for _, e := range full.Step(c.time(), c.event(a, retained, 0)) {
		switch e := e.(type) {
		case agentround.AllowDisconnect:
			left = e.Duration
		case agentround.SendHello:
			c.t.Errorf("the machine of agent %d says hello", k)
		}
	}
	if want := leaves(&own, &a.body.ResponsePolicy); left != want || full.HasRoundWork() || !full.MayDisconnect() ||
		machine != own {
		c.t.Errorf("the machine of agent %d leaves for %v, the struct for %v", k, left, want)
	}
}

// tell passes an event to the state machine of agent k and executes the resulting effects.
func (c *crowd) tell(k int32, ev agentround.Event) {
	m := &c.members[k]
	if m.full == nil || m.back != 0 {
		return // The agent is not active: the event is lost.
	}
	machine := m.full
	for _, e := range machine.Step(c.time(), ev) {
		c.perform(k, m, e)
	}
	if m.full == machine {
		c.wake(k, machine)
	}
}

// wake schedules the next timer event of a state machine.
func (c *crowd) wake(k int32, machine *agentround.Machine) {
	at, wants := machine.Deadline()
	if !wants {
		return
	}
	c.after(max(1, at.Sub(c.time()).Milliseconds()+1), func() {
		if c.members[k].full != machine {
			return
		}
		if again, wants := machine.Deadline(); wants && !again.After(c.time()) {
			c.tell(k, agentround.Tick{})
		}
	})
}

// later passes an event to agent k after a delay of ms milliseconds, unless the agent restarts before.
func (c *crowd) later(k int32, ms int64, ev agentround.Event) {
	machine := c.members[k].full
	c.after(ms, func() {
		if c.members[k].full == machine {
			c.tell(k, ev)
		}
	})
}

// perform executes an effect of an agent's state machine.
func (c *crowd) perform(k int32, m *member, e agentround.Effect) {
	id := agentID(k)
	switch e := e.(type) {
	case agentround.SaveAnnouncementPosition:
		c.later(k, 1, agentround.AnnouncementPositionSaved{Position: e.Position})
	case agentround.PrepareTask:
		c.later(k, 10, agentround.TaskChecked{TaskDigest: e.Task.Hash, RowCount: 50 + uint64(k%100)})
	case agentround.FetchModel:
		c.later(k, 1000, agentround.ModelFetched{BaseModelDigest: e.BaseModel.Hash})
	case agentround.StartTraining:
		c.later(k, 5000+int64(k%20)*1000, agentround.TrainingEnded{Run: e.Position.Run, Round: e.Position.Round,
			UpdateDigest: digestOf("update", k, e.Position.Round)})
	case agentround.SendHello:
		c.say(func() {
			c.tally.Hellos++
			c.heard[id] = true
			c.step(round.HelloReceived{Agent: id, Boot: wire.Epoch(m.boot),
				Hello: wire.Hello{Samples: e.RowCount, UnfitReason: e.UnfitReason,
					AnswerProbability: e.LotteryThreshold,
					PendingUpdate:     e.UpdateDigest}})
		})
	case agentround.SendJoined:
		c.say(func() { c.step(round.JoinedReceived{Agent: id, Round: e.Position.Round}) })
	case agentround.SendDeclined:
		c.say(func() { c.step(round.DeclinedReceived{Agent: id, Round: e.Position.Round, Reason: e.Reason}) })
	case agentround.SubmitUpdate:
		u := wire.Update{Kind: wire.KindTraining, BaseModelDigest: c.all[m.read].body.BaseModel.Hash,
			Samples:         50 + uint64(k%100),
			PayloadManifest: wire.Manifest{Hash: e.UpdateDigest, BlobLength: 40, Codec: c.plan.Codec}}
		c.say(func() {
			c.step(round.UpdateOfferReceived{UpdateOffer: round.UpdateOffer{Agent: id, Boot: wire.Epoch(m.boot),
				Run:    e.Run,
				Round:  e.Round,
				Update: u}})
		})
	case agentround.AllowDisconnect:
		m.full, m.undrawn = nil, c.last().order.Phase == wire.PhaseGathering
		c.away(k, e.Duration.Milliseconds())
	}
}

// say delivers a message from an agent to the coordinator after a random latency.
func (c *crowd) say(arrive func()) {
	c.tally.AgentSigned++
	c.after(20+c.rng.Int64N(100), func() {
		c.tally.Verified++
		arrive()
	})
}

// step passes an event to the coordinator's state machine and executes the resulting effects.
func (c *crowd) step(ev round.Event) {
	lead := c.lead
	for _, e := range lead.Step(c.time(), ev) {
		if c.lead != lead {
			return // The coordinator was killed, so its remaining effects are lost.
		}
		c.conduct(e)
	}
	if at, wants := lead.Deadline(); wants {
		c.after(max(1, at.Sub(c.time()).Milliseconds()+1), func() {
			if again, wants := c.lead.Deadline(); c.lead == lead && wants && !again.After(c.time()) {
				c.step(round.Tick{})
			}
		})
	}
}

// conduct executes an effect of the coordinator's state machine.
func (c *crowd) conduct(e round.Effect) {
	direct := func(to wire.AgentID, ev agentround.Event) {
		c.tally.Signed++
		k := numberOf(to)
		c.later(k, 20+c.rng.Int64N(100), ev)
	}
	switch e := e.(type) {
	case round.SaveJournalRecord:
		c.record = e.Record
	case round.PublishAnnouncement:
		c.announce(e)
	case round.SendInvitation:
		direct(e.Agent, agentround.InvitationReceived{AnnouncementDigest: c.last().digest, TimeLeft: e.TimeLeft,
			StepWeight:    e.StepWeight,
			MustUpload:    e.MustUpload,
			KnownRowCount: e.KnownRowCount})
	case round.SendRoundStanding:
		direct(e.Agent, agentround.RoundStandingReceived{AnnouncementDigest: c.last().digest, Standing: e.Standing,
			KnownRowCount: e.KnownRowCount})
	case round.SendUpdateAcceptance:
		direct(e.Agent, agentround.UpdateAcceptanceReceived{Run: 1, Round: e.Round, UpdateDigest: e.UpdateDigest})
	case round.SendUpdateRefusal:
		direct(e.Agent, agentround.UpdateRefusalReceived{Run: e.Run, Round: e.Round, UpdateDigest: e.UpdateDigest,
			Reason: e.Reason})
	case round.ReceiveUpdate:
		c.after(200, func() {
			c.step(round.UpdateStored{Agent: e.Agent, Round: e.Round, Update: e.Update, Norm: 1})
			if c.crashAt == e.Round && c.crashAt > 0 {
				c.crashAt = 0
				c.start(c.record)
			}
		})
	case round.AggregateUpdates:
		c.fold(e)
	case round.ReportEvent:
		c.observe(e.Event)
	}
}

func (c *crowd) last() *announcement { return c.all[len(c.all)-1] }

// announce stores an announcement as the retained message and delivers it to all connected agents.
func (c *crowd) announce(e round.PublishAnnouncement) {
	c.tally.Signed++
	order := wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 1, Round: e.Round, Attempt: e.Announcement.Attempt,
		Phase: e.Announcement.Phase}
	a := &announcement{order: order, digest: digestOf(order), body: e.Announcement, named: map[wire.AgentID]float64{}}
	for _, d := range e.SelectedAgents {
		a.named[d.Agent] = d.StepWeight
	}
	if len(e.SelectedAgents) > 0 {
		a.body.Selection = wire.AgentSelection{CommonStepSizeWeight: 1, AgentTags: []uint64{1}}
	}
	if order.Phase == wire.PhaseGathering {
		c.tally.Attempts++
	}
	c.all = append(c.all, a)
	at := len(c.all)
	c.after(50, func() {
		if len(c.all) != at {
			return // A newer announcement has replaced this one.
		}
		c.step(round.AnnouncementSent{Round: order.Round, Attempt: order.Attempt, Phase: order.Phase})
		for k := range c.members {
			if m := &c.members[k]; m.back == 0 {
				c.hear(int32(k), false)
			}
		}
	})
}

// fold creates the next model. It checks that the agents have sent all updates that the coordinator aggregates.
func (c *crowd) fold(e round.AggregateUpdates) {
	for _, x := range e.Contributions {
		k := numberOf(x.Agent)
		if want := digestOf("update", k, e.Round); x.UpdateDigest != want {
			c.t.Errorf("round %d folds an update of agent %d that it has not sent", e.Round, k)
		}
		c.members[k].part++
	}
	c.plan.BaseModelVersion++
	c.plan.BaseModel.Hash = digestOf("model", c.plan.BaseModelVersion)
	next := c.plan
	c.after(1000, func() { c.step(round.AggregationEnded{Round: e.Round, NextPlan: next}) })
}

// observe records the events that the coordinator's state machine reports.
func (c *crowd) observe(f observe.Event) {
	switch f := f.(type) {
	case round.RoundOpened:
		c.tally.Agents, c.tally.Members = f.EligibleAgents, len(c.heard)
		c.tally.Estimated = int(f.ResponseLottery.EstimatedAgents)
		for k := range c.members {
			if c.members[k].back == 0 {
				c.tally.Connected++
			}
		}
	case round.RoundClosed:
		c.tally.Selected, c.tally.Accepted = f.SelectedAgents, f.AcceptedUpdates
		c.rounds = append(c.rounds, c.tally)
		_ = binary.Write(c.trace, binary.LittleEndian, c.now)
		fmt.Fprintf(c.trace, "%+v %+v", c.tally, f)
		c.tally = tally{}
		clear(c.heard)
	}
}

// again counts how often an agent participates twice: the number of pairs of rounds, summed over all agents.
func (c *crowd) again() (pairs int) {
	for k := range c.members {
		n := int(c.members[k].part)
		pairs += n * (n - 1) / 2
	}
	return pairs
}
