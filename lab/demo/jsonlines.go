package demo

import (
	"encoding/json"
	"io"
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// jsonLines is a display that writes one JSON object per line.
type jsonLines struct{ w io.Writer }

func (d jsonLines) put(v any) {
	// Ignore write errors, because the training should continue if the output is closed.
	_ = json.NewEncoder(d.w).Encode(v)
}

func (d jsonLines) start(h heading) {
	d.put(struct {
		Event string `json:"event"`
		heading
	}{"start", h})
}

func (d jsonLines) gathering(*progress) {}

func (d jsonLines) standardised(rows, agents int) {
	d.put(struct {
		Event  string `json:"event"`
		Rows   int    `json:"rows"`
		Agents int    `json:"agents"`
	}{"standardised", rows, agents})
}

func (d jsonLines) round(*progress) {}

func (d jsonLines) model(p *progress) {
	d.put(struct {
		Event        string               `json:"event"`
		Round        int                  `json:"round"`
		Loss         *float64             `json:"loss"`
		R2           *float64             `json:"r2"`
		Participants []wire.AgentID       `json:"participants"`
		LocalSteps   map[wire.AgentID]int `json:"local_steps"`
	}{"round", p.Round, finite(p.Loss), finite(p.R2), p.Participants, p.Done})
}

func (d jsonLines) result(r *Result) { d.put(r) }

func (d jsonLines) failed() {}

// finite returns a pointer to x, or nil if x is NaN or infinite, which JSON cannot represent.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
