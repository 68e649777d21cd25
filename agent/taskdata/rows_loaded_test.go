package taskdata

import (
	"errors"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/observe"
)

// TestRowsLoadedPending checks that too few rows raise a condition but are no error, and that the problem is logged
// once, although the number of rows changes with each reading.
func TestRowsLoadedPending(t *testing.T) {
	waiting := &data.FileError{Problem: "the readings span only 5s", IsPending: true}
	for _, tt := range []struct {
		event   RowsLoaded
		log     observe.LogLevel
		message string // expected log message; empty if nothing is logged
		problem string
	}{
		{RowsLoaded{Problem: waiting}, observe.Info, "waiting for more data",
			"not enough data for the task yet: the readings span only 5s"},
		{RowsLoaded{Problem: waiting, WasPending: true}, 0, "",
			"not enough data for the task yet: the readings span only 5s"},
		{RowsLoaded{Problem: &tooFewRowsError{6, 10}}, observe.Info, "waiting for more data",
			"not enough data for the task yet: the data has 6 rows, but at least 10 are required"},
		{RowsLoaded{Problem: errors.New("no column"), WasPending: true}, observe.Error,
			"local data do not fit the task",
			"the local data do not fit the task: no column"},
	} {
		var d observe.EventDescription
		tt.event.Describe(&d)
		if len(d.Conditions) != 1 || d.Conditions[0].Problem != tt.problem {
			t.Errorf("%+v: conditions %+v, want %q", tt.event, d.Conditions, tt.problem)
		}
		switch {
		case tt.message == "" && len(d.LogRecords) > 0, tt.message != "" && (len(d.LogRecords) != 1 ||
			d.LogRecords[0].Message != tt.message || d.LogRecords[0].Level != tt.log):
			t.Errorf("%+v: log %+v, want %q", tt.event, d.LogRecords, tt.message)
		}
	}
}
