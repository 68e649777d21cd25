package agent

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/wire"
)

// heldOutSplit is the boundary of a run before the rows that are held out.
type heldOutSplit struct {
	run           wire.RunID
	boundary      data.HeldOutBoundary
	boundaryFixed bool
}

// splitHeldOutRows parts a view. The first view of a run fixes its boundary, for as long as the state folder lives.
func (a *Agent) splitHeldOutRows(l *localTask, view data.View) *preparedTask {
	p := &preparedTask{localTask: l, view: view, trainingRows: view.Rows}
	if a.cfg.HeldOutShare == 0 || p.rowsHiddenInTrainer() { // its program holds rows out by itself
		return p
	}
	if run := a.lastObeyedPosition.Run; !a.heldOutSplit.boundaryFixed || a.heldOutSplit.run != run {
		a.heldOutSplit = heldOutSplit{run, view.HoldOut(a.cfg.HeldOutShare), true}
		held := a.heldOutSplit
		// without the file a restart fixes another boundary, if rows have come
		_ = a.writes.Run(state.Write{Purpose: heldOutSplitWrite,
			Do: func() error { return saveHeld(&a.cfg, held) }})
	}
	p.trainingRows, p.heldOutRows = view.Split(a.heldOutSplit.boundary)
	return p
}

// rowsHiddenInTrainer reports whether an external program trains the task. Such a program reads its own rows, and
// decides itself whether it holds some of them out.
func (p *preparedTask) rowsHiddenInTrainer() bool { return p.compiledTask.Task.External.Enabled() }

// splitForNewRun fixes a boundary for a run that begins with data that are read already.
func (a *Agent) splitForNewRun() {
	if p := a.prepared; p != nil && a.cfg.HeldOutShare > 0 && a.heldOutSplit.run != a.lastObeyedPosition.Run &&
		a.misfit == nil &&
		p.localTask == a.local {
		a.adoptTaskData(p.localTask, p.view, 0, DataLoaded{Task: p.compiledTask.Task.Name})
	}
}

func saveHeld(c *Config, h heldOutSplit) error {
	b := littleEndian.AppendUint64(nil, uint64(h.run))
	b = littleEndian.AppendUint64(b, uint64(h.boundary.Rows))
	if at := h.boundary.Time; !at.IsZero() {
		b = littleEndian.AppendUint64(b, uint64(at.UnixNano()))
	}
	return c.state().Save(state.HeldOutSplit, b)
}

func loadHeld(c *Config) (h heldOutSplit, err error) {
	err = c.state().Load(state.HeldOutSplit, func(b []byte) error {
		if len(b) != 16 && len(b) != 24 || littleEndian.Uint64(b[8:]) > 1<<31 {
			return fmt.Errorf("%d bytes, want 16 or 24, with a number of rows", len(b))
		}
		h = heldOutSplit{wire.RunID(littleEndian.Uint64(b)),
			data.HeldOutBoundary{Rows: int(littleEndian.Uint64(b[8:]))}, true}
		if len(b) == 24 {
			h.boundary.Time = time.Unix(0, int64(littleEndian.Uint64(b[16:]))).UTC()
		}
		return nil
	})
	return h, err
}
