package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/wire"
)

// newUpdate is an update without its vector.
func (q *updateRequest) newUpdate() *trainedUpdate {
	a, e, p := q.a, &q.trainEffect, q.p
	return &trainedUpdate{sequence: q.sequence, epoch: e.Position.Epoch, run: e.Position.Run, round: e.Position.Round,
		Update: wire.Update{
			Kind: e.Announcement.Kind, Base: e.Announcement.BaseModel.Hash, Samples: a.cfg.Trainer.Rows(p.TrainingRows),
		}}
}

// fillUpdateFromBlock makes what a block has come to the update's, as a change of base, packed as the task asks, and
// keeps what it has come to of the agent's own.
func (q *updateRequest) fillUpdateFromBlock(u *trainedUpdate, b Block, x []float32, event *Trained) error {
	out, err := b.OutcomeFrom(q.base, x)
	if err != nil {
		return err
	}
	q.savePersonalParameters(&out)
	event.LocalSteps, event.RiskBefore, event.RiskAfter = out.Steps, out.RiskBefore, out.RiskAfter
	u.LocalSteps, u.RiskBefore, u.RiskAfter = uint32(out.Steps), out.RiskBefore, out.RiskAfter
	return q.packUpdate(u, out.Vector)
}

// maxCheapRecomputeTime is how long a gradient takes at most that is made again after a crash, and not saved.
const maxCheapRecomputeTime = 50 * time.Millisecond

// save keeps the update over a restart. An update that the disk does not take is
// sent nevertheless; a restart would have the agent train once more. When its
// round is over, the write is not tried again.
func (a *Agent) save(u *trainedUpdate, over func() bool) {
	write := func() error { return a.updateStore.save(u) }
	err := write()
	u.saved = true
	a.core.Loop.RunOnLoop(func() {
		if !over() {
			a.core.Writes.Finish(state.Write{Purpose: updateWrite, Do: write}, err)
		}
	})
}

// setPayload makes the payload the update's.
func (u *trainedUpdate) setPayload(payload []byte, schema wire.Digest) (err error) {
	u.payload = payload
	u.Payload, err = wire.NewManifest(payload, schema)
	return err
}
