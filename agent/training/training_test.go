package training

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// uploads records the updates of a test.
type uploads struct {
	loop        *host.EventLoop
	sequence    uint64
	saved, made []*part.LocalUpdate
}

func (u *uploads) NextUpdateSequence() uint64 { u.sequence++; return u.sequence }

func (*uploads) PackUpdate(u *part.LocalUpdate, _ *agentround.StartTraining, _ *task.CompiledTask[float32],
	change []float32) error {
	return u.SetPayload(wire.AppendVector(nil, change), wire.Digest{})
}

func (u *uploads) SaveUpdate(update *part.LocalUpdate, over func() bool) {
	u.loop.RunOnLoop(func() {
		if !over() {
			u.saved = append(u.saved, update)
		}
	})
}
func (u *uploads) SetCurrentUpdate(update *part.LocalUpdate) { u.made = append(u.made, update) }

// TestTrain checks that training for a round produces one update, which is saved if it must be sent to the coordinator.
// A cancelled round must produce no update. If the local steps diverge, the round must fail with the correct reason.
func TestTrain(t *testing.T) {
	for name, tt := range map[string]struct {
		feature    float32
		mustUpload bool
		cancel     bool
		steps      int
		failure    wire.DeclineReason
	}{
		"for the coordinator": {feature: 1, mustUpload: true, steps: 5},
		"for neighbours only": {feature: 1, steps: 5},
		"cancelled":           {feature: 1, mustUpload: true, cancel: true},
		"diverged":            {feature: 1e30, mustUpload: true, failure: wire.DeclineDiverged},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compiled, err := task.Compile[float32](wire.Task{Name: "line", Features: []string{"a"},
					TargetColumn: "y",
					Model:        wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
					Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1,
						StepTimeBudgetMillis: 10_000,
						MinLocalSteps:        1, MaxLocalSteps: 10}})
				if err != nil {
					t.Fatal(err)
				}
				rows := &part.PreparedTask{LocalTask: &part.LocalTask{CompiledTask: compiled},
					TrainingRows: learner.NewSamples(1, []float32{tt.feature}, []float32{1})}
				loop := host.NewEventLoop(nil)
				up := &uploads{loop: loop}
				var results []agentround.TrainingEnded
				var steps int
				core := &part.AgentCore{ID: "press", Loop: loop, StateFolder: state.Folder{Disk: store.LocalDisk,
					Dir: t.TempDir()},
					WriteRetrier: &state.WriteRetrier{Loop: loop}, HandleRoundEvent: func(e agentround.Event) {
						results = append(results, e.(agentround.TrainingEnded))
					}, Observer: testkit.Observer(func(e observe.Event) {
						if trained, is := e.(LocalTrainingFinished); is {
							steps = trained.LocalSteps
						}
					})}
				cfg := Config{DeclaredStepTime: time.Second}
				cfg.SetDefaults("plant")
				p, err := New(core, cfg, TrainingDependencies{Uploads: up})
				if err != nil {
					t.Fatal(err)
				}
				p.Mesh = MeshAccess{BlockWaiter: loop.NewWaiter(), MakeExchangeConfig: func(_ agentround.StartTraining,
					_ *wire.Task,
					mixings uint64) d2d.MessageExchangeConfig[float32] {
					return d2d.MessageExchangeConfig[float32]{MixingConfig: d2d.MixingConfig[float32]{
						Boot: 1, BlockSteps: mixings, MaxSilentWaits: 1, RepeatInterval: time.Second}}
				}}
				loop.AllowJobs(t.Context())
				ended := errors.New("ended")
				var began bool
				deadline := time.Now().Add(time.Minute)
				err = loop.Run(t.Context(), nil, host.LoopHandlers{
					BeforeWait: func() error {
						if !began {
							began = true
							e := agentround.StartTraining{Deadline: deadline, MustUpload: tt.mustUpload}
							e.Position = wire.AnnouncementPosition{Run: 5, Round: 7}
							e.Announcement.Kind, e.StepWeight = wire.KindTraining, 1
							p.TrainForRound(e, rows, []float32{0}, 0.5)
							if tt.cancel {
								p.CancelRoundTraining()
							}
						}
						if !time.Now().Before(deadline) {
							return ended
						}
						return nil
					},
					NextDeadline: func() time.Time { return deadline }, OnDeadline: func(time.Time) {},
				})
				p.CancelRoundTraining() // Cancel the training, as at the end of a round.
				loop.CancelAndAwaitJobs()
				if !errors.Is(err, ended) {
					t.Fatal(err)
				}
				wantSaved := 0
				if tt.mustUpload && tt.steps > 0 {
					wantSaved = 1
				}
				switch {
				case steps != tt.steps || len(up.saved) != wantSaved:
					t.Errorf("%d local steps, %d updates saved", steps, len(up.saved))
				case tt.cancel:
					if len(results)+len(up.made) > 0 {
						t.Errorf("results %+v", results)
					}
				case len(results) != 1 || results[0].Run != 5 || results[0].Round != 7 ||
					results[0].FailureReason != tt.failure || (len(up.made) == 1) != (tt.failure == 0):
					t.Errorf("results %+v, %d updates", results, len(up.made))
				case tt.failure == 0 && (up.made[0].RequestSequence != 1 || up.made[0].SecondsPerLocalStep != 1 ||
					results[0].UpdateDigest != up.made[0].PayloadManifest.Hash):
					t.Errorf("update %+v", up.made[0])
				}
			})
		})
	}
}
