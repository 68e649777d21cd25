package runs

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// journal3 is a journal in version 3 of the format. New fields may be added.
const journal3 = `{"Epoch":3,"Record":{"Run":7,"Round":5,"Attempt":2,"Phase":"collecting","Plan":{"Kind":2,"Version":4,` +
	`"Task":{"Length":9,"Inline":"AQI="},"Base":{"Length":8},"Bytes":8,"Exchange":1,"Endless":true,"StepSize":0.5,"Offset":40},"Agents":6,` +
	`"Participants":[{"Agent":"a1","Times":1,"Weight":2,"Boot":4}],"Edges":[{"A":"a1","B":"a2","Weight":0.25}],"Block":5,"Drawn":3,` +
	`"Last":{"Round":4,"Attempt":1,"Kind":2,"Abandoned":"","Version":4,"Selected":3,"Accepted":2,"Took":1000000,"At":"2026-11-23T00:00:00Z","Measured":{"Risk":1,"R2":null,"Accuracy":null}},` +
	`"Counted":{"Round":4,"Updates":{}},"Sidelined":[{"Agent":"a3"}],"Outcomes":[{"Round":4,"Outcome":"AQ=="}]},"Origin":{"Given":"3","Model":"6/3"},` +
	`"Published":{"Now":[{"Chunks":2}],"Before":null,"Gone":null}}`

// TestJournalOfVersion3 checks that a journal written by an earlier program version is read completely. Renaming or
// removing a field requires a new format version.
func TestJournalOfVersion3(t *testing.T) {
	d := json.NewDecoder(bytes.NewReader([]byte(journal3)))
	d.DisallowUnknownFields()
	var s savedJournal
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v: raise recordVersion in disk.go, and say in loadRecord what to do with a journal of the version "+
			"before", err)
	}
	r := s.Record
	if s.Epoch != 3 || r.Run != 7 || r.Round != 5 || r.Phase != round.CoordinatorCollecting ||
		r.Plan.Kind != wire.KindTraining || r.Plan.LocalStepOffset != 40 ||
		len(r.Plan.Task.Inline) != 2 || r.Participants[0].Agent != "a1" || r.Edges[0].MixingWeight != 0.25 ||
		r.LastOutcome.AcceptedUpdates != 2 || s.Origin.Model != "6/3" || r.SidelinedAgents[0].Agent != "a3" ||
		r.RecentOutcomes[0].Round != 4 ||
		s.PublishedBlobs.PresentBlobs[0].Chunks != 2 {
		t.Errorf("read as %+v", s)
	}
}
