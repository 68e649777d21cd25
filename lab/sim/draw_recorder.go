package sim

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
)

// drawRecorder records every random draw of a run, in the order of the rounds. The draws are written to a dump.
type drawRecorder[T learner.Float] struct {
	participants []int64   // triples (round, agent, draw count)
	steps        []int64   // triples (round, agent, step)
	scale        []float64 // gradient scale of each step
	batch        []int64   // number of samples of each step; 0 means all rows
	rows         []int64   // row numbers, for samples from stored rows
	x, y         []T       // features and targets of samples from streams
	noise        []T       // noise of each step; empty without noise
	weights      []float64 // edge weights in each iteration of FedDec; empty if links cannot fail
}

// maxDumpNumbers is the maximum number of values in a dump. This limits the size of a dump to one gigabyte.
const maxDumpNumbers = 1 << 27

// checkCapacity returns an error if a run has more draws than a dump can hold.
func (t *drawRecorder[T]) checkCapacity() error {
	n := len(t.participants) + len(t.steps) + len(t.scale) + len(t.batch) + len(t.rows) + len(t.x) + len(t.y) +
		len(t.noise) + len(t.weights)
	if n > maxDumpNumbers {
		return fmt.Errorf("the dump exceeds the limit of %d numbers: reduce the number of agents or rounds",
			maxDumpNumbers)
	}
	return nil
}

// drawn records the participants of round i.
func (t *drawRecorder[T]) drawn(i int, places []round.DrawnIndex) {
	for _, p := range places {
		t.participants = append(t.participants, int64(i), int64(p.Index), int64(p.DrawCount))
	}
}

// recordingSource records the draws of local steps. It wraps the sampler of an agent and the data from which the
// sampler draws.
type recordingSource[T learner.Float] struct {
	tape    *drawRecorder[T]
	sampler *learner.StepSampler[T]
	stored  *learner.Samples[T] // stored rows of the agent; nil if the agent has a stream
	stream  learner.SampleStream[T]
	at      [3]int64 // current round, agent and step
	samples int64    // number of samples in the current step
}

// begin starts to record agent k in round i. begin replaces the data of the sampler by r.
func (r *recordingSource[T]) begin(k, i int) {
	r.at = [3]int64{int64(i), int64(k), 0}
	r.stored, r.stream = r.sampler.Data, r.sampler.Stream
	if r.sampler.BatchSize > 0 {
		r.sampler.Data, r.sampler.Stream = nil, r
	}
}

// setRound continues to record the same agent in round i.
func (r *recordingSource[T]) setRound(i int) { r.at[0], r.at[2] = int64(i), 0 }

// Sample implements learner.SampleStream. It draws from stored rows with the same random numbers as the sampler.
func (r *recordingSource[T]) Sample(x []T) T {
	r.samples++
	if r.stored == nil {
		y := r.stream.Sample(x)
		r.tape.x, r.tape.y = append(r.tape.x, x...), append(r.tape.y, y)
		return y
	}
	i := r.sampler.Rand.IntN(r.stored.Len())
	r.tape.rows = append(r.tape.rows, int64(i))
	h, y := r.stored.Row(i)
	copy(x, h)
	return y
}

// Next implements learner.StepDrawSource.
func (r *recordingSource[T]) Next(m *learner.Model[T]) *learner.StepDraw[T] {
	r.samples = 0
	r.at[2]++
	d := r.sampler.Next(m)
	r.tape.steps = append(r.tape.steps, r.at[:]...)
	r.tape.scale = append(r.tape.scale, float64(d.GradientScale))
	r.tape.batch = append(r.tape.batch, r.samples)
	r.tape.noise = append(r.tape.noise, d.Noise...)
	return d
}

// drawReplay contains the draws that were read from a dump, for a replay of the run.
type drawReplay[T learner.Float] struct {
	drawRecorder[T]
	places                   map[int][]round.DrawnIndex
	firstStepByParticipation map[[2]int]int // index of the first step by round and agent
	firstSampleByStep        []int          // index of the first sample of each step
	inputs                   int
	params                   int
	// buckets is the aggregation bucket of each agent. If it is nil, the seed determines the buckets.
	buckets []int64
	// lacksLinkModel is true if the dump contains mixing matrices for failing links, but not the failure probability.
	lacksLinkModel bool
}

// empty reports whether the dump contains no draws.
func (p *drawReplay[T]) empty() bool { return len(p.steps) == 0 && len(p.participants) == 0 }

