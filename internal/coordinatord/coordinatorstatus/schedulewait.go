package coordinatorstatus

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
)

// scheduleWait is what the next round waits for by round.schedule.
type scheduleWait struct {
	WaitReason              string    `json:"for"`            // window or new_rows
	WindowOpensAt           time.Time `json:"until,omitzero"` // a window opens
	AgentsWithNewRows       int       `json:"agents_with_new_rows"`
	RequiredAgents          int       `json:"agents_wanted,omitempty"` // that must have
	RequiredNewRowsPerAgent int       `json:"rows_wanted,omitempty"`   // each
	AgentsWithoutRowCount   int       `json:"agents_without_row_count,omitempty"`
}

func (w *scheduleWait) drawScheduleWait(now time.Time) string {
	if !w.WindowOpensAt.IsZero() {
		return fmt.Sprintf("waits for the window that opens %s, in %s", w.WindowOpensAt.Format("Mon 15:04 MST"),
			status.FormatDuration(w.WindowOpensAt.Sub(now)))
	}
	text := fmt.Sprintf("waits for new rows: %d of %d agents have %d that no round has used", w.AgentsWithNewRows,
		w.RequiredAgents, w.RequiredNewRowsPerAgent)
	if w.AgentsWithoutRowCount > 0 {
		text += fmt.Sprintf("; %d have not reported their number of rows", w.AgentsWithoutRowCount)
	}
	return text
}
