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

// runConstants holds the values that do not change during a run.
type runConstants[T learner.Float] struct {
	e        *Experiment
	seed     uint64 // seed of the run
	in       Instance[T]
	agents   int // number of agents (K)
	schedule learner.StepSizeSchedule
	buckets  []uint8          // aggregation bucket of each agent plus 1; 0 means not computed yet
	keys     []uint64         // random keys of named agents; nil if the agents have no names
	total    float64          // sum of the problem's weights
	tape     *drawRecorder[T] // recorder of the draws for a dump; nil if no dump is written
	attack   attack.Attack
	liars    map[int]bool // set of dishonest agents
	// largest number of local steps of any agent; each round advances the step size schedule by this number
	maxLocalSteps uint64
}

// weight returns the weight K·p_k of agent k, scaled so that the mean over all K agents is 1.
func (c *runConstants[T]) weight(k int) float64 {
	if c.in.Problem.Weights == nil {
		return 1
	}
	return round.AgentWeight(c.agents, c.in.Problem.Weights[k], c.total)
}

// maxNamed is the maximum number of agents whose aggregation buckets are cached.
const maxNamed = 1 << 20

// name returns the name of agent k, or its number if it has none.
func (c *runConstants[T]) name(k int) wire.AgentID {
	if labels := c.in.Problem.Labels; labels != nil {
		return wire.AgentID(labels[k])
	}
	return wire.AgentID(strconv.Itoa(k))
}

// bucket returns the bucket of agent k, which determines the order of summation.
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

// stream returns the key that selects the random numbers of agent k.
func (c *runConstants[T]) stream(k int) uint64 {
	if c.keys != nil {
		return c.keys[k]
	}
	return data.Mix(forAgent, uint64(k))
}

// start returns the initial model: the model that the problem specifies, or otherwise the initial model that a
// coordinator uses with the same seed.
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
		panic("sim: " + err.Error()) // Cannot happen: Run has validated the model.
	}
	model.InitParameters(w, rand.New(rand.NewPCG(c.seed, 0)))
	return w
}

// agentSimulator simulates agents one after the other, for one goroutine.
type agentSimulator[T learner.Float] struct {
	c       *runConstants[T]
	load    data.Loader[T]
	sampler learner.StepSampler[T]
	steps   task.LocalStepRunner[T]
	pcg     rand.PCG
	packing *lossyCodec[T] // codec of the snapshots in FedDec; nil for a lossless codec

	x, anchor []T // buffers, each for one model

	recording *recordingSource[T] // draw source that also records the draws; nil if no dump is written
	replaying *replaySource[T]    // draw source that returns recorded draws; nil unless a dump is replayed
}

func newHand[T learner.Float](c *runConstants[T]) *agentSimulator[T] {
	h := &agentSimulator[T]{c: c}
	h.load = c.falsified(c.in.Problem.Loader(&h.pcg))
	model, err := learner.NewModel[T](c.in.Problem.Model)
	if err != nil {
		panic("sim: " + err.Error()) // Cannot happen: Run has validated the model.
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

// loadAgent prepares the simulation of agent k in a round: the data and the random generator.
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

// takeLocalSteps takes the local steps of agent k from number first to number last. takeLocalSteps updates the
// parameters x in place.
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
