package taskdata

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/wire"
)

// heldOutSplit is the boundary between training rows and held-out rows, which stays fixed during a run.
type heldOutSplit struct {
	run      wire.RunID
	boundary data.HeldOutBoundary
	fixed    bool
}

// splitHeldOutRows splits a snapshot into training rows and held-out rows. The first snapshot of a run determines the
// boundary, which is saved in the state folder.
func (p *TaskDataLoader) splitHeldOutRows(l *part.LocalTask, view data.RowSnapshot) *part.PreparedTask {
	prepared := &part.PreparedTask{LocalTask: l, View: view, TrainingRows: view.Rows}
	if p.cfg.HeldOutShare == 0 || l.AreRowsHiddenInTrainer() {
		return prepared
	}
	if run := p.core.ObeyedPosition.Run; !p.split.fixed || p.split.run != run {
		split := heldOutSplit{run, view.HeldOutBoundary(p.cfg.HeldOutShare), true}
		p.split = split
		// Ignore the error: without the file, the boundary may change at a restart after rows were added.
		_ = p.core.WriteRetrier.RunWrite(state.RetriedWrite{Purpose: "save the boundary of the held-out rows",
			WriteFile: func() error { return saveHeldOutSplit(p.core.StateFolder, split) }})
	}
	prepared.TrainingRows, prepared.HeldOutRows = view.SplitHeldOut(p.split.boundary)
	return prepared
}

var littleEndian = binary.LittleEndian

func saveHeldOutSplit(folder state.Folder, h heldOutSplit) error {
	b := littleEndian.AppendUint64(nil, uint64(h.run))
	b = littleEndian.AppendUint64(b, uint64(h.boundary.RowsBefore))
	if at := h.boundary.Time; !at.IsZero() {
		b = littleEndian.AppendUint64(b, uint64(at.UnixNano()))
	}
	return folder.SaveFile(state.HeldOutSplit, b)
}

func loadHeldOutSplit(folder state.Folder) (h heldOutSplit, err error) {
	err = folder.LoadFile(state.HeldOutSplit, func(b []byte) error {
		if len(b) != 16 && len(b) != 24 || littleEndian.Uint64(b[8:]) > 1<<31 {
			return fmt.Errorf("the content of the file has %d bytes, but must have 16 or 24 bytes with a valid "+
				"number of rows", len(b))
		}
		h = heldOutSplit{wire.RunID(littleEndian.Uint64(b)),
			data.HeldOutBoundary{RowsBefore: int(littleEndian.Uint64(b[8:]))}, true}
		if len(b) == 24 {
			h.boundary.Time = time.Unix(0, int64(littleEndian.Uint64(b[16:]))).UTC()
		}
		return nil
	})
	return h, err
}
