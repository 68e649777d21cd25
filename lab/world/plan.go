package world

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan determines a run completely: two runs of the same plan are identical.
type Plan struct {
	Seed         uint64 // seed of all randomness in the run
	Method       Method
	Agents       int
	Participants int // number L of participants per round
	Quorum       int
	Rounds       int
	Hidden       uint32 // number of hidden units; 0 means none; with thousands of units, a model needs several chunks
	Standardize  bool   // true if the run starts with a statistics round
	// StandardizeAt is the model version after which another statistics round takes place. Zero means that there is
	// none.
	StandardizeAt int
	// Opposed makes the first two agents send huge updates with opposite signs. The sum of all updates then depends on
	// the order of addition.
	Opposed  bool
	Predicts bool // true if the agents keep announced models for predictions
	// interval, in model versions, at which agents evaluate the model; 0 means never; the last model is also evaluated
	Evaluates int
	Machines  int           // number of machines of the coordinator, of which one is active at a time; 0 means one
	SyncTime  time.Duration // duration of a disk sync; 0 means up to 5 ms
	Faults    []Fault
}

// Coordinator is the value of Fault.Party for the coordinator. Agents are numbered from 0.
const Coordinator = -1

// Fault is an injected failure.
type Fault struct {
	At    time.Duration // time of the fault since the start of the run
	Kind  Kind
	Party int           // the constant Coordinator, or the index of an agent
	For   time.Duration // duration until the process restarts or the link is restored
	// number of disk operations between At and the fault, for Killed and PowerCut; 0 means immediately
	Ops int
	Lie Lie // name of the protocol violation, for the kind Lying
}

// Kind is the kind of a fault.
type Kind string

// Kinds of faults.
const (
	Cut       Kind = "Cut"       // the link to the broker is lost
	Silent    Kind = "Silent"    // the link loses all messages until both ends notice it
	Stopped   Kind = "Stopped"   // a process is shut down cleanly
	Killed    Kind = "Killed"    // a process is killed; all written data survive
	Blackout  Kind = "Blackout"  // all parties lose power as soon as the fault hits the given party
	PowerCut  Kind = "PowerCut"  // a process is killed; data that were not synced may be lost
	DiskFull  Kind = "DiskFull"  // writes to a disk fail
	DiskSlow  Kind = "DiskSlow"  // a sync takes seconds
	BrokerEnd Kind = "BrokerEnd" // the broker restarts with the retained messages of its last save
	Lossy     Kind = "Lossy"     // messages are lost
	Doubling  Kind = "Doubling"  // messages are delivered twice
	Disorder  Kind = "Disorder"  // messages are delayed, and reordered across topics
	Lying     Kind = "Lying"     // a party violates the protocol
	EngineEnd Kind = "EngineEnd" // the replicated store of several coordinators does not answer
)

var kinds = []Kind{Cut, Silent, Stopped, Killed, PowerCut, DiskFull, DiskSlow, BrokerEnd, Lossy, Doubling, Disorder,
	Lying}

// NewPlan returns a random plan that is determined by the seed.
func NewPlan(seed uint64) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Seed: seed, Agents: 3 + rng.IntN(3), Participants: 2 + rng.IntN(2), Rounds: 3,
		Standardize: rng.IntN(3) == 0}
	p.Quorum = 1 + rng.IntN(p.Participants)
	if all := slices.Sorted(maps.Keys(methods)); rng.IntN(4) > 0 {
		p.Method = all[rng.IntN(len(all))]
	}
	if p.Method == refuseAbove {
		p.Agents, p.Participants = 6, 5 // in smaller rounds, the setting refuse_above refuses no updates
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
		p.StandardizeAt = 0 // personal parameters would belong to other column moments
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
	if rng.IntN(10) == 0 { // this fault may happen after the end of the run
		f.At += 10 * time.Minute
	}
	f.Party = max(f.Party, Coordinator) // negative numbers, about half of all numbers, mean the coordinator
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

// personal reports whether the agents have personal parameters.
func (p *Plan) personal() bool {
	_, t := p.configure()
	return t.Personal.UsesDitto || len(t.Personal.PersonalTensors) > 0
}

// refreshed reports whether a statistics round during the run has changed the column moments before the given version.
func (p *Plan) refreshed(version uint64) bool {
	at := p.StandardizeAt
	return at > 0 && at < p.Rounds && version > uint64(at)
}

// Script returns the plan as Go source code, which can be used in a regression test.
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
