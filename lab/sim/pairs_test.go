package sim_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// choose contains, for each option, a function that sets the option in an experiment to the value that a word names.
var choose = map[spec.OptionName]func(e *sim.Experiment, word string){
	spec.OptionAlgorithm: func(e *sim.Experiment, word string) { e.Algorithm = spec.Algorithm(word) },
	spec.OptionSampling:  func(e *sim.Experiment, word string) { e.Sampling = spec.ParticipantSampling(word) },
	spec.OptionAgentWeights: func(e *sim.Experiment, word string) {
		if word == "samples" {
			e.Weights = sim.Each(1, 2, 3, 4, 5, 6)
		}
	},
	spec.OptionWeightPlacement: func(e *sim.Experiment, word string) { e.Weighting = spec.WeightPlacement(word) },
	spec.OptionAggregationRule: func(e *sim.Experiment, word string) {
		e.Aggregation.Rule = word
		switch word {
		case rule.MultiKrum:
			e.Aggregation.AveragedUpdates = 2
		case rule.CenteredClipping:
			e.Aggregation.ClippingRadius = 0.1
		}
	},
	spec.OptionServerOptimizer: func(e *sim.Experiment, word string) { e.ServerOptimizer.Name = word },
	spec.OptionExchange:        func(e *sim.Experiment, word string) { e.Exchange = spec.ExchangeKind(word) },
	spec.OptionNormalize:       func(e *sim.Experiment, word string) { e.StepSize.NormalizesStepSize = word == "true" },
	spec.OptionProximal:        func(e *sim.Experiment, word string) { e.Proximal = 0.1 * float64(len(word)-1) },
	spec.OptionCodec:           func(e *sim.Experiment, word string) { e.Codec = codecOf(word) },
	spec.OptionPersonal: func(e *sim.Experiment, word string) {
		switch word {
		case "layers":
			e.Personal.Layers = []string{"layer0.bias"}
		case "ditto":
			e.Personal.Method = spec.PersonalDitto
		}
	},
	spec.OptionFinetune: func(e *sim.Experiment, word string) { e.Finetune.Steps = len(word) - 1 },
	spec.OptionModelKind: func(e *sim.Experiment, word string) {
		e.Data.Model.Kind = spec.ModelKind(word)
		switch word {
		case "linear":
			e.Data.Kind = data.KindLinear
		case "logistic":
			e.Data.Kind = data.KindLogistic
		case "mlp", "conv1d":
			if e.Data.Model.HiddenUnits, e.Data.Model.Risk = []int{3}, spec.LossSoftmax; word == "conv1d" {
				e.Data.Model.Convolution = spec.Convolution{InputChannels: 1, KernelSteps: 2, FiltersPerLayer: []int{2},
					PoolSteps: 1}
			}
			fallthrough
		case "softmax":
			e.Data.Kind, e.Data.Model.Classes, e.Data.Rows, e.Data.Model.HasBias = data.KindBlobs, 3, 60, true
			e.Data.OwnHeldOut = 0.3
		default:
			if e.Data.Model.HiddenUnits = map[string][]int{"autoencoder": {1}}[word]; !e.Data.Model.Kind.HasTarget() {
				e.Data.Target = ""
			} else {
				e.Data.Target = "y"
			}
			e.Data.Kind, e.Data.File, e.Data.Features = data.KindCSV, csvFile, []string{"a", "b"}
			e.Data.Model.HasBias, e.Data.OwnHeldOut = true, 0.3
		}
	},
}

// csvFile is the path of a data file for models that have no synthetic data. TestPairs sets it.
var csvFile string

// writeCSVFile writes a file with features a and b, and targets y between 0.3 and 3.
func writeCSVFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("a,b,y\n")
	for i := range 60 {
		x := float64(i)
		fmt.Fprintf(&b, "%v,%v,%v\n", math.Sin(x), math.Cos(2*x), math.Exp(math.Sin(3*x)))
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTooFewForTheRule checks that a round with too few updates for the aggregation rule leaves the server's model
// unchanged.
func TestTooFewForTheRule(t *testing.T) {
	for _, algorithm := range []spec.Algorithm{spec.FedAvg, spec.FedDec} {
		e := sim.Default()
		e.Agents, e.Participants.Count, e.Runs, e.Rounds, e.Data.Inputs, e.Data.Spread = 2, 2, 1, 6, 2, 1
		e.Algorithm, e.Mixing.ServerEvery = algorithm, 3
		e.Aggregation = rule.Config{Rule: rule.TrimmedMean, TrimShare: 0.5 - 1e-12} // discards both of two updates
		r := run(t, e)
		// without a server model, the agents of FedDec continue to train
		if moved := r.Final[0][0] != 0; moved != (algorithm == spec.FedDec) {
			t.Errorf("%s: the model is %v", algorithm, r.Final[0])
		}
	}
}

// codecOf returns the codec with the given name.
func codecOf(name string) (c spec.Codec) {
	if err := c.UnmarshalText([]byte(name)); err != nil {
		panic(err)
	}
	return c
}

// TestPairs checks every pair of option values: an experiment with both values must run if and only if package spec
// allows the pair.
func TestPairs(t *testing.T) {
	csvFile = writeCSVFile(t)
	kinds := testkit.Words(spec.ModelKinds())
	mlp := slices.Index(kinds, "mlp") // the first kind of model is used with the other options
	kinds[0], kinds[mlp] = kinds[mlp], kinds[0]
	testkit.EachPair(t, spec.InExperimentFile, map[spec.OptionName][]string{
		spec.OptionAlgorithm: {"fedavg", "feddec"}, spec.OptionSampling: {"without_replacement", "with_replacement",
			"importance"},
		spec.OptionAgentWeights: {"equal", "samples"}, spec.OptionWeightPlacement: {"step", "mean"},
		spec.OptionExchange: {"parameters", "gradient"}, spec.OptionAggregationRule: rule.Names(),
		spec.OptionServerOptimizer: optimizer.Names(), spec.OptionNormalize: {"true", "false"},
		spec.OptionProximal: {"0", "0.1"}, spec.OptionCodec: spec.CodecNames(),
		spec.OptionModelKind: kinds,
		spec.OptionPersonal:  {"none", "layers", "ditto"}, spec.OptionFinetune: {"0", "100"},
	}, func(c spec.ChosenOptions, refused []spec.Incompatibility) {
		e := sim.Default()
		e.Agents, e.Participants.Count, e.Runs, e.Rounds, e.Data.Inputs = 6, 5, 1, 5, 2
		e.Mixing.ServerEvery = 2
		for option, word := range c {
			choose[option](&e, word)
		}
		if c[spec.OptionPersonal] == "layers" && !e.Data.Model.HasBias {
			return // this model has only one tensor
		}
		err := e.Validate()
		if len(refused) == 0 && err == nil {
			run(t, e)
		} else if err == nil || len(refused) == 0 || !strings.Contains(err.Error(), refused[0].Reason) {
			t.Errorf("%v: error %v, refused %v", c, err, refused)
		}
	})
}
