package coordinator_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRun checks that a whole run yields the same model, bit for bit, as calling the packages task and round without
// coordinator, agents and broker. The risk must fall, and each setting must change the model.
func TestRun(t *testing.T) {
	seen := map[wire.Digest]string{}
	for _, tt := range []struct {
		name   string
		change func(*federation)
	}{
		{"weights in the step", func(*federation) {}},
		{"weights in the mean", func(f *federation) { f.cfg.Round.WeightPlacement = spec.WeightInServerMean }},
		{"gradients", func(f *federation) {
			f.cfg.Task.Training.ExchangeKind, f.cfg.Task.Training.BatchSize = spec.ExchangeGradient, 0
		}},
		{"a network and a schedule", func(f *federation) {
			f.cfg.Task.Model.HiddenUnits = []uint32{4}
			f.cfg.Task.Training.StepSize, f.cfg.Task.Training.StrongConvexity,
				f.cfg.Task.Training.StepSizeDecayOffset = 0, 1, 20
		}},
		{"mini-batches", func(f *federation) { f.cfg.Task.Training.BatchSize = 10 }},
		{"Gaussian noise", noisy(spec.NoiseGaussian)},
		{"Laplace noise", noisy(spec.NoiseLaplace)},
		{"stragglers", func(f *federation) { f.cfg.Task.Training.LocalStepProbability = 0.5 }},
		{"all together", allTogether},
		{"all together, gradients", func(f *federation) {
			allTogether(f)
			f.cfg.Task.Training.ExchangeKind = spec.ExchangeGradient
		}},
		{"the bilinear network, all together", func(f *federation) {
			allTogether(f)
			f.bilinear()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFederation(t, 4, memory.Options{})
				f.held(rowsOf(99, 50))
				tt.change(f)
				f.start()
				hash := f.finished(time.Hour)
				if want := wire.BlobDigest(wire.AppendVector(nil, f.alone())); hash != want {
					t.Errorf("model %x, want %x as computed directly", hash[:4], want[:4])
				}
				if other, twice := seen[hash]; twice {
					t.Errorf("the same model as with %s", other)
				}
				seen[hash] = tt.name
				models := events[aggregation.ModelReady](f)
				if first, last := models[0], models[len(models)-1]; len(models) != 5 ||
					!(last.MeanReportedRisk < first.MeanReportedRisk) ||
					!(last.HeldOutScore.Risk < first.HeldOutScore.Risk) {
					t.Errorf("%d models, risk from %v to %v, held-out from %v to %v", len(models),
						first.MeanReportedRisk,
						last.MeanReportedRisk, first.HeldOutScore.Risk, last.HeldOutScore.Risk)
				}
				if s := events[aggregation.StatisticsReady](f); len(s) != 1 || s[0].Rows != 20+25+30+35 ||
					s[0].Columns != 4 {
					t.Errorf("statistics: %+v", s)
				}
				if got := events[agent.BaseModelFetched](f, "a1"); len(got) != 5 || got[4].Version != 4 {
					t.Errorf("a1 fetched %+v", got)
				}
			})
		})
	}
}

// noisy adds noise to the gradients (2nd-order paper, eq. (8)).
func noisy(law spec.NoiseLaw) func(*federation) {
	return func(f *federation) { f.cfg.Task.Training.GradientNoise = spec.GradientNoise{Law: law, Variance: 0.01} }
}

// allTogether combines mini-batches, noise and random skipping of local steps (2nd-order paper, eq. (42)).
func allTogether(f *federation) {
	noisy(spec.NoiseLaplace)(f)
	f.cfg.Task.Training.BatchSize, f.cfg.Task.Training.LocalStepProbability = 5, 0.5
}

// bilinear configures the bilinear model (2nd-order paper, eq. (40)) with a class as target.
func (f *federation) bilinear() {
	f.cfg.Task.Model = wire.ModelSpec{HiddenUnits: []uint32{3}, Outputs: 1, Activation: spec.ActivationIdentity,
		Risk: spec.LossLogistic, Ridge: 0.01}
	f.held(f.tested.classes())
	for _, a := range f.agents {
		a.data = a.data.classes()
	}
}

