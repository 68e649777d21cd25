package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is all that a run is made from. Two runs of one plan are the same.
type Plan struct {
	Seed         uint64 // of all chance in the run
	Method       Method
	Agents       int
	Participants int // L
	Quorum       int
	Rounds       int
	Hidden       uint32 // units of a hidden layer; 0 = none. With thousands models and updates travel in chunks.
	Standardize  bool   // a statistics round comes first
	// StandardizeAt is the version after which another one comes, and makes the next version; 0 = none.
	StandardizeAt int
	// Opposed has the first two agents send huge updates of opposite signs, in whose sum with the others' the order
	// shows.
	Opposed   bool
	Predicts  bool          // agents keep the models that are announced, to predict with
	Evaluates int           // agents hold rows out, and evaluate each n-th model on them, and the last; 0 = none
	Machines  int           // of the coordinator, which take turns; 0 = one, alone
	SyncTime  time.Duration // what a sync of a disk takes; 0 = up to 5 ms
	Faults    []Fault
}

// Coordinator is the party of a fault that is not an agent's; agents count from 0.
const Coordinator = -1

// Fault is something that goes wrong.
type Fault struct {
	At    time.Duration // since the beginning
	Kind  Kind
	Party int           // Coordinator, or an agent
	For   time.Duration // until it is over: the process starts again, the link is back
	Ops   int           // for Killed and PowerCut: at this operation of the disk after At; 0 = at once
	Lie   Lie           // for Lying
}

// Kind is what goes wrong.
type Kind string

// The kinds of faults.
const (
	Cut       Kind = "Cut"       // a link is lost
	Silent    Kind = "Silent"    // a link brings nothing, and its ends find out
	Stopped   Kind = "Stopped"   // a process is stopped in good order
	Killed    Kind = "Killed"    // a process ends at once; what it has written stays
	Blackout  Kind = "Blackout"  // the power of all goes, when that of the party does
	PowerCut  Kind = "PowerCut"  // a process ends at once; what it has not synced may be gone
	DiskFull  Kind = "DiskFull"  // a disk takes nothing new
	DiskSlow  Kind = "DiskSlow"  // a sync takes seconds
	BrokerEnd Kind = "BrokerEnd" // the broker restarts, and has forgotten what it retained since it last saved
	Lossy     Kind = "Lossy"     // messages are lost
	Doubling  Kind = "Doubling"  // messages come twice
	Disorder  Kind = "Disorder"  // messages are late, and overtake those of other topics
	Lying     Kind = "Lying"     // a party says what the protocol forbids
	EngineEnd Kind = "EngineEnd" // the engine of several coordinators does not answer
)

var kinds = []Kind{Cut, Silent, Stopped, Killed, PowerCut, DiskFull, DiskSlow, BrokerEnd, Lossy, Doubling, Disorder,
	Lying}

// NewPlan draws a plan.
func NewPlan(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Agents: 3 + rng.IntN(3), Participants: 2 + rng.IntN(2), Rounds: 3,
		Standardize: rng.IntN(3) == 0}
	p.Quorum = 1 + rng.IntN(p.Participants)
	if all := slices.Sorted(maps.Keys(methods)); rng.IntN(4) > 0 {
		p.Method = all[rng.IntN(len(all))]
	}
	if p.Method == refuseAbove {
		p.Agents, p.Participants = 6, 5 // of fewer updates none is left out
	}
	r, _ := p.configure()
	p.Participants = max(p.Participants, r.Aggregation.MinDraws())
	if rng.IntN(4) == 0 {
		p.Hidden = 3000
	}
	for range rng.IntN(7) {
		p.Faults = append(p.Faults, newFault(rng, p.Agents))
	}
	slices.SortFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	if _, t := p.configure(); p.Standardize && !t.Mixing.HasEndlessBlocks && rng.IntN(2) > 0 {
		p.StandardizeAt = 1 + rng.IntN(2)
	}
	if p.personal() {
		p.StandardizeAt = 0 // it would be in other columns than what is the agents' own
	}
	p.Predicts = rng.IntN(4) == 0
	if rng.IntN(3) == 0 {
		p.Evaluates = 1 + rng.IntN(2)
	}
	if rng.IntN(4) == 0 {
		p.Machines = 2 + rng.IntN(2)
		for range rng.IntN(3) {
			f := newFault(rng, p.Agents)
			f.Kind, f.Party, f.Ops, f.Lie = EngineEnd, Coordinator, 0, ""
			p.Faults = append(p.Faults, f)
		}
		slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	}
	return p
}

func newFault(rng *rand.Rand, agents int) Fault {
	f := Fault{
		At:   time.Duration(rng.Int64N(int64(time.Minute))).Round(time.Millisecond),
		Kind: kinds[rng.IntN(len(kinds))], Party: rng.IntN(2*agents) - agents,
		For: (100*time.Millisecond + time.Duration(rng.ExpFloat64()*float64(15*time.Second))).Round(time.Millisecond),
	}
	if rng.IntN(10) == 0 { // the run may be over
		f.At += 10 * time.Minute
	}
	f.Party = max(f.Party, Coordinator) // half of all
	switch f.Kind {
	case Killed, PowerCut:
		f.Ops = rng.IntN(60)
	case Lying:
		f.Lie = Lies(f.Party)[rng.IntN(len(Lies(f.Party)))]
	case BrokerEnd, Lossy, Doubling, Disorder:
		f.Party = Coordinator
	}
	return f
}

// personal reports whether agents have anything of their own.
func (p *Plan) personal() bool {
	_, t := p.configure()
	return t.Personal.UsesDitto || len(t.Personal.PersonalTensors) > 0
}

// refreshed reports whether the columns were standardised again in the middle of a run before that version.
func (p *Plan) refreshed(version uint64) bool {
	at := p.StandardizeAt
	return at > 0 && at < p.Rounds && version > uint64(at)
}

// Script writes the plan as Go, for a test that keeps it.
func (p Plan) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "world.Plan{Seed: %d, Method: %q, Agents: %d, Participants: %d, Quorum: %d, Rounds: %d, "+
		"Hidden: %d, Standardize: %v, StandardizeAt: %d, Predicts: %v, Evaluates: %d, Machines: %d, "+
		"Faults: []world.Fault{\n",
		p.Seed, p.Method, p.Agents, p.Participants, p.Quorum, p.Rounds, p.Hidden, p.Standardize, p.StandardizeAt,
		p.Predicts, p.Evaluates, p.Machines)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "\t{At: %d * time.Millisecond, Kind: world.%s, Party: %d, "+
			"For: %d * time.Millisecond, Ops: %d, Lie: %q},\n",
			f.At.Milliseconds(), f.Kind, f.Party, f.For.Milliseconds(), f.Ops, f.Lie)
	}
	b.WriteString("}}")
	return b.String()
}
