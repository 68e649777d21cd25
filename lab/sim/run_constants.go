package sim

import (
	"math/rand/v2"
	"strconv"

	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// runConstants is what is fixed while a run goes on.
type runConstants[T learner.Float] struct {
	e             *Experiment
	seed          uint64 // of the run
	in            Instance[T]
	agents        int // K
	schedule      learner.StepSizeSchedule
	buckets       []uint8          // of the agents, plus 1; 0 = not known yet
	keys          []uint64         // of the draws of agents that have names; nil = they have none
	total         float64          // Σ of the problem's weights
	tape          *drawRecorder[T] // of a dump, or nil
	attack        attack.Attack
	liars         map[int]bool // who sends it
	maxLocalSteps uint64       // the largest E_k, by which t of the schedule advances in a round
}

// weight is K·p_k.
func (c *runConstants[T]) weight(k int) float64 {
	if c.in.Problem.Weights == nil {
		return 1
	}
	return round.AgentWeight(c.agents, c.in.Problem.Weights[k], c.total)
}

// maxNamed is up to how many agents their buckets are kept.
const maxNamed = 1 << 20

// name is that of agent k: its number where it has none.
func (c *runConstants[T]) name(k int) wire.AgentID {
	if labels := c.in.Problem.Labels; labels != nil {
		return wire.AgentID(labels[k])
	}
	return wire.AgentID(strconv.Itoa(k))
}

// bucket is that of agent k in the fold.
func (c *runConstants[T]) bucket(k int) int {
	if k < len(c.buckets) && c.buckets[k] > 0 {
		return int(c.buckets[k] - 1)
	}
	b := rule.BucketOfAgent(c.seed, c.name(k))
	if k < len(c.buckets) {
		c.buckets[k] = uint8(b + 1)
	}
	return b
}

// stream is the key of agent k's draws.
func (c *runConstants[T]) stream(k int) uint64 {
	if c.keys != nil {
		return c.keys[k]
	}
	return data.Mix(forAgent, uint64(k))
}

// start is w_0: the problem's, or what a coordinator with this seed begins with.
func (c *runConstants[T]) start() []T {
	w := make([]T, c.in.Problem.Model.ParameterCount())
	if s := c.in.Problem.Start; s != nil {
		for j, v := range s {
			w[j] = T(v)
		}
		return w
	}
	model, err := learner.NewModel[T](c.in.Problem.Model)
	if err != nil {
		panic("sim: " + err.Error()) // checked before the first run
	}
	model.InitParameters(w, rand.New(rand.NewPCG(c.seed, 0)))
	return w
}

// agentSimulator takes the part of one agent after the other, for one goroutine: an agent is there only while its turn
// lasts.
type agentSimulator[T learner.Float] struct {
	c       *runConstants[T]
	load    data.Loader[T]
	sampler learner.StepSampler[T]
	steps   task.LocalStepRunner[T]
	pcg     rand.PCG
	packing *lossyCodec[T] // of what it sends to its neighbours, in feddec

	x, anchor []T // d, of an agent's turn

	recording *recordingSource[T] // in front of the sampler of a dump
	replaying *replaySource[T]    // in place of the sampler of a replay
}

func newHand[T learner.Float](c *runConstants[T]) *agentSimulator[T] {
	h := &agentSimulator[T]{c: c}
	h.load = c.falsified(c.in.Problem.Loader(&h.pcg))
	model, err := learner.NewModel[T](c.in.Problem.Model)
	if err != nil {
		panic("sim: " + err.Error()) // checked before the first run
	}
	h.sampler.Rand = rand.New(&h.pcg)
	h.sampler.Noise = c.e.GradientNoise
	h.steps.Descent = learner.Descent[T]{Model: model, Draws: &h.sampler, Schedule: c.schedule,
		NormalizesStepSize: c.e.StepSize.NormalizesStepSize, Correction: learner.StepCorrection[T]{
			ProximalWeight: c.e.Proximal, FrozenRanges: c.in.Problem.Model.TensorRanges(c.e.Data.Model.FrozenTensors)}}
	if c.tape != nil {
		h.recording = &recordingSource[T]{tape: c.tape, sampler: &h.sampler}
		h.steps.Draws = h.recording
	}
	if c.in.replay != nil {
		h.replaying = &replaySource[T]{drawReplay: c.in.replay}
		h.steps.Draws = h.replaying
	}
	return h
}

// loadAgent takes the part of agent k in a round.
func (h *agentSimulator[T]) loadAgent(k, round int) {
	local := h.load(k)
	if h.replaying != nil {
		h.replaying.begin(k, round, local.Samples)
		return
	}
	h.sampler.Data, h.sampler.Stream = local.Samples, local.Stream
	h.sampler.BatchSize = int(h.c.e.BatchSize.At(k, h.c.seed))
	if h.c.e.Response.StraggleUnit == StraggleStep {
		h.sampler.LocalStepProbability = h.c.e.Response.Probability.At(k, h.c.seed)
	}
	task.ReseedAgentRand(&h.pcg, h.c.seed, wire.RoundID(round), h.c.stream(k))
	if h.recording != nil {
		h.recording.begin(k, round)
	}
}

// takeLocalSteps takes local steps of agent k on x, first to last.
func (h *agentSimulator[T]) takeLocalSteps(x []T, k, first, last int) error {
	err := h.steps.TakeLocalSteps(x, uint64(first), uint64(last))
	if h.replaying != nil && h.replaying.err != nil {
		return &replayError{h.replaying.err}
	}
	if err != nil {
		return &agentError{k, err}
	}
	return nil
}
