package agent

import (
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// evaluating is what the owner knows of the base model that it is asked to evaluate on the rows that are held out.
type evaluating struct {
	asked offer // zero = none
	least uint32
	busy  bool            // a job evaluates it
	said  wire.Evaluation // of the last one
	tell  bool            // the next hello says it
	told  bool            // the last hello has said it
}

// askedToEvaluate takes note of what an announcement that is obeyed asks for.
func (a *Agent) askedToEvaluate(e round.AnnouncementCame) {
	v, ann := &a.evaluating, &e.Announcement
	switch asks := ann.Evaluate > 0 && ann.Kind == wire.KindTraining && ann.Base.Present(); {
	case !asks:
		v.asked = offer{}
	case v.said.Of(e.Order.Run, ann.Version): // the coordinator has not heard, or forgotten it
		v.asked = offer{}
		a.tellEvaluation()
	default:
		v.asked, v.least = offerOf(&e), ann.Evaluate
		a.wantEvaluation()
	}
}

// wantEvaluation has the model evaluated that is asked for, once the rows are there: the one that training or
// predictions have, or else it is pulled.
func (a *Agent) wantEvaluation() {
	v, p := &a.evaluating, a.prepared
	hash := v.asked.ref.Hash
	if !v.asked.ref.Present() || v.busy || a.local == nil || a.local.problem == nil || a.local.hash != v.asked.task {
		return
	}
	if p == nil || p.local != a.local || a.misfit != nil ||
		!p.hides() && (p.held == nil || p.held.Len() < int(v.least)) {
		a.evaluated(wire.Evaluation{Run: v.asked.run, Version: v.asked.version})
		return
	}
	switch {
	case a.base != nil && a.fetching == hash:
		a.evaluate(hash, a.base)
	case a.keptBase(hash) != nil:
		a.evaluate(hash, a.keptBase(hash))
	case a.pulls[hash.Topic()] == nil && !a.spent():
		a.startPull(v.asked.ref, purposeModel, 0)
	}
}

// evaluate has a model that is here evaluated beside the owner, if it is the one that is asked for.
func (a *Agent) evaluate(hash wire.Digest, w []float32) {
	v, p := &a.evaluating, a.prepared
	if hash != v.asked.ref.Hash || v.busy || p == nil || p.local != a.local || !p.hides() && p.held == nil ||
		p.hash != v.asked.task {
		return
	}
	of, least := v.asked, v.least
	w = a.predicts(p.problem, of.run, w) // where it has a model of its own, that is evaluated
	v.busy = true
	a.models.jobs.Do(func() {
		said, err := a.evaluates(p, of, w)
		a.owner.Tell(func() {
			v.busy = false
			fact := Evaluated{Version: of.version, Rows: int(said.Rows), Risk: said.Risk / float64(said.Rows), Err: err}
			if err != nil || said.Rows < least {
				said, fact.Rows, fact.Risk = wire.Evaluation{Run: of.run, Version: of.version}, 0, 0
			}
			if err != nil || fact.Rows > 0 || !p.hides() {
				a.cfg.Observer.Observe(fact)
			}
			// else another one is asked for by now
			if v.asked.ref.Hash == of.ref.Hash && v.asked.run == of.run && v.asked.version == of.version {
				a.evaluated(said)
			}
			a.wantEvaluation()
		})
	})
}

// evaluates evaluates a model, beside the owner.
func (a *Agent) evaluates(p *prepared, of offer, w []float32) (wire.Evaluation, error) {
	if p.hides() {
		by, err := a.opaque()
		if err != nil || w == nil {
			return wire.Evaluation{}, err
		}
		f, err := by.Evaluate(a.owner.Context(), p.problem, w)
		said := evaluation.OfProgram(of.run, of.version, f.Rows, f.Risk, f.Others)
		if err == nil && f.Rows > 0 && said.Rows == 0 {
			err = fmt.Errorf("a risk of %v over %d rows cannot be told", f.Risk, f.Rows)
		}
		return said, err
	}
	m, err := learner.NewModel[float32](p.problem.Model.Architecture()) // training uses another one meanwhile
	if err != nil {
		return wire.Evaluation{}, err
	}
	m.ReportIn(p.problem.Standardization())
	t := m.Tally(w, p.held)
	return evaluation.Of(of.run, of.version, t), p.view.Err()
}

// evaluated has the next hello say what has come of the model that is asked for.
func (a *Agent) evaluated(said wire.Evaluation) {
	a.evaluating.said, a.evaluating.asked = said, offer{}
	a.tellEvaluation()
}

func (a *Agent) tellEvaluation() {
	a.evaluating.tell, a.evaluating.told = true, false
	a.step(round.Evaluated{})
}

// saysEvaluation is what a hello says of a model that was evaluated, until a hello that does is answered.
func (a *Agent) saysEvaluation() wire.Evaluation {
	if !a.evaluating.tell {
		return wire.Evaluation{}
	}
	a.evaluating.told = true
	return a.evaluating.said
}

// evaluationHeard takes note of an answer to a hello.
func (a *Agent) evaluationHeard() {
	if a.evaluating.told {
		a.evaluating.tell, a.evaluating.told = false, false
	}
}
