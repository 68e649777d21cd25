package coordinator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestLargeModel checks that a model of several chunks is downloaded and trained, and that its update is uploaded with
// credit-based flow control. An agent whose size limit is too small declines, and rounds continue without it.
func TestLargeModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 3, memory.Options{})
		large(f)
		f.cfg.Round.Quorum = 2
		f.agents[2].cfg.MaxBlobBytes = 100 << 10
		credits, chunks := 0, 0
		f.coord.moment = func(m any) {
			if m, ok := m.(mqtt.Message); ok {
				kind, _, _, part, _ := f.topics.ParseTopic(m.Topic)
				if e, err := wire.ParseEnvelope(m.Payload); kind == mqtt.KindCoordinatorToAgent && err == nil &&
					e.Type == wire.TypeChunkCredit {
					credits++
				}
				if kind == mqtt.KindBlob && part != transfer.ManifestPartName && len(m.Payload) > 0 {
					chunks++
				}
			}
		}
		f.start()
		f.finished(time.Hour)
		models := events[aggregation.ModelReady](f)
		if len(models) != 2 || models[1].Bytes < 260<<10 {
			t.Fatalf("models: %+v", models)
		}
		if credits < 4 || chunks < 5 {
			t.Errorf("%d credits and %d chunks of models were sent: they did not travel in parts", credits, chunks)
		}
		for _, e := range events[agentround.WorkEnded](f, "a2") {
			if e.Kind == wire.KindTraining && e.DeclineReason != wire.DeclineFetchFailed {
				t.Errorf("a2: %+v, want declined: fetch", e)
			}
		}
		for _, c := range events[round.RoundClosed](f) {
			if c.Kind == wire.KindTraining && (c.SelectedAgents != 3 || c.AcceptedUpdates != 2) {
				t.Errorf("%+v, want 2 of 3 accepted", c)
			}
		}
		if n := len(f.retainedBlobs()); n != 2*(5+1) {
			t.Errorf("%d parts of blobs are retained at the broker, want those of two models", n)
		}
	})
}

// retainedBlobs returns the retained blob topics of the broker.
func (f *federation) retainedBlobs() []string {
	synctest.Wait() // wait until all work after the last event is done
	c := f.broker.Connect("looks", nil)
	c.Subscribe(mqtt.AtMostOnce, "fl/v1/"+fedName+"/m/#")
	synctest.Wait()
	defer c.Close()
	var topics []string
	for {
		synctest.Wait()
		select {
		case e := <-c.Events():
			if m, ok := e.(mqtt.MessageReceived); ok {
				topics = append(topics, m.Topic)
			}
		default:
			return topics
		}
	}
}

// TestUnfitAgents checks that agents with unsuitable data report the reason, and that rounds continue without them.
func TestUnfitAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 7, memory.Options{})
		r := &f.cfg.Round
		r.Quorum, r.Participants, r.Gather.TargetAgents, r.Gather.MinAgents = 3, 3, 3, 3
		good := rowsOf(9, 30)
		unfit := map[wire.AgentID]struct {
			data   table
			reason wire.DeclineReason
			says   string
		}{
			"a3": {table(strings.Replace(string(good), "wet", "dry", 1)), wire.DeclineBadData, `"wet"`},
			"a4": {table(strings.Replace(string(good), ",", ",much,", 4)), wire.DeclineBadData, ""},
			"a5": {rowsOf(5, 4), wire.DeclineTooFewRows, "the data has 4 rows, but at least 5 are required"},
			"a6": {rowsOf(6, 8), wire.DeclineTooFewRows, "the data has 8 rows, but at least 9 are required"},
		}
		f.agents[6].cfg.TaskData.MinRows = 9
		for _, a := range f.agents {
			if u, ok := unfit[a.id]; ok {
				a.data = u.data
			}
		}
		f.start()
		f.finished(time.Hour)
		told := map[wire.AgentID]wire.DeclineReason{}
		for _, x := range events[round.AgentUnfit](f) {
			told[x.Agent] = x.Reason
		}
		for id, u := range unfit {
			if told[id] != u.reason {
				t.Errorf("%s is reported as %v, want %v", id, told[id], u.reason)
			}
			loaded := events[taskdata.RowsLoaded](f, id)
			if len(loaded) == 0 || loaded[0].Problem == nil || !strings.Contains(loaded[0].Problem.Error(), u.says) {
				t.Errorf("%s: %+v, want a problem with %q", id, loaded, u.says)
			}
			if work := events[agentround.WorkStarted](f, id); len(work) > 0 {
				t.Errorf("%s works: %+v", id, work)
			}
		}
		for _, o := range events[round.RoundOpened](f) {
			if o.EligibleAgents != 3 {
				t.Errorf("round %d is drawn from %d agents", o.Round, o.EligibleAgents)
			}
		}
	})
}

// TestLargeTask checks that a task which is too large for the announcement is downloaded in parts.
func TestLargeTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		names := strings.Repeat("x", 100)
		header, row := "power", "1"
		f.cfg.Task.Features = nil
		for i := range 120 {
			name := names + string(rune('a'+i/26)) + string(rune('a'+i%26))
			f.cfg.Task.Features = append(f.cfg.Task.Features, name)
			header, row = header+","+name, row+",2"
		}
		data := table(header + "\n" + strings.Repeat(row+"\n", 10))
		for _, a := range f.agents {
			a.data = data
		}
		f.start()
		f.finished(time.Hour)
	})
}
