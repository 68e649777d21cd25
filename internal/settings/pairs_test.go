package settings_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// choose contains, for each option, a function that sets the option in a configuration to the value that a word names.
var choose = map[spec.OptionName]func(s *coordinatorsettings.ConfigFile, word string){
	spec.OptionAlgorithm: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Round.Algorithm = spec.Algorithm(word)
	},
	spec.OptionSampling: func(s *coordinatorsettings.ConfigFile, word string) {
		s.Round.Sampling = spec.ParticipantSampling(word)
	},
	spec.OptionAgentWeights: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Round.AgentWeightRule = spec.AgentWeightRule(word)
	},
	spec.OptionWeightPlacement: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Round.WeightPlacement = spec.WeightPlacement(word)
	},
	spec.OptionAggregationRule: func(s *coordinatorsettings.ConfigFile, word string) {
		s.Round.Aggregation.Rule, s.Round.Participants = word, 3
		switch word {
		case rule.MultiKrum:
			s.Round.Aggregation.AveragedUpdates = 2
		case rule.CenteredClipping:
			s.Round.Aggregation.ClippingRadius = 0.1
		}
	},
	spec.OptionServerOptimizer: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Round.ServerOptimizer.Name = word
	},
	spec.OptionExchange: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Task.Exchange = spec.ExchangeKind(word)
	},
	spec.OptionNormalize: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Task.StepSize.NormalizesStepSize = word == "true"
	},
	spec.OptionProximal: func(s *coordinatorsettings.ConfigFile,
		word string) {
		s.Task.ProximalWeight = 0.1 * float64(len(word)-1)
	},
	spec.OptionCodec: func(s *coordinatorsettings.ConfigFile, word string) { s.Task.UpdateCodec = codecOf(word) },
	spec.OptionPersonal: func(s *coordinatorsettings.ConfigFile, word string) {
		switch word {
		case "layers":
			s.Task.Personal.Layers = []string{"layer0.bias"}
		case "ditto":
			s.Task.Personal.Method = spec.PersonalDitto
		}
	},
	spec.OptionFinetune: func(s *coordinatorsettings.ConfigFile, word string) { s.Task.Finetune.Steps = len(word) - 1 },
	spec.OptionModelKind: func(s *coordinatorsettings.ConfigFile, word string) {
		s.Task.Model.Kind = spec.ModelKind(word)
		s.Task.Model.Classes = map[string]int{"softmax": 3}[word]
		s.Task.Model.HiddenUnits = map[string][]int{"mlp": {4}, "autoencoder": {1}}[word]
		if word == "conv1d" {
			s.Task.Model.Convolution = spec.Convolution{InputChannels: 1, KernelSteps: 1, FiltersPerLayer: []int{1},
				PoolSteps: 1}
		}
		if !s.Task.Model.Kind.HasTarget() {
			s.Task.Target = ""
		}
		if word == "external" {
			s.Task.Model.TrainerName, s.Task.Model.InitialModelFile = "defects", initialModel
			s.Task.Features, s.Task.Target = nil, ""
		}
	},
	spec.OptionServerEvery: func(s *coordinatorsettings.ConfigFile, word string) {
		s.Task.Mixing.StepsPerServerAverage = -len(word) + 1 // the word "-1" sets −1, and the word "0" sets 0
	},
}

// initialModel is the path of a model file with tensors. writeInitial creates the file.
var initialModel string

// writeInitial writes the file initialModel.
func writeInitial(t *testing.T) {
	t.Helper()
	file, err := store.EncodeSafetensors([]store.Tensor{
		{Name: "layer0.bias", DType: "F32", Shape: []int{1}, Data: make([]byte, 4)},
		{Name: "layer0.weight", DType: "F32", Shape: []int{2}, Data: make([]byte, 8)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	initialModel = writeFile(t, "model.safetensors", string(file))
}

// codecOf returns the codec with the given name.
func codecOf(name string) (c spec.Codec) {
	if err := c.UnmarshalText([]byte(name)); err != nil {
		panic(err)
	}
	return c
}

// TestPairs checks every pair of option values: a configuration with both values must be valid if and only if the table
// in package spec allows the pair.
func TestPairs(t *testing.T) {
	writeInitial(t)
	path, refusals := writeFile(t, "good.yaml", coordinatorFile(t)), 0
	testkit.EachPair(t, spec.InCoordinatorFile, map[spec.OptionName][]string{
		spec.OptionAlgorithm:    {"feddec", "fedavg"},
		spec.OptionSampling:     {"without_replacement", "with_replacement", "importance"},
		spec.OptionAgentWeights: {"equal", "samples"}, spec.OptionWeightPlacement: {"step", "mean"},
		spec.OptionExchange: {"parameters", "gradient"}, spec.OptionAggregationRule: rule.Names(),
		spec.OptionServerOptimizer: optimizer.Names(), spec.OptionNormalize: {"true", "false"},
		spec.OptionServerEvery: {"-1", "0"}, spec.OptionProximal: {"0", "0.1"},
		spec.OptionCodec:     spec.CodecNames(),
		spec.OptionModelKind: append(testkit.Words(spec.ModelKinds()), "external"),
		spec.OptionPersonal:  {"none", "layers", "ditto"}, spec.OptionFinetune: {"0", "100"},
	}, func(c spec.ChosenOptions, refused []spec.Incompatibility) {
		s := coordinatorsettings.Default()
		if err := settings.Load(&s, "coordinator", path, nil); err != nil {
			t.Fatal(err)
		}
		s.Mesh.Edges = spec.EdgesRing
		for option, word := range c {
			choose[option](&s, word)
		}
		err := s.Validate()
		if len(refused) == 0 && err != nil {
			t.Errorf("%v: %v", c, err)
		}
		for _, p := range refused {
			if refusals++; err == nil || !strings.Contains(err.Error(), p.Reason) {
				t.Errorf("%v: error %v, want that %v does not go with %v", c, err, p.A, p.B)
			}
		}
	})
	if refusals == 0 {
		t.Error("nothing is refused")
	}
}
