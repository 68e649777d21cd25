package demo

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/d2d/graph"
	held "github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
)

// scene is a problem on which FedDec is compared with FedAvg: a task, the agents' data, and a mixing graph.
type scene struct {
	what    string // description of the problem for the output
	files   *files
	task    settings.Task
	mesh    coordinatorsettings.Mesh
	places  []settings.AgentLocation // locations of the agents; nil if the mixing graph does not depend on locations
	rounds  int
	uploads int // number of agents drawn per server round, with replacement

	// start and best are the initial loss f(0) and the minimum f*. The output shows (f − f*)/(f(0) − f*), which equals
	// the loss f if start is 1 and best is 0.
	start, best float64
}

// loss scales a risk for the output, so that start becomes 1 and best becomes 0.
func (s *scene) loss(risk float64) float64 { return (risk - s.best) / (s.start - s.best) }

// newScene returns the scene that the options select and writes the data files to dir.
func newScene(o *Options, dir string) (*scene, error) {
	lay := regressionScene
	if o.Task == "air" {
		lay = airScene
	}
	s, err := lay(o, dir)
	if err != nil {
		return nil, err
	}
	if o.Rounds > 0 {
		s.rounds = o.Rounds
	}
	s.task.StepSize.NormalizesStepSize = false
	s.task.Mixing.StepsPerMixing, s.task.Mixing.SnapshotTimeout, s.task.Mixing.SnapshotCodec = 1, 0, o.Codec
	s.task.Mixing.ClipDistance = o.Clip
	if o.faulty() {
		s.task.Mixing.SnapshotTimeout, s.task.Mixing.SnapshotRequestInterval = 2*o.Delay+100*time.Millisecond,
			o.Delay+50*time.Millisecond
	}
	return s, nil
}

// airScene returns the air pollution scene, in which twelve stations mix on a ring.
func airScene(o *Options, dir string) (*scene, error) {
	f, err := writeData(dir)
	if err != nil {
		return nil, err
	}
	s := &scene{
		what: "air pollution (log PM2.5) six hours ahead at twelve stations on a ring; the loss is ½ the mean " +
			"squared error in the held-out year",
		files: f, task: o.task(), mesh: coordinatorsettings.Mesh{Edges: spec.EdgesRing,
			Weights: spec.EdgeWeightsMetropolis},
		rounds:  50,
		uploads: o.draws(), start: 1,
	}
	s.task.StepSize.Constant = 0.02
	if o.Model == "mlp" {
		s.task.StepSize.Constant = 0.05
	}
	s.task.Steps = settings.LocalStepLimits{TimeBudget: time.Minute, Min: 20, Max: 20}
	return s, nil
}

// Regression problem of section 4 of the FedDec paper: the number of agents, the local steps per round, and the radius
// at which the random geographic graph is hardest to connect.
const (
	regressionAgents = 20
	regressionRadius = 0.35
	regressionSteps  = 10 // number of local steps per round (H in the paper)
)

var regression = data.Regression{Inputs: 25, Rows: 10, Deviation: 0.25, Base: 2}

// regressionScene returns the regression scene of the FedDec paper. Each agent has fewer rows than the model has
// parameters, so no agent can learn the model alone.
func regressionScene(o *Options, dir string) (*scene, error) {
	p, err := data.NewRegression[float32](regression, regressionAgents, o.Seed)
	if err != nil {
		return nil, err
	}
	g, err := graph.ConnectedGeographicGraph(regressionAgents, regressionRadius, rand.New(rand.NewPCG(o.Seed, 1)))
	if err != nil {
		return nil, err
	}
	f, err := writeRegression(p, dir)
	if err != nil {
		return nil, err
	}
	s := &scene{
		what:  "regression of the FedDec paper: 25 parameters, 10 rows per agent; the loss is (f − f*)/(f(0) − f*)",
		files: f, mesh: coordinatorsettings.Mesh{Edges: spec.EdgesRadius, EdgeRadius: regressionRadius,
			Weights: spec.EdgeWeightsBestConstant},
		rounds:  100,
		uploads: o.draws(),
		best:    p.Objective.Minimum, start: p.Objective.Risk(make([]float64, regression.Inputs)),
	}
	for _, at := range g.Positions() {
		s.places = append(s.places, settings.AgentLocation{X: at.X, Y: at.Y})
	}
	s.task = coordinatorsettings.Default().Task
	s.task.Name, s.task.Features, s.task.Target = "regression", f.features, f.target
	s.task.Model.HasBias, s.task.Standardize, s.task.ClipStandardDeviations, s.task.MinRows = false, false, 0, 1
	s.task.BatchSize = 1
	s.task.StepSize = spec.StepSize{IsDiminishing: true, StrongConvexity: p.Objective.StrongConvexity,
		Smoothness: p.Objective.Smoothness}
	s.task.Steps = settings.LocalStepLimits{TimeBudget: time.Minute, Min: regressionSteps, Max: regressionSteps}
	return s, nil
}