// index validates the draws of the dump and builds the indices for a replay.
func (p *drawReplay[T]) index(agents int) error {
	p.places, p.firstStepByParticipation = map[int][]round.DrawnIndex{}, map[[2]int]int{}
	for n := 0; n+3 <= len(p.participants); n += 3 {
		i, k, times := int(p.participants[n]), int(p.participants[n+1]), int(p.participants[n+2])
		places := p.places[i]
		if i < 1 || k < 0 || k >= agents || times < 1 || len(places) > 0 && places[len(places)-1].Index >= k {
			return fmt.Errorf("participants.npy: row %d, (%d, %d, %d): want rounds from 1, agents from 0 to %d, in "+
				"ascending order, drawn at least once",
				n/3, i, k, times, agents-1)
		}
		p.places[i] = append(places, round.DrawnIndex{Index: k, DrawCount: times})
	}
	steps, at := len(p.steps)/3, 0
	if len(p.scale) != steps || len(p.batch) != steps || len(p.noise) != 0 && len(p.noise) != steps*p.params {
		return fmt.Errorf("steps.npy has %d rows, but scale.npy, batch.npy or noise.npy has a different number", steps)
	}
	for s := range steps {
		i, k, step := int(p.steps[3*s]), int(p.steps[3*s+1]), int(p.steps[3*s+2])
		if _, twice := p.firstStepByParticipation[[2]int{i, k}]; twice && step == 1 {
			return fmt.Errorf("steps.npy: row %d, (%d, %d, %d): duplicate steps for this agent and round", s,
				i, k, step)
		} else if step == 1 {
			p.firstStepByParticipation[[2]int{i, k}] = s
		} else if s == 0 || p.steps[3*s-3] != int64(i) || p.steps[3*s-2] != int64(k) ||
			p.steps[3*s-1] != int64(step-1) {
			return fmt.Errorf("steps.npy: row %d, (%d, %d, %d): want the steps of an agent in a round in consecutive "+
				"rows, numbered from 1", s, i, k, step)
		}
		if p.batch[s] < 0 || p.batch[s] > maxDumpNumbers {
			return fmt.Errorf("batch.npy: row %d is %d; want 0 or more", s, p.batch[s])
		}
		p.firstSampleByStep = append(p.firstSampleByStep, at)
		at += int(p.batch[s])
	}
	if samples := max(len(p.rows), len(p.y)); samples != at || len(p.y) > 0 && len(p.x) != at*p.inputs {
		return fmt.Errorf("batch.npy specifies %d samples, but sample_rows.npy or sample_y.npy has %d, with %d "+
			"features", at, samples, len(p.x))
	}
	return nil
}

// count returns the number of recorded steps of agent k in round i. It returns at least 1, so that a replay detects a
// missing step.
func (p *drawReplay[T]) count(k, i int) int {
	s, n := p.firstStepByParticipation[[2]int{i, k}], 0
	for 3*(s+n) < len(p.steps) && p.steps[3*(s+n)] == int64(i) && p.steps[3*(s+n)+1] == int64(k) {
		n++
	}
	return max(n, 1)
}

// replaySource returns the recorded draws of one agent at a time. replaySource replaces the random draws of the local
// steps.
type replaySource[T learner.Float] struct {
	*drawReplay[T]
	stored *learner.Samples[T]
	at     [3]int
	now    int // index of the next step
	draw   learner.StepDraw[T]
	own    learner.Batch[T] // buffer for the rows of a step
	err    error            // error of the first missing draw
}

// begin selects the steps of agent k in round i.
func (r *replaySource[T]) begin(k, i int, stored *learner.Samples[T]) {
	r.stored = stored
	r.at = [3]int{i, k, 0}
	now, found := r.firstStepByParticipation[[2]int{i, k}]
	if !found {
		now = len(r.firstSampleByStep)
	}
	r.now = now
}

// Next implements learner.StepDrawSource.
func (r *replaySource[T]) Next(*learner.Model[T]) *learner.StepDraw[T] {
	d := &r.draw
	*d = learner.StepDraw[T]{}
	s := r.now
	r.at[2]++
	if s >= len(r.firstSampleByStep) || int(r.steps[3*s]) != r.at[0] || int(r.steps[3*s+1]) != r.at[1] ||
		int(r.steps[3*s+2]) != r.at[2] {
		r.fail(fmt.Errorf("the dump does not contain step %d of agent %d in round %d", r.at[2], r.at[1], r.at[0]))
		return d
	}
	r.now++
	d.GradientScale = r.scale[s]
	if len(r.noise) > 0 {
		d.Noise = r.noise[s*r.params:][:r.params]
	}
	from, n := r.firstSampleByStep[s], int(r.batch[s])
	switch {
	case n == 0 && r.stored == nil:
		r.fail(fmt.Errorf("batch.npy: step %d of agent %d in round %d uses all rows, but x.npy has none", r.at[2],
			r.at[1], r.at[0]))
	case n == 0:
		d.Batch = r.stored.All()
	case len(r.y) > 0:
		d.Batch = learner.Batch[T]{X: r.x[from*r.inputs:][:n*r.inputs], Y: r.y[from:][:n]}
	default:
		d.Batch = r.gather(r.rows[from:][:n])
	}
	if r.err != nil {
		d.GradientScale = 0
	}
	return d
}

// gather copies the given rows of the agent's stored samples.
func (r *replaySource[T]) gather(rows []int64) learner.Batch[T] {
	r.own.X, r.own.Y = r.own.X[:0], r.own.Y[:0]
	for _, i := range rows {
		if r.stored == nil || i < 0 || int(i) >= r.stored.Len() {
			r.fail(fmt.Errorf("sample_rows.npy: agent %d has no row %d", r.at[1], i))
			return learner.Batch[T]{}
		}
		h, y := r.stored.Row(int(i))
		r.own.X, r.own.Y = append(r.own.X, h...), append(r.own.Y, y)
	}
	return r.own
}

func (r *replaySource[T]) fail(err error) { r.err = errors.Join(r.err, err) }