// alone computes the final model of this federation without coordinator, agents and broker.
func (f *federation) alone() []float32 {
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	p, total := f.standardised(), 0.0
	for _, a := range f.agents {
		s, err := a.data.Load(f.cfg.Task.Features, f.cfg.Task.TargetColumn)
		must(err)
		total += float64(s.Len())
	}
	w, r := p.InitialParameters(f.cfg.Round.Seed), &f.cfg.Round
	gradient := f.cfg.Task.Training.ExchangeKind == spec.ExchangeGradient
	perRound := uint64(p.Task.Training.MaxLocalSteps)
	if gradient {
		perRound = 1
	}
	for i := range r.MaxAggregations {
		offset := uint64(i) * perRound
		var sent []testkit.WeightedUpdate[float32]
		scale := 1.
		for _, a := range f.agents {
			s, err := a.data.Load(f.cfg.Task.Features, f.cfg.Task.TargetColumn)
			must(err)
			must(p.PrepareSamples(s))
			weight := float64(len(f.agents)) * float64(s.Len()) / total
			job := task.LocalJob[float32]{BaseParameters: w, Samples: s, StepWeight: 1, StepOffset: offset,
				Rand: task.AgentRand(r.Seed, wire.RoundID(i+2), task.AgentRandomKey(a.id))}
			job.Steps, _ = p.StepCountPolicy().LocalStepCount(a.cfg.Training.DeclaredStepTime)
			factor := 1.
			switch {
			case gradient:
				factor, scale = weight, -p.Schedule.StepSizeAt(offset+1)
			case r.WeightPlacement == spec.WeightInServerMean:
				factor = weight
			default:
				job.StepWeight = weight
			}
			out, err := p.RunLocalSteps(job)
			must(err)
			sent = append(sent, testkit.WeightedUpdate[float32]{ID: a.id, Factor: factor, Values: out.UpdateVector})
		}
		next := make([]float32, len(w))
		must(round.ApplyStep(next, w, testkit.ReferenceAggregate(r.Seed, scale, len(f.agents), sent...)))
		w = next
	}
	return w
}

// standardised compiles the task with the statistics of all agents.
func (f *federation) standardised() *task.CompiledTask[float32] {
	must := func(err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	p, err := task.Compile[float32](f.cfg.Task)
	must(err)
	var all []*learner.ColumnMoments
	for _, a := range f.agents {
		s, err := a.data.Load(f.cfg.Task.Features, f.cfg.Task.TargetColumn)
		must(err)
		must(p.PrepareSamples(s))
		v, err := p.StatisticsVector(s)
		must(err)
		m, err := learner.ColumnMomentsFromVector(v)
		must(err)
		all = append(all, m)
	}
	standardised, _, err := p.WithStandardization(len(all), func(take func(*learner.ColumnMoments)) error {
		for _, m := range all {
			take(m)
		}
		return nil
	}, f.cfg.FeatureClipDeviations)
	must(err)
	p, err = task.Compile[float32](standardised)
	must(err)
	return p
}

// TestArrivalDoesNotMatter checks that the order in which messages arrive does not change any bit of the model.
func TestArrivalDoesNotMatter(t *testing.T) {
	var first wire.Digest
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			f := newFederation(t, 4,
				memory.Options{Delay: func(string) time.Duration {
					return time.Duration(rng.IntN(3000)) * time.Millisecond
				}})
			f.start()
			hash := f.finished(time.Hour)
			if seed == 0 {
				first = hash
			}
			if hash != first {
				t.Errorf("seed %d: model %x, want %x", seed, hash[:4], first[:4])
			}
		})
	}
}

// TestOpenModels checks that the history and the models can be read while the coordinator runs.
func TestOpenModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		f.cfg.KeepModels = 2
		f.start()
		hash := f.finished(time.Hour)
		synctest.Wait() // wait until the archive is written
		models, record, err := runs.OpenModelsOfCurrentRun(f.coord.dir)
		if err != nil || record.Phase != round.CoordinatorFinished {
			t.Fatalf("%v, phase %s", err, record.Phase)
		}
		list, err := models.List()
		if err != nil || len(list) != 2 || list[1].Version != 5 || list[1].Digest != hash {
			t.Errorf("%v; %d models: %+v, want versions 4 and 5 = %x", err, len(list), list, hash[:4])
		}
		if _, _, err := runs.OpenModelsOfCurrentRun(t.TempDir()); err == nil {
			t.Error("an empty folder has models")
		}
	})
}