// writeRegression writes one CSV file per agent, and one CSV file with the rows of all agents.
func writeRegression(p *data.Problem[float32], dir string) (*files, error) {
	f := &files{target: "y", held: filepath.Join(dir, "all.csv")}
	for j := range p.Model.Inputs {
		f.features = append(f.features, fmt.Sprintf("x%02d", j+1))
	}
	var all []*learner.Samples[float32]
	load := p.Loader(nil)
	for k := range p.Agents {
		samples := load(k).Samples
		all = append(all, samples)
		name := agentName(k)
		f.stations = append(f.stations, name)
		f.train = append(f.train, filepath.Join(dir, name+".csv"))
		if err := f.write(f.train[k], samples); err != nil {
			return nil, err
		}
	}
	return f, f.write(f.held, all...)
}

func agentName(k int) string { return fmt.Sprintf("agent-%02d", k+1) }

// write writes samples as CSV without loss of precision.
func (f *files) write(path string, all ...*learner.Samples[float32]) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(file)
	rows := [][]string{append(append([]string(nil), f.features...), f.target)}
	for _, s := range all {
		for i := range s.Len() {
			x, y := s.Row(i)
			row := make([]string, 0, len(x)+1)
			for _, v := range x {
				row = append(row, strconv.FormatFloat(float64(v), 'g', -1, 32))
			}
			rows = append(rows, append(row, strconv.FormatFloat(float64(y), 'g', -1, 32)))
		}
	}
	if err := w.WriteAll(rows); err != nil {
		_ = file.Close() // Ignore the close error, because the write error is returned.
		return err
	}
	return file.Close()
}

// apart is the plan of one federation of a scene, with the algorithm FedDec or FedAvg.
type apart struct {
	*Options
	*scene
	algorithm spec.Algorithm
	site      string // URL of the broker for messages between neighbours; "" means the main broker
}

func (p apart) coordinator() coordinatorsettings.ConfigFile {
	s := coordinatorsettings.Default()
	s.Task, s.Mesh, s.HeldOutData = p.task(), p.mesh, &held.Config{CSVPath: p.files.held}
	s.Round.Algorithm, s.Round.Sampling, s.Round.AgentWeightRule = p.algorithm, spec.SamplingWithReplacement,
		spec.WeightsEqual
	s.Round.Participants, s.Round.Quorum = p.uploads, p.uploads
	s.Round.Seed, s.Round.MaxAggregations = p.Seed, p.rounds()
	n := len(p.files.stations)
	s.Round.Gather = round.GatherConfig{TargetAgents: n, MinAgents: n, WindowLength: time.Minute,
		HelloSpread: 100 * time.Millisecond}
	s.Round.RoundTimeout = time.Minute
	s.Policy.MaxBufferedUpdateBytes = spec.ByteSize(64 << 20)
	s.Metrics, s.Console = settings.Metrics{}, coordinatorsettings.Console{}
	return s
}

func (p apart) task() settings.Task { return p.scene.task }
func (p apart) rounds() int         { return p.scene.rounds }

func (p apart) agent(i int) settings.Agent {
	s := settings.DefaultAgent()
	s.ID, s.Data.CSVPath = p.files.stations[i], p.files.train[i]
	s.Privacy.MinRowsToParticipate = 1
	s.Metrics = settings.AgentMetrics{}
	if p.algorithm == spec.FedDec {
		s.D2D = &settings.D2D{UsesUplink: p.site == ""}
		if p.site != "" {
			s.D2D.Broker.URLs = config.OneOrMore{p.site}
		}
		if p.places != nil {
			s.D2D.Place = &p.places[i]
		}
	}
	return s
}
