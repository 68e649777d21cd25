package evaluation

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// tasks provides an announced task and rows that fit the task.
type tasks struct{ prepared *part.PreparedTask }

func (t *tasks) AnnouncedTask() *part.LocalTask       { return t.prepared.LocalTask }
func (t *tasks) LastPreparedTask() *part.PreparedTask { return t.prepared }
func (t *tasks) RowsFitTask() bool                    { return true }

// newTasks returns a task with the given number of held-out rows.
func newTasks(t *testing.T, heldOut int) *tasks {
	t.Helper()
	compiled, err := task.Compile[float32](wire.Task{
		Name: "a task", Features: []string{"a"}, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1,
			StepTimeBudgetMillis: 1000, MinLocalSteps: 1,
			MaxLocalSteps: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &tasks{&part.PreparedTask{LocalTask: &part.LocalTask{Hash: wire.Digest{1}, CompiledTask: compiled},
		HeldOutRows: learner.NewSamples(1, make([]float32, heldOut), make([]float32, heldOut))}}
}

// asking returns an announcement that requests an evaluation of a model on at least 3 rows.
func asking(version wire.ModelVersion) agentround.AnnouncementReceived {
	e := agentround.AnnouncementReceived{Position: wire.AnnouncementPosition{Run: 7}}
	e.Announcement = wire.Announcement{Kind: wire.KindTraining, MinEvaluationRows: 3, BaseModelVersion: version,
		Task: wire.BlobRef{Hash: wire.Digest{1}, Length: 4}, BaseModel: wire.BlobRef{Hash: wire.Digest{2}, Length: 4}}
	return e
}

// TestTooFewRows checks that an agent with too few held-out rows reports this in each hello message until the
// coordinator has answered a message, and again if the coordinator repeats its request.
func TestTooFewRows(t *testing.T) {
	steps := 0
	core := &part.AgentCore{HandleRoundEvent: func(agentround.Event) { steps++ }}
	p := New(core, EvaluatorDependencies{Tasks: newTasks(t, 2),
		FetchModel: func(wire.BlobRef) { t.Error("the model is fetched") }})
	hello := func() wire.Evaluation {
		var h wire.Hello
		p.FillHello(&h)
		return h.Evaluation
	}
	want := wire.Evaluation{Run: 7, ModelVersion: 4}
	p.FollowAnnouncement(asking(4))
	p.RecordHelloAnswered() // The coordinator has answered a hello message without the result.
	for range 2 {
		if got := hello(); got.Run != want.Run || got.ModelVersion != want.ModelVersion || got.Rows != 0 {
			t.Errorf("a hello reports %+v, want %+v", got, want)
		}
	}
	p.RecordHelloAnswered()
	if got := hello(); got.Run != 0 {
		t.Errorf("after an answer a hello reports %+v", got)
	}
	p.FollowAnnouncement(asking(4))
	if got := hello(); got.Run != 7 || steps != 2 {
		t.Errorf("when asked again, a hello reports %+v, after %d steps of the round machine", got, steps)
	}
}

// TestFetch checks that the agent fetches the requested model once, unless the uplink budget is spent. When the
// coordinator withdraws the request, the agent must no longer need the model.
func TestFetch(t *testing.T) {
	spent, fetched := true, []wire.Digest(nil)
	core := &part.AgentCore{HandleRoundEvent: func(agentround.Event) {},
		IsUplinkBudgetSpent: func() bool { return spent }}
	p := New(core, EvaluatorDependencies{Tasks: newTasks(t, 3),
		FindModelInMemory: func(wire.Digest) []float32 { return nil },
		FetchModel:        func(ref wire.BlobRef) { fetched = append(fetched, ref.Hash) },
		FindModelBeingFetched: func() (wire.Digest, bool) {
			if len(fetched) == 0 {
				return wire.Digest{}, false
			}
			return fetched[len(fetched)-1], true
		}})
	p.FollowAnnouncement(asking(4))
	if len(fetched) != 0 || !p.NeedsModel(wire.Digest{2}) {
		t.Errorf("without a budget the agent fetches %v", fetched)
	}
	spent = false
	p.EvaluateRequestedModel()
	p.EvaluateRequestedModel()
	if len(fetched) != 1 || fetched[0] != (wire.Digest{2}) {
		t.Errorf("the agent fetches %v, want the requested model once", fetched)
	}
	over := asking(4)
	over.Announcement.MinEvaluationRows = 0
	p.FollowAnnouncement(over)
	if p.NeedsModel(wire.Digest{2}) {
		t.Error("the agent needs a model for which nobody asks")
	}
}
