package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// OpenModels opens the models of the run in a state folder, for reading, and
// tells where the run stands. The daemon may be running.
func OpenModels(dir string) (*store.Models, round.Record, error) {
	d := &disk{dir: dir}
	record, found, err := d.loadRecord()
	if err == nil && !found {
		err = errors.New("no run has been begun there")
	}
	if err == nil {
		err = d.openModels(record.Run)
	}
	if err != nil {
		return nil, record, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return d.models, record, nil
}

// Past is how the last run in a state folder went, from its history.
type Past struct {
	Version      wire.ModelVersion // of the newest model; 0 if there was no training round
	Risks        []float64         // means of the participants', of the newest training rounds
	R2, Accuracy *float64          // of the newest model on held-out data, if they were measured
}

// ReadPast reads the history, of at most so many rounds. A coordinator may be
// appending to it.
func ReadPast(dir string, most int) (Past, error) {
	var p Past
	var last historyEntry
	err := store.ReadHistory(filepath.Join(dir, historyFile), func(line []byte) error {
		var h historyEntry
		if err := json.Unmarshal(line, &h); err != nil {
			return fmt.Errorf("%s: %w", historyFile, err)
		}
		training := h.Kind == wire.KindTraining.String()
		if training && h.Round == last.Round && h.Version == p.Version { // a crash had the round folded once more
			if p.R2, p.Accuracy = h.R2, h.Accuracy; h.Risk != nil && len(p.Risks) > 0 {
				p.Risks[len(p.Risks)-1] = *h.Risk
			}
			return nil
		}
		if last = h; !training || h.Version <= p.Version { // a new run
			p = Past{}
		}
		if !training {
			return nil
		}
		p.Version, p.R2, p.Accuracy = h.Version, h.R2, h.Accuracy
		if h.Risk != nil {
			p.Risks = append(p.Risks, *h.Risk)
			p.Risks = p.Risks[max(0, len(p.Risks)-most):]
		}
		return nil
	})
	return p, err
}
