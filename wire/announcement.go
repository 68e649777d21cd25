package wire

import (
	"cmp"
	"fmt"
)

// Phase tells what an announcement asks for.
type Phase uint8

// The phases, in the order in which one round goes through them.
const (
	// PhaseGathering asks every agent for a hello.
	PhaseGathering Phase = iota + 1
	// PhaseOpen says that a round is under way; the selected get invitations.
	PhaseOpen
	// PhaseIdle says that no round is under way; Base is the newest model.
	PhaseIdle
	// PhaseFinished says that the run is over; Base is its result.
	PhaseFinished
)

// String returns the phase's name.
func (p Phase) String() string {
	return enumName(uint8(p), "gathering", "open", "idle", "finished")
}

// Kind tells what the participants of a round compute.
type Kind uint8

// The kinds of round.
const (
	// KindStatistics: counts, sums and sums of squares of the task's columns.
	KindStatistics Kind = iota + 1
	// KindTraining: local steps, or a gradient, at the base model.
	KindTraining
)

// String returns the kind's name.
func (k Kind) String() string { return enumName(uint8(k), "statistics", "training") }

// Announcement is what the coordinator retains on the round topic for all.
type Announcement struct {
	Attempt Attempt
	Phase   Phase
	Kind    Kind
	Version ModelVersion // of Base
	Task    BlobRef      // absent only when there is nothing to do
	Base    BlobRef      // the model w_{i−1}; absent in a statistics round
	Schema  Digest       // of the vectors that the round sends in
	Seed    uint64       // of the agents' draws
	Offset  uint64       // t: local steps of the schedule before this round
	// HelloWithin spreads the hellos that PhaseGathering asks for, in milliseconds.
	HelloWithin uint32
	// RoundWithin is how long the whole round may take, in milliseconds.
	RoundWithin uint32
}

// Body returns the announcement's encoding.
func (a *Announcement) Body() []byte {
	var w writer
	w.u32(uint32(a.Attempt))
	w.u8(uint8(a.Phase))
	w.u8(uint8(a.Kind))
	w.u64(uint64(a.Version))
	w.blob(&a.Task)
	w.blob(&a.Base)
	w.digest(a.Schema)
	w.u64(a.Seed)
	w.u64(a.Offset)
	w.u32(a.HelloWithin)
	w.u32(a.RoundWithin)
	return w.b
}

// DecodeAnnouncement reads the body of a TypeAnnouncement envelope.
func DecodeAnnouncement(body []byte) (Announcement, error) {
	r := reader{b: body}
	a := Announcement{
		Attempt: Attempt(r.u32()),
		Phase:   Phase(r.enum("phase", uint8(PhaseFinished))),
		Kind:    Kind(r.enum("kind", uint8(KindTraining))),
		Version: ModelVersion(r.u64()),
		Task:    r.blob("task"),
		Base:    r.blob("base model"),
		Schema:  r.digest(), Seed: r.u64(), Offset: r.u64(),
		HelloWithin: r.u32(), RoundWithin: r.u32(),
	}
	if r.err == nil && a.Attempt == 0 {
		r.failf("attempt is 0, they count from 1")
	}
	if r.err == nil && a.Phase == PhaseOpen && (!a.Task.Present() || a.Base.Present() != (a.Kind == KindTraining)) {
		r.failf("an open %s round lacks its task or has the wrong base model", a.Kind)
	}
	return a, r.done("announcement")
}

// Order is where an announcement stands in time. A coordinator only moves
// forward in it, over restarts too; an agent saves the last one it obeyed.
type Order struct {
	Epoch   Epoch
	Run     RunID
	Round   RoundID
	Attempt Attempt
	Phase   Phase
}

// OrderOf returns the place of an announcement in time.
func OrderOf(h Header, a *Announcement) Order {
	return Order{h.Epoch, h.Run, h.Round, a.Attempt, a.Phase}
}

// Compare returns −1, 0 or +1 as o is before, at or after p.
func (o Order) Compare(p Order) int {
	return cmp.Or(cmp.Compare(o.Epoch, p.Epoch), cmp.Compare(o.Run, p.Run), cmp.Compare(o.Round, p.Round),
		cmp.Compare(o.Attempt, p.Attempt), cmp.Compare(o.Phase, p.Phase))
}

// String returns the order for logs.
func (o Order) String() string {
	return fmt.Sprintf("epoch %d run %d round %d attempt %d %s", o.Epoch, o.Run, o.Round, o.Attempt, o.Phase)
}

// enumName names the values 1, 2, … of an enumeration.
func enumName(x uint8, names ...string) string {
	if x == 0 || int(x) > len(names) {
		return fmt.Sprintf("unknown(%d)", x)
	}
	return names[x-1]
}
