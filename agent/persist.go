package agent

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/round"
)

// persistAgain is the time after which a write that failed is tried again.
const persistAgain = 5 * time.Second

// unwritten is a write that failed, and is tried again.
type unwritten struct {
	what  string
	write func() error
	done  func() // nil if nothing follows
}

// The writes that may be tried again, by what they are for.
const (
	savePlace     = "save the announcement's place"
	saveTheUpdate = "save the update"
	saveTheOwn    = "save what of the model is the agent's own"
	// saveTheUnsent is before the update is removed, which has it too.
	saveTheUnsent = "save what the codec has not sent"
	removeUpdate  = "remove the old update"
	saveBoundary  = "save which rows are held out"
	saveTheRoot   = "save the root document"
	saveTheKeys   = "save another key or certificate"
	saveTheClock  = "save the coordinator's time"
	saveTheWord   = "save the coordinator's word about this agent's key"
	saveGroups    = "save the key of the group"
)

// storeBlob is what a transfer does, which tries again by itself.
const storeBlob = "store a model or task on its way"

// persist writes to the state folder, in the place of an earlier write for the
// same purpose. While it fails it is tried again; done follows when it is done.
func (a *Agent) persist(what string, write func() error, done func()) error {
	err := write()
	a.persisted(unwritten{what, write, done}, err)
	return err
}

// persisted takes the result of a write.
func (a *Agent) persisted(w unwritten, err error) {
	a.unwritten = slices.DeleteFunc(a.unwritten, func(old unwritten) bool { return old.what == w.what })
	a.written(w.what, err)
	switch {
	case err != nil:
		if len(a.unwritten) == 0 {
			a.persistAt = a.owner.Now().Add(persistAgain)
		}
		a.unwritten = append(a.unwritten, w)
	case w.done != nil:
		w.done()
	}
}

// persistAll tries again what failed.
func (a *Agent) persistAll(now time.Time) {
	if len(a.unwritten) == 0 || now.Before(a.persistAt) {
		return
	}
	a.persistAt = now.Add(persistAgain)
	for _, w := range slices.Clone(a.unwritten) {
		if slices.ContainsFunc(a.unwritten, func(still unwritten) bool { return still.what == w.what }) {
			a.persisted(w, w.write())
		}
	}
}

// unwanted gives up a write that need not be done any more.
func (a *Agent) unwanted(what string) { a.persisted(unwritten{what: what}, nil) }

// written tells when the state folder begins to fail, and when it is well again.
func (a *Agent) written(what string, err error) {
	began, over := a.writeFailures.Note(what, err)
	if began {
		a.cfg.Observer.Observe(StorageFailing{what, err})
	}
	if over {
		a.cfg.Observer.Observe(StorageMended{})
	}
}

// obey saves an announcement's place beside the owner, one at a time, the newest next.
func (a *Agent) obey(e round.Obey) {
	a.order = e.Order
	if b := a.endless; b != nil && b.past(a.order) {
		a.endBlock(b)
	}
	// not once more after the new one
	a.unwritten = slices.DeleteFunc(a.unwritten, func(old unwritten) bool { return old.what == savePlace })
	busy := a.obeying != nil
	if a.obeying = &e; !busy {
		a.savePlace(e)
	}
	a.splitAgain()
	a.look()
}

func (a *Agent) savePlace(e round.Obey) {
	a.owner.Go(func() {
		err := saveObeyed(a.place, e.Order, e.Digest)
		a.owner.Tell(func() { a.savedPlace(e, err) })
	})
}

// savedPlace tells the machine. While the place could not be saved the machine declines.
func (a *Agent) savedPlace(e round.Obey, err error) {
	if newest := *a.obeying; newest != e {
		a.savePlace(newest)
		return
	}
	a.obeying = nil
	a.persisted(unwritten{savePlace, func() error { return saveObeyed(a.place, e.Order, e.Digest) },
		func() { a.step(round.Obeyed{Order: e.Order}) }}, err)
	if err != nil {
		a.step(round.Obeyed{Order: e.Order, Failed: true})
	}
}
